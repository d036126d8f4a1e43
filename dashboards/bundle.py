"""``python -m dashboards.bundle``: puts Plotly's cartesian bundle beside the other assets, where npm can fetch it.

It draws the same charts at a third of the size of the bundle inside the plotly package, which serves where this one is missing. The version is
that of the plotly package's own script.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "plotly.js-cartesian-dist-min"
SCRIPT = "plotly-cartesian.min.js"


def wanted_version() -> str:
    """The version of plotly.js inside the installed plotly package. Raises RuntimeError when it cannot be read."""
    import plotly

    head = (Path(plotly.__file__).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")[:200]
    found = re.search(r"plotly\.js v(\d+\.\d+\.\d+)", head)
    if found is None:
        raise RuntimeError("the installed plotly package does not say which plotly.js it holds")
    return found[1]


def fetch(target: Path) -> str:
    """Writes the bundle to ``target`` and returns its version. Raises RuntimeError with one sentence when npm is missing or fails."""
    if shutil.which("npm") is None:
        raise RuntimeError("npm is not installed")
    version = wanted_version()
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", f"{PACKAGE}@{version}"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            raise RuntimeError("npm did not answer within two minutes") from None
        packed = next(Path(folder).glob("*.tgz"), None)
        if done.returncode or packed is None:
            raise RuntimeError(f"npm could not fetch {PACKAGE}@{version}: {(done.stderr.strip().splitlines() or ['no reason given'])[0][:200]}")
        with tarfile.open(packed) as archive:
            member = archive.extractfile(f"package/{SCRIPT}")
            if member is None:
                raise RuntimeError(f"{PACKAGE}@{version} holds no {SCRIPT}")
            target.write_bytes(member.read())
    return version


def main() -> int:
    """Fetches the bundle unless it is there in the right version. Always exits with 0: without it the pages work too."""
    target = Path(__file__).parent / "assets" / SCRIPT
    try:
        if target.exists() and f"v{wanted_version()}" in target.read_text(encoding="utf-8")[:400]:
            return 0
        print(f"{SCRIPT} {fetch(target)}: charts load in a third of the bytes", file=sys.stderr)
    except (RuntimeError, OSError) as error:
        print(f"Charts use the larger bundle of the plotly package ({error}).", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
