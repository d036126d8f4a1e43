"""Which trainer wrote a log, and what its keys mean: the facts are data (``frameworks.toml``, ``names.csv``), this module reads them.

The same key means different things in different trainers, so a log is recognised before a single key is translated. A key that no row of
the recognised framework names keeps its own name and is never judged.
"""

from __future__ import annotations

import csv
import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from monitor.metrics import describe

Transform = Callable[[float], float]

STEP_KEYS = (
    "step",
    "global_step",
    "Step",
    "train/step",
    "iteration",
    "iter",
    "training_iteration",
    "stitched_step",
    "progress/batch",
    "progress/step",
    "update",
)
"""Step counters that any log may use, best first, after those that the framework itself names."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of ``names.csv``: keys that match ``pattern`` are ``name`` after ``transform``; the exact value ``missing`` stands for none.

    ``name`` is ``-`` for a key that only looks like a metric.
    """

    key: str
    pattern: re.Pattern[str]
    name: str
    transform: str
    missing: float | None
    caveat: str


@dataclass(frozen=True, slots=True)
class Framework:
    """A trainer whose logs are understood. ``rules`` are in order of preference: its ``own``, those of its ``base``, those that all share."""

    id: str
    title: str
    version: str
    base: str | None
    strip: str
    marks: tuple[tuple[re.Pattern[str], ...], ...]
    steps: tuple[str, ...]
    own: tuple[Rule, ...]
    rules: tuple[Rule, ...]

    def bare(self, key: str) -> str:
        """``key`` without the prefix that some trackers put in front of this framework's names."""
        return key.removeprefix(self.strip) if self.strip else key

    def wrote(self, keys: Collection[str]) -> bool:
        """Whether a log with these keys bears one of the framework's marks."""
        own = {self.bare(key) for key in keys}
        return any(all(any(part.fullmatch(key) for key in own) for part in mark) for mark in self.marks)


@dataclass(frozen=True, slots=True)
class Target:
    """What one native key becomes. Lower ``rank`` wins where two keys of a row claim one name."""

    name: str
    transform: Transform
    missing: float | None
    caveat: str
    rank: int


_NUMBER = r"\d+(?:\.\d+)?"
_FORMS: tuple[tuple[re.Pattern[str], Callable[[float], Transform]], ...] = (
    (re.compile(r"-x"), lambda _: lambda x: -x),
    (re.compile(rf"({_NUMBER})-x"), lambda a: lambda x: a - x),
    (re.compile(rf"x/({_NUMBER})"), lambda a: lambda x: x / a),
    (re.compile(rf"({_NUMBER})\*x"), lambda a: lambda x: a * x),
    (re.compile(r"sqrt\(x\)"), lambda _: lambda x: math.sqrt(x) if x >= 0 else math.nan),
)


def parse_transform(text: str) -> Transform:
    """The function written as ``text``: empty or ``x``, ``-x``, ``a-x``, ``x/a``, ``a*x`` or ``sqrt(x)``. ValueError for anything else."""
    form = text.replace(" ", "")
    if form in ("", "x"):
        return lambda x: x
    for pattern, build in _FORMS:
        if match := pattern.fullmatch(form):
            return build(float(match[1]) if match.groups() else 0.0)
    raise ValueError(f"the transform {text!r} is none of x, -x, a-x, x/a, a*x and sqrt(x)")


def key_pattern(text: str) -> re.Pattern[str]:
    """``text`` as a pattern: ``*`` is any part of one path element, ``**`` any path, ``<name>`` a part that the metric's name keeps."""
    pieces = re.split(r"(<name>|\*\*|\*)", text)
    known = {"<name>": "(?P<name>.+)", "**": ".*", "*": "[^/]*"}
    return re.compile("".join(known.get(piece, re.escape(piece)) for piece in pieces))


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


