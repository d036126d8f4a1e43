"""Streams of the project's own trainer, healthy and broken, and the first alarm of each detector on them.

``FILES`` were written by ``python -m trainer --preset NAME --seed SEED --jsonl FILE`` (``vitals-train``) and reduced to what is judged by
``python -m tests.streams.golden NAME=FILE ...``; without arguments that command judges them again and writes ``expected.json``. A change there is a
change of behaviour: look at it before you keep it.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from monitor.alerts import lifecycle
from monitor.detect import fold
from monitor.detect.contract import Context, Row
from monitor.wire import read_number, spelled

HERE = Path(__file__).parent
EXPECTED = HERE / "expected.json"


def streams() -> dict[str, list[dict[str, float]]]:
    """Name -> rows, in the order of names."""
    found = {}
    for path in sorted(HERE.glob("*.jsonl.gz")):
        rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
        found[path.name.removesuffix(".jsonl.gz")] = [{k: v for k, x in row.items() if (v := read_number(x)) is not None} for row in rows]
    return found


def alarms(rows: list[dict[str, float]]) -> dict[str, int]:
    """Detector -> the row on which it first became an alarm, in order of rows."""
    state, book, first = fold.initial(), lifecycle.Book("golden"), dict[str, int]()
    for i, values in enumerate(rows):
        row = Row(i, i, values)
        state, findings = fold.observe(state, row, Context())
        book, changes = lifecycle.advance(book, row, findings)
        for change in changes:
            if change.to_state in lifecycle.ALARMS:
                first.setdefault(change.detector, i)
    return first


def judged() -> dict[str, dict[str, int]]:
    return {name: alarms(rows) for name, rows in streams().items()}


def reduce(name: str, path: Path) -> None:
    """Write the stream in ``path`` under ``name``: judged metrics, five significant digits."""
    lines = []
    for line in path.read_text().splitlines():
        tree: Mapping[str, object] = json.loads(line)
        if "step" not in tree or "event" in tree:
            continue
        kept = {k: v for k, x in tree.items() if k in fold.WATCHED and (v := read_number(x)) is not None}  # type: ignore[arg-type]
        lines.append(json.dumps(spelled({k: float(f"{v:.5g}") for k, v in kept.items()}), separators=(",", ":")))
    (HERE / f"{name}.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        stream, _, file = argument.partition("=")
        reduce(stream, Path(file))
    EXPECTED.write_text(json.dumps(judged(), indent=1) + "\n")
