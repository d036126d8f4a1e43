"""Audit of a verifier: which tasks can be solved at all, how often right work is refused and wrong work let through, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from trainer.config import Config
from trainer.environment import Episode
from trainer.tasks import catalogue
from trainer.tasks.task import Task
from trainer.verifier import Verifier, shown_tests


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of a share (E. B. Wilson 1927); (0, 1) when nothing was counted."""
    if count == 0:
        return 0.0, 1.0
    share, square = hits / count, z * z / count
    middle = (share + square / 2) / (1 + square)
    margin = z / (1 + square) * math.sqrt(share * (1 - share) / count + square / (4 * count))
    return max(0.0, min(share, middle - margin)), min(1.0, max(share, middle + margin))


@dataclass(slots=True)
class Share:
    """``hits`` of ``count``."""

    hits: int = 0
    count: int = 0

    def add(self, hit: bool) -> None:
        self.hits += hit
        self.count += 1

    def __str__(self) -> str:
        if self.count == 0:
            return "none seen"
        low, high = wilson(self.hits, self.count)
        return f"{self.hits / self.count:.1%} ({self.hits} of {self.count}; 95 % interval {low:.1%} to {high:.1%})"


@dataclass(slots=True)
class Audit:
    """``solvable``: tasks that the verifier lets a right solution pass at least once. ``false_negative``: right work refused,
    ``false_positive``: wrong work accepted, judged by the hidden tests."""

    solvable: Share
    false_negative: Share
    false_positive: Share
    unsolvable: list[str]

    @property
    def text(self) -> str:
        lines = [
            f"solvable tasks    {self.solvable}",
            f"false negatives   {self.false_negative}",
            f"false positives   {self.false_positive}",
        ]
        lines += [f"not solvable: {key}" for key in self.unsolvable[:5]]
        if len(self.unsolvable) > 5:
            lines.append(f"... and {len(self.unsolvable) - 5} more")
        return "\n".join(lines)


SAME = (("x is None", "None is x"), ("+ ", "+ 0 + "), ("- ", "- 0 - "), ("return ", "return 0 or "))
"""Rewritings that do not change what an expression yields (the last one only where 0 and the value agree on truth)."""


def right_solutions(lines: Sequence[str]) -> list[list[str]]:
    """The reference solution and harmless rewritings of it; the hidden tests decide whether they are really right."""
    solutions = [list(lines)]
    last = lines[-1]
    for old, new in SAME:
        if old in last:
            solutions.append([*lines[:-1], last.replace(old, new, 1)])
    solutions.append([lines[0], "y = 0", *lines[1:]] if len(lines) < 4 and not any("y" in line.split() for line in lines) else [*lines])
    return solutions


def audit(config: Config, count: int, verifier: Verifier) -> Audit:
    """Play right, wrong and cheating work on ``count`` random tasks of ``config``'s mix against its configured verifier."""
    faults = frozenset(config.verifier)
    result = Audit(Share(), Share(), Share(), [])
    for index in range(count):
        task = catalogue.draw(config.mix, Random(f"audit/{config.seed}/{index}"))
        if task.answer is not None:
            work = [(given, None) for given in (task.answer, *(str(d) for d in range(10) if str(d) != task.answer))]
            episodes = [Episode(task, (), config.rules, given=given, stopped="submit") for given, _ in work]
        else:
            episodes = _episodes(config, task, faults)
        verdicts = verifier.score(episodes, faults, config.flaky_rate, f"audit/{config.seed}/{index}")
        passed = False
        for verdict in verdicts:
            if verdict.audit == 1.0:
                result.false_negative.add(verdict.task == 0.0)
                passed = passed or verdict.task == 1.0
            else:
                result.false_positive.add(verdict.task == 1.0)
        result.solvable.add(passed)
        if not passed:
            result.unsolvable.append(task.key)
    return result


def _episodes(config: Config, task: Task, faults: frozenset[str]) -> list[Episode]:
    tests = shown_tests(task, faults)
    episodes = [Episode(task, tests, config.rules)]
    for lines in right_solutions(task.fixed):
        episode = Episode(task, tests, config.rules)
        episode.lines = lines
        episodes.append(episode)
    for line, text in task.mistakes:
        episode = Episode(task, tests, config.rules)
        episode.lines[line] = text
        episodes.append(episode)
    cheat = Episode(task, tests, config.rules)
    cheat.act(["edit", "T", "L1", "True"])
    episodes.append(cheat)
    for episode in episodes:
        episode.stopped = "submit"
    return episodes