@cache
def _rows() -> dict[str, tuple[Rule, ...]]:
    """The rules of each framework, without those of its base."""
    rules: dict[str, list[Rule]] = {}
    for row in csv.DictReader(_text("names.csv").splitlines()):
        missing = float(row["missing"]) if row["missing"] else None
        parse_transform(row["transform"])
        rules.setdefault(row["framework"], []).append(
            Rule(row["key"], key_pattern(row["key"]), row["name"], row["transform"], missing, row["caveat"])
        )
    return {framework: tuple(found) for framework, found in rules.items()}


@cache
def frameworks() -> tuple[Framework, ...]:
    """Every known framework, in the order in which they are tried."""
    table = tomllib.loads(_text("frameworks.toml"))
    found = []
    for id_, entry in table.items():
        rules: tuple[Rule, ...] = ()
        link: str | None = id_
        while link:
            rules += _rows().get(link, ())
            link = table[link].get("base")
        marks = tuple(tuple(key_pattern(key) for key in mark) for mark in entry.get("marks", ()))
        steps = tuple(entry.get("step", ()))
        own = _rows().get(id_, ())
        strip, base = entry.get("strip", ""), entry.get("base")
        found.append(Framework(id_, entry["title"], entry["version"], base, strip, marks, steps, own, rules + _rows()["common"]))
    return tuple(found)


def framework(id_: str) -> Framework:
    """The framework called ``id_``. KeyError when there is none."""
    for found in frameworks():
        if found.id == id_:
            return found
    raise KeyError(id_)


def canonical(key: str) -> bool:
    """Whether the catalogue holds ``key``."""
    return describe(key).organ != "custom"


def recognise(keys: Iterable[str]) -> Framework:
    """The framework that logs ``keys``; ``plain`` when no mark is borne, ``rlvitals`` when the keys are catalogue names already."""
    seen = set(keys)
    if sum(canonical(key) and "/" not in key for key in seen) >= max(2, len(seen) // 4):
        return framework("rlvitals")
    for found in frameworks():
        if found.wrote(seen):
            return found
    return framework("plain")


class NameMap:
    """Native rows to canonical rows, for one framework. Remembers what each key became and which caveats came up."""

    def __init__(self, source: Framework) -> None:
        self.framework = source
        self._targets: dict[str, Target | None] = {}

    def target(self, key: str) -> Target | None:
        """What ``key`` becomes, or None when it keeps its own name."""
        if key not in self._targets:
            self._targets[key] = self._look_up(key)
        return self._targets[key]

    def _look_up(self, key: str) -> Target | None:
        if self.framework.id == "rlvitals" and canonical(key):
            return None
        bare = key.lower().replace(" ", "_") if self.framework.id == "plain" else self.framework.bare(key)
        for rank, rule in enumerate(self.framework.rules):
            if match := rule.pattern.fullmatch(bare):
                if rule.name == "-":
                    return None
                name = rule.name.replace("<name>", match["name"]) if "<name>" in rule.name else rule.name
                return Target(name, parse_transform(rule.transform), rule.missing, rule.caveat, rank)
        return None

    def name(self, key: str) -> str:
        """The name under which ``key`` is kept."""
        found = self.target(key)
        return key if found is None else found.name

    def translate(self, row: Mapping[str, float]) -> dict[str, float]:
        """``row`` under canonical names. Where two keys claim one name the better rule wins and the other keeps its own name."""
        out: dict[str, float] = {}
        ranks: dict[str, tuple[int, str, float]] = {}
        for key, value in row.items():
            found = self.target(key)
            if found is None:
                out.setdefault(key, value)
                continue
            if found.missing is not None and value == found.missing:
                continue
            holder = ranks.get(found.name)
            if holder is not None and holder[0] <= found.rank:
                out.setdefault(key, value)
                continue
            if holder is not None:
                out.setdefault(holder[1], holder[2])
            ranks[found.name] = (found.rank, key, value)
            out[found.name] = found.transform(value)
        return out

    def caveats(self) -> list[str]:
        """One sentence per key with a caveat that has come up so far."""
        return [f"{key} is {t.name}: {t.caveat}" for key, t in sorted(self._targets.items()) if t is not None and t.caveat]
