"""``vitals runs``: which runs are well, in a terminal."""

from __future__ import annotations

import argparse
import json
import urllib.parse
from collections.abc import Sequence
from typing import Any

from monitor.cli.collector import Collector, add_url
from monitor.cli.parsers import command

HEADINGS = ("verdict", "project", "run", "state", "step", "seen", "id", "what")
SHOWN_OF_ID = 12


def add_parser(commands: Any) -> None:
    parser = command(
        commands,
        "runs",
        "List runs with their verdicts, the most urgent first.",
        """
vitals runs                                  # of the collector on this machine
vitals runs math grpo --state running        # words that project, name, algorithm or tags hold
vitals runs --severity critical --json       # one JSON object per run, for scripts
VITALS_URL=https://vitals.example.org VITALS_TOKEN=... vitals runs""",
        run,
    )
    parser.add_argument("words", nargs="*", help="words that name, project, algorithm, id or tags must hold")
    parser.add_argument("--project", default="", help="only this project")
    parser.add_argument(
        "--state", default="", choices=("running", "finished", "crashed", "killed", "stopped", "ended"), help="only runs in this state"
    )
    parser.add_argument("--severity", default="", choices=("critical", "warning", "watch", "healthy"), help="only runs with this verdict")
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="at most so many")
    add_url(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per run")


def run(arguments: argparse.Namespace) -> int:
    collector = Collector(arguments.url)
    asked = {"q": " ".join(arguments.words), "project": arguments.project, "state": arguments.state, "severity": arguments.severity}
    query = urllib.parse.urlencode({key: value for key, value in asked.items() if value} | {"limit": arguments.limit})
    answer, url = collector.ask("GET", f"/runs?{query}"), collector.url
    if arguments.json:
        for each in answer["runs"]:
            print(json.dumps(each))
        return 0
    if not answer["runs"]:
        print(f"no run at {url} fits" if any(asked.values()) else f"no run has reported to {url} yet; set VITALS_URL={url} where you train")
        return 0
    for line in table([_cells(each, answer["now"]) for each in answer["runs"]]):
        print(line)
    if (more := (answer["total"] or 0) - len(answer["runs"])) > 0:
        print(f"... and {more} more; --limit shows them")
    return 0


def _cells(run: dict[str, Any], now: float) -> tuple[str, ...]:
    step = "-" if run["step"] is None else f"{run['step']:,}"
    return (run["severity"], run["project"], run["name"], run["state"], step, ago(now - run["seen"]), run["run"][:SHOWN_OF_ID], run["sentence"])


def ago(seconds: float) -> str:
    """A span of time in its largest fitting unit: ``12 s``, ``3 min``, ``5 h``, ``2 d``."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The rows under their headings, in columns as wide as their longest cell; the last column is left as it is."""
    whole = [HEADINGS, *rows]
    widths = [max(len(row[i]) for row in whole) for i in range(len(HEADINGS) - 1)]
    return ["  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)), row[-1]]).rstrip() for row in whole]
