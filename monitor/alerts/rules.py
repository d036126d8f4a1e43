"""``vitals.toml``: thresholds of detectors, for every run, for a project or for one run, who is told of alarms and how, and
what a run is asked because of one.

    [detectors.no_signal]
    nonzero = 0.1

    [project.math.detectors.no_signal]
    nonzero = 0.05

    [run."grpo-7b-seed3".detectors.no_signal]
    nonzero = 0.2

    [[route]]
    channels = ["slack"]
    match = {project = "math*"}
    severity = "critical"
    hours = "09:00-18:00"
    zone = "Europe/Berlin"

    [channel.oncall]
    kind = "slack"
    url_env = "ONCALL_URL"

    [[act]]
    request = "stop"
    match = {detector = "non_finite"}
    dry_run = false

    [late]
    after = "1h"

Whatever is not named keeps its default; without a route every channel is told of every alarm, without an act no run is asked anything. A
run's own table wins over its project's, and that over the general one. What rows show that arrive later than ``late.after`` ("never" for always on
time) is stored, and told only if it still holds when they have caught up.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from monitor.alerts.acting import Act, read_act
from monitor.alerts.channel_table import BUILT_IN, Receiver, read_channel
from monitor.alerts.route_table import read_route
from monitor.alerts.routing import Route
from monitor.alerts.spans import read_span
from monitor.detect.contract import Detector
from monitor.detect.registry import DETECTORS

Limits = Mapping[str, Mapping[str, float]]
Path = tuple[str, ...]
TABLES = ("detectors", "project", "run", "route", "channel", "act", "late")
LATE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a rules file; ``line`` counts from 1."""

    line: int
    sentence: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.sentence}"


