"""Which series is the task and which only help it: declared, or guessed from names that leave no doubt, and then said so."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from monitor.adapters.names import NameMap

CANONICAL_TASK = "reward.task.mean"

_TASK = (
    "task",
    "correct",
    "accuracy",
    "check_answer",
    "answer",
    "solved",
    "solve_rate",
    "pass",
    "succe",
    "exact_match",
    "acc",
    "tests_passed",
    "verif",
    "ground_truth",
    "equation",
    "math_reward",
    "code_reward",
    "check_numbers",
)
"""Words that name a task reward, most telling first."""

_AUX = (
    "format",
    "xml",
    "tag",
    "length",
    "len",
    "style",
    "int_reward",
    "brevity",
    "think",
    "repetition",
    "language",
    "comment",
    "lint",
    "compil",
    "parse",
    "aux",
)
"""Words that name a reward which only helps."""

_FUNCTION = re.compile(r"reward\.fn\.(.+)\.mean")
_STAND_INS = ("reward.pass_rate", "reward.total.mean", "reward.shaped.mean")


@dataclass(frozen=True, slots=True)
class Roles:
    """The task series and the auxiliary ones under the names rows carry them by. ``sentence`` tells a person how that was decided."""

    task: str
    aux: tuple[str, ...]
    declared: bool
    sentence: str


class UnknownReward(ValueError):
    """A declared reward key that the log does not hold; the message names the keys it does hold."""


def _says(name: str, words: Sequence[str]) -> int | None:
    """The rank of the first of ``words`` that ``name`` contains as a word or its beginning."""
    lowered = name.lower()
    return next((rank for rank, word in enumerate(words) if re.search(rf"(?:^|[^a-z]){re.escape(word)}", lowered)), None)


def _declared(key: str, names: NameMap, native: Collection[str], seen: Collection[str]) -> str:
    """The name under which a declared ``key`` is kept."""
    if key in seen:
        return key
    for candidate in (key, names.framework.bare(key), names.framework.strip + key):
        if candidate in native and names.name(candidate) in seen:
            return names.name(candidate)
    if key in native or names.name(key) in seen:
        return names.name(key)
    rewards = sorted(k for k in native if "reward" in k.lower() or "score" in k.lower() or "acc" in k.lower())
    listed = ", ".join(rewards[:8]) or "none"
    raise UnknownReward(f"the log holds no {key!r}; its keys that look like rewards: {listed}")


def _guess(seen: Collection[str]) -> Roles:
    functions = {name: match[1] for name in seen if (match := _FUNCTION.fullmatch(name))}
    ranked = sorted((rank, name) for name, part in functions.items() if (rank := _says(part, _TASK)) is not None and _says(part, _AUX) is None)
    aux = tuple(sorted(name for name, part in functions.items() if _says(part, _AUX) is not None))
    if CANONICAL_TASK in seen:
        own = tuple(sorted(name for name in seen if name == "reward.aux.mean" or re.fullmatch(r"reward\.aux\..+\.mean", name)))
        return Roles(CANONICAL_TASK, own, True, "the log names its task and auxiliary rewards itself")
    if ranked:
        task = ranked[0][1]
        listed = ", ".join(aux) or "none"
        return Roles(task, aux, False, f"guessed from the names: task {task}, auxiliary {listed} (declare them with --task and --aux)")
    if len(aux) == len(functions):
        aux = ()  # nothing is left that they could be set against
    for name in _STAND_INS:
        if name in seen:
            return Roles(name, aux, False, f"no reward is named as the task: {name} stands in (declare it with --task)")
    return Roles(CANONICAL_TASK, (), False, "no reward is logged")


def resolve(names: NameMap, native: Collection[str], seen: Collection[str], task: str | None, aux: Sequence[str]) -> Roles:
    """The roles of a log with ``native`` keys, kept as ``seen``. UnknownReward when a declared key is not there."""
    guess = _guess(seen)
    if task is None and not aux:
        return guess
    helpers = tuple(_declared(key, names, native, seen) for key in aux)
    if task is None:
        return Roles(guess.task, helpers, False, f"auxiliary rewards as declared; {guess.sentence}")
    return Roles(_declared(task, names, native, seen), helpers, True, "task and auxiliary rewards as declared")
