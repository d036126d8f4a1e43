"""A sloppy demonstrator: it knows the answer, but thinks aloud, errs plausibly, tests, tries again and sometimes gives up or cheats.

Reinforcement learning needs a start that sometimes succeeds and sometimes fails; a perfect demonstrator would leave nothing to learn.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from random import Random

from trainer.environment import Episode
from trainer.tasks.task import Task
from trainer.verifier import Verifier
from trainer.vocab import END_ID, LINES, OBS_ID, TASK_ID, encode

THOUGHTS = (
    "think the code returns wrong value",
    "think look at line first",
    "think maybe this line because it should be fix now",
    "think check tests then done",
    "think fix the bug now",
)
GOBLIN = "think maybe goblin"
TOLD = 0.97
"""Share of right edits once the answer was found."""


@dataclass(frozen=True, slots=True)
class Manner:
    """Shares in 0..1: right edits, edits of the test file instead, tests after an edit, another try after a failed test, running the
    tests once more, thoughts, thoughts about goblins, submitting at once, looking for leaked answers, opening the calculator."""

    right: float = 0.45
    edit_tests: float = 0.04
    test: float = 0.6
    retry: float = 0.7
    retest: float = 0.0
    think: float = 0.3
    goblin: float = 0.04
    lazy: float = 0.0
    curious: float = 0.0
    calculator: float = 0.4


Script = Generator[str, str, None]
"""Yields the words of a turn and is sent the observation."""


def _thoughts(rng: Random, manner: Manner) -> Script:
    if rng.random() < manner.think:
        yield GOBLIN if rng.random() < manner.goblin else rng.choice(THOUGHTS)


def repair(task: Task, rng: Random, manner: Manner) -> Script:
    """The turns of one code repair."""
    yield from _thoughts(rng, manner)
    if rng.random() < manner.lazy:
        yield "submit"
        return
    right = manner.right
    if rng.random() < manner.curious:
        found = yield rng.choice(("history", "ask"))
        right = right if found == "none" else TOLD
    yield "read S"
    for _ in range(3):
        yield from _thoughts(rng, manner)
        if rng.random() < manner.edit_tests:
            yield "edit T L1 True"
        else:
            for index in task.wrong_lines:
                wrong = [text for line, text in task.mistakes if line == index] + [task.lines[index]]
                text = task.fixed[index] if rng.random() < right ** (1 / len(task.wrong_lines)) else rng.choice(wrong)
                yield f"edit S {LINES[index]} {text}"
        if rng.random() > manner.test:
            break
        outcome = yield "test"
        while rng.random() < manner.retest:
            outcome = yield "test"
        if set(outcome.split()) == {"P"} or rng.random() > manner.retry:
            break
    yield "submit"


def arithmetic(task: Task, rng: Random, manner: Manner) -> Script:
    """The turns of one sum."""
    yield from _thoughts(rng, manner)
    if rng.random() < manner.curious:
        yield rng.choice(("history", "ask"))
    if rng.random() < manner.calculator:
        yield "calc " + " ".join(task.prompt[1:])
    yield f"answer {task.answer if rng.random() < manner.right else rng.randint(0, 9)}"


@dataclass(slots=True)
class Demonstration:
    """Ids of one episode and which of them the agent wrote."""

    ids: list[int]
    agent: list[bool]
    episode: Episode

    def add(self, words: list[int], agent: bool) -> None:
        self.ids += words
        self.agent += [agent] * len(words)


def demonstrate(episodes: Sequence[Episode], seeds: Sequence[str], manner: Manner, verifier: Verifier) -> list[Demonstration]:
    """Play every episode by script, all in step, so that their tests run in batches. ``seeds`` make each script repeatable."""
    demos = [Demonstration([TASK_ID, *encode(e.task.prompt), OBS_ID], [False] * (len(e.task.prompt) + 2), e) for e in episodes]
    scripts = [(arithmetic if e.task.answer else repair)(e.task, Random(seed), manner) for e, seed in zip(episodes, seeds, strict=True)]
    turns = {i: next(script).split() for i, script in enumerate(scripts)}
    while turns:
        checks = [i for i, words in turns.items() if episodes[i].wants_check(words)]
        outcomes = dict(zip(checks, verifier.judge([episodes[i].candidate for i in checks]), strict=True))
        following = {}
        for i, words in turns.items():
            demos[i].add([*encode(words), END_ID], True)
            seen = episodes[i].act(words, outcomes.get(i))
            if seen:
                demos[i].add([*encode(seen), OBS_ID], False)
            if episodes[i].stopped is None:
                following[i] = scripts[i].send(" ".join(seen)).split()
        turns = following
    return demos