class RulesError(ValueError):
    """A rules file cannot be used; ``problems`` holds every reason in line order."""

    def __init__(self, problems: Collection[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Rules:
    """The thresholds that differ from their defaults, the routes of alarms, the receivers that the file sets up, and what runs are asked.

    Nobody is told of what rows show that arrive more than ``late_s`` after they were logged.
    """

    general: Limits = field(default_factory=dict)
    projects: Mapping[str, Limits] = field(default_factory=dict)
    runs: Mapping[str, Limits] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    receivers: tuple[Receiver, ...] = ()
    acts: tuple[Act, ...] = ()
    late_s: float = LATE_S

    def limits(self, project: str | None = None, run: str | None = None) -> dict[str, dict[str, float]]:
        """The thresholds of one run, as ``monitor.detect.contract.Context`` wants them."""
        merged: dict[str, dict[str, float]] = {}
        for layer in (self.general, self.projects.get(project or "", {}), self.runs.get(run or "", {})):
            for detector, values in layer.items():
                merged.setdefault(detector, {}).update(values)
        return merged


def _paths(text: str) -> Iterator[tuple[Path, int]]:
    """The path of each table and key with its line. Only for text that TOML has accepted."""
    table: Path = ()
    numbers: dict[Path, int] = {}
    for line, written in enumerate(text.splitlines(), start=1):
        stripped = written.strip()
        header = stripped.startswith("[")
        if (not header and "=" not in stripped) or stripped.startswith("#"):
            continue
        try:
            tree: Any = tomllib.loads(stripped)
        except tomllib.TOMLDecodeError:
            continue
        path: Path = ()
        while isinstance(tree, dict) and len(tree) == 1:
            key, tree = next(iter(tree.items()))
            path += (key,)
            yield (path if header else table + path), line
        if stripped.startswith("[["):
            numbers[path] = numbers.get(path, -1) + 1
            path += (str(numbers[path]),)
            yield path, line
        table = path if header else table


class _Check:
    """Turns the parsed file into rules and remembers what was wrong where."""

    def __init__(self, lines: Mapping[Path, int], detectors: Mapping[str, Detector]) -> None:
        self._lines, self._detectors = lines, detectors
        self.problems: list[Problem] = []

    def complain(self, path: Path, sentence: str) -> None:
        line = next((self._lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._lines), 1)
        self.problems.append(Problem(line, sentence))

    def table(self, tree: Any, path: Path) -> dict[str, Any]:
        if isinstance(tree, dict):
            return tree
        self.complain(path, f"{'.'.join(path)} must be a table, written [{'.'.join(path)}]")
        return {}

    def limits(self, tree: Any, path: Path) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for id_, entries in self.table(tree, path).items():
            detector = self._detectors.get(id_)
            if detector is None:
                self.complain((*path, id_), f"there is no detector {id_!r}{_meant(id_, self._detectors)}")
                continue
            known = {parameter.name: parameter for parameter in detector.parameters}
            for name, value in self.table(entries, (*path, id_)).items():
                if name not in known:
                    offered = ", ".join(known) or "none"
                    self.complain((*path, id_, name), f"{id_} has no threshold {name!r}{_meant(name, known)}; it has: {offered}")
                elif isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                    unit = known[name].unit
                    self.complain((*path, id_, name), f"{id_}.{name} must be a finite number{'' if unit == '-' else f' of {unit}'}, not {value!r}")
                else:
                    found.setdefault(id_, {})[name] = float(value)
        return found

    def scoped(self, tree: Any, path: Path) -> dict[str, dict[str, dict[str, float]]]:
        found = {}
        for name, entry in self.table(tree, path).items():
            for key, value in self.table(entry, (*path, name)).items():
                if key == "detectors":
                    found[name] = self.limits(value, (*path, name, key))
                else:
                    self.complain((*path, name, key), f"{key!r} is not known here: a {path[0]} has a table detectors")
        return found

    def receivers(self, tables: Mapping[str, Any]) -> tuple[Receiver, ...]:
        found = []
        for name, entry in tables.items():
            place = ("channel", name)
            if isinstance(entry, dict):
                found.append(read_channel(name, entry, partial(self._complain_in, place)))
            else:
                self.table(entry, place)
        return tuple(each for each in found if each is not None)

    def _complain_in(self, place: Path, key: str, sentence: str) -> None:
        self.complain((*place, key) if key else place, sentence)

    def routes(self, tables: Any, channels: Collection[str]) -> tuple[Route, ...]:
        found = []
        for place, table in self._numbered("route", tables):
            found.append(route := read_route(table, partial(self._complain_in, place)))
            for name in route.channels if route else ():
                if name not in channels:
                    self.complain((*place, "channels"), f"there is no channel {name!r}{_meant(name, channels)}; [channel.{name}] would set one up")
        return tuple(route for route in found if route is not None)

    def acts(self, tables: Any) -> tuple[Act, ...]:
        found = [read_act(table, partial(self._complain_in, place)) for place, table in self._numbered("act", tables)]
        return tuple(act for act in found if act is not None)

    def late(self, tree: Any) -> float:
        for key in (table := self.table(tree, ("late",))):
            if key != "after":
                self.complain(("late", key), f"late has no {key!r}; it has: after")
        if table.get("after") == "never":
            return math.inf
        found = read_span(table.get("after"), partial(self.complain, ("late", "after")))
        return LATE_S if found is None else found

    def _numbered(self, name: str, tables: Any) -> list[tuple[Path, dict[str, Any]]]:
        """Tables that are written ``[[NAME]]``, each with its place; a problem inside one is told at the line of its key, or where it begins."""
        if isinstance(tables, list) and all(isinstance(table, dict) for table in tables):
            return [((name, str(number)), table) for number, table in enumerate(tables)]
        self.complain((name,), f"{name}s are tables, each written [[{name}]]")
        return []


def _meant(wrong: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(wrong, known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def parse(text: str) -> Rules:
    """The rules written as ``text``. RulesError with every problem and its line."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = getattr(error, "lineno", None) or _line_of(str(error), text)
        raise RulesError([Problem(line, f"this is not valid TOML: {str(error).split(' (at')[0]}")]) from error
    check = _Check(dict(_paths(text)), {detector.id: detector for detector in DETECTORS})
    for key in tree:
        if key not in TABLES:
            check.complain((key,), f"{key!r} is not known here{_meant(key, TABLES)}; tables are {', '.join(TABLES)}")
    channels = check.table(tree.get("channel", {}), ("channel",))
    rules = Rules(
        check.limits(tree.get("detectors", {}), ("detectors",)),
        check.scoped(tree.get("project", {}), ("project",)),
        check.scoped(tree.get("run", {}), ("run",)),
        check.routes(tree.get("route", []), {*BUILT_IN, *channels}),
        check.receivers(channels),
        check.acts(tree.get("act", [])),
        check.late(tree.get("late", {})),
    )
    if check.problems:
        raise RulesError(sorted(check.problems, key=lambda problem: problem.line))
    return rules


def _line_of(message: str, text: str) -> int:
    """The line that tomllib names in its message, or the last."""
    words = message.replace(",", " ").split()
    if "line" in words:
        return int(words[words.index("line") + 1])
    return max(text.count("\n"), 1)


_EXAMPLES = """\
# Who can be told, beside VITALS_SLACK_WEBHOOK_URL (channel "slack") and VITALS_WEBHOOK_URL (channel "webhook"):
#
#   [channel.oncall]
#   kind = "slack"
#   url_env = "ONCALL_URL"
#
# and of what; without a route every channel is told of every alarm:
#
#   [[route]]
#   channels = ["oncall"]
#   match = {project = "math*"}
#   severity = "critical"
#
# What a run that accepts it is asked because of an alarm; without dry_run = false it is only said what would have been asked:
#
#   [[act]]
#   request = "stop"
#   match = {detector = "non_finite"}
#   dry_run = false
#
# Nobody is told of what rows show that arrive long after they were logged, such as those of a spool that is sent days later:
#
#   [late]
#   after = "1h"
"""


def template() -> str:
    """A rules file that holds every threshold at its default, each with its unit and meaning, commented out."""
    lines = [_EXAMPLES, "# Thresholds of the detectors. Uncomment what should differ; `vitals rules check` tells what is wrong, by line.", ""]
    for detector in DETECTORS:
        if not detector.parameters:
            continue
        lines += [f"# {detector.title}", f"[detectors.{detector.id}]"]
        for parameter in detector.parameters:
            unit = "" if parameter.unit == "-" else f" ({parameter.unit})"
            lines.append(f"# {parameter.name} = {parameter.default!r}  # {parameter.meaning}{unit}")
        lines.append("")
    return "\n".join(lines)
