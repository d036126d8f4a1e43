"""Code repair: one function, one wrong line (or two), four tests. Every family says in its prompt what the function should do."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from trainer.tasks.task import Task

Body = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...], tuple[str, ...]]
"""Prompt words, wrong body, right body, (argument, expected value) pairs, plausible mistakes in the line that is wrong."""


def _other(rng: Random, *taken: int, low: int = 0, high: int = 9) -> int:
    return rng.choice([d for d in range(low, high + 1) if d not in taken])


def _retry(rng: Random, x: str) -> Body:
    """The running example: 0 should switch retries off, but ``or`` turns it into the default."""
    d = rng.randint(1, 9)
    e = _other(rng, d, low=1)
    good = f"return {d} if {x} is None else {x}"
    tests = (("None", str(d)), ("0", "0"), (str(e), str(e)), (str(_other(rng, d, e, low=1)),) * 2)
    return ("zero", "off", "default", str(d)), (f"return {x} or {d}",), (good,), tests, (f"return {x} and {d}", f"return {e} if {x} is None else {x}")


def _default(rng: Random, x: str) -> Body:
    d = rng.randint(1, 9)
    bad, e = _other(rng, d), _other(rng, d)
    tests = (("None", str(d)), ("0", "0"), (str(e), str(e)), (str(d), str(d)))
    wrong = (f"return {_other(rng, d, bad)} if {x} is None else {x}", f"return {x} or {d}")
    return ("default", "to", str(d)), (f"return {bad} if {x} is None else {x}",), (f"return {d} if {x} is None else {x}",), tests, wrong


def _boundary(rng: Random, x: str) -> Body:
    d, include, less = rng.randint(1, 8), rng.random() < 0.5, rng.random() < 0.5
    strict, loose = ("<", "<=") if less else (">", ">=")
    good, bad = (loose, strict) if include else (strict, loose)
    tests = tuple(
        (str(v), str(v == d if include and v == d else (v < d if less else v > d))) for v in (d, d - 1, d + 1, _other(rng, d - 1, d, d + 1))
    )
    wrong = (f"return {x} {'>' if less else '<'} {d}", f"return {x} {good} {_other(rng, d)}")
    return ("include" if include else "exclude", str(d)), (f"return {x} {bad} {d}",), (f"return {x} {good} {d}",), tests, wrong


def _membership(rng: Random, x: str) -> Body:
    a, b = rng.sample(range(10), 2)
    allow = rng.random() < 0.5
    inside, outside = f"return {x} in [ {a} , {b} ]", f"return {x} not in [ {a} , {b} ]"
    good, bad = (inside, outside) if allow else (outside, inside)
    tests = tuple((str(v), str((v in (a, b)) == allow)) for v in (a, b, _other(rng, a, b), _other(rng, a, b)))
    word = good.split()[2:-5]
    wrong = (f"return {x} {' '.join(word)} [ {a} , {_other(rng, a, b)} ]", f"return {x} == {a}" if allow else f"return {x} != {a}")
    return ("allow" if allow else "deny", str(a), str(b)), (bad,), (good,), tests, wrong


def _limit(rng: Random, x: str) -> Body:
    d, most = rng.randint(2, 7), rng.random() < 0.5
    good, bad = ("min", "max") if most else ("max", "min")
    limit = min if most else max
    values = (d, _other(rng, d, high=d), _other(rng, d, low=d), _other(rng, d))
    tests = tuple((str(v), str(limit(v, d))) for v in values)
    wrong = (f"return {good} ( {x} , {_other(rng, d)} )", f"return {good} ( {d} )")
    return ("most" if most else "least", str(d)), (f"return {bad} ( {x} , {d} )",), (f"return {good} ( {x} , {d} )",), tests, wrong


def _sign(rng: Random, x: str) -> Body:
    d, add = rng.randint(1, 5), rng.random() < 0.5
    good, bad = ("+", "-") if add else ("-", "+")
    values = rng.sample(range(10 - d), 4) if add else rng.sample(range(d, 10), 4)
    tests = tuple((str(v), str(v + d if add else v - d)) for v in values)
    wrong = (f"return {x} {good} {_other(rng, d, low=1)}", f"return {x} * {d}")
    return ("add" if add else "subtract", str(d)), (f"return {x} {bad} {d}",), (f"return {x} {good} {d}",), tests, wrong


def _between(rng: Random, x: str) -> Body:
    """Both limits swapped: longer to write than the easy families."""
    a = rng.randint(1, 4)
    b = rng.randint(a + 1, 8)
    tests = tuple((str(v), str(max(min(v, b), a))) for v in (0, 9, a, b))
    good, bad = f"return max ( min ( {x} , {b} ) , {a} )", f"return max ( min ( {x} , {a} ) , {b} )"
    wrong = (f"return min ( {x} , {b} )", f"return max ( min ( {x} , {b} ) , {_other(rng, a)} )")
    return ("between", str(a), str(b)), (bad,), (good,), tests, wrong


def _pair(rng: Random, x: str) -> Body:
    """Two lines are wrong, each as in an easy family."""
    d, e = rng.randint(1, 3), rng.randint(5, 7)
    values = (0, e - d, e - d + 1, 4)
    tests = tuple((str(v), str(min(v + d, e))) for v in values)
    bad, good = (f"y = {x} - {d}", f"return max ( y , {e} )"), (f"y = {x} + {d}", f"return min ( y , {e} )")
    return ("add", str(d), "most", str(e)), bad, good, tests, (f"y = {x} + {_other(rng, d, low=1)}", f"return min ( y , {_other(rng, e)} )")


FAMILIES: dict[str, tuple[int, Callable[[Random, str], Body]]] = {
    "retry": (1, _retry),
    "default": (1, _default),
    "boundary": (1, _boundary),
    "membership": (1, _membership),
    "limit": (1, _limit),
    "sign": (1, _sign),
    "between": (2, _between),
    "pair": (3, _pair),
}
"""Name -> (difficulty, generator)."""

DISTRACTED = 0.4
"""Share of one-line tasks that carry a line without effect before the wrong one."""


def draw(family: str, rng: Random) -> Task:
    """A random task of ``family``."""
    difficulty, make = FAMILIES[family]
    x = rng.choice(("x", "n", "v", "k", "a"))
    prompt, bad, good, tests, mistakes = make(rng, x)
    head: tuple[str, ...] = (f"def f ( {x} ) :",)
    if len(bad) == 1 and rng.random() < DISTRACTED:
        head += (f"y = {rng.randint(0, 9)}",)
    lines = head + bad
    where = [len(head) + (i if len(bad) > 1 else 0) for i in range(len(mistakes))]
    return Task(
        family,
        difficulty,
        ("repair", *prompt),
        lines,
        head + good,
        tuple(f"f ( {argument} ) == {value}" for argument, value in tests),
        tuple(zip(where, mistakes, strict=True)),
    )


RUNNING_EXAMPLE = Task(
    "retry",
    1,
    ("repair", "zero", "off", "default", "3"),
    ("def f ( x ) :", "return x or 3"),
    ("def f ( x ) :", "return 3 if x is None else x"),
    ("f ( None ) == 3", "f ( 0 ) == 0", "f ( 5 ) == 5", "f ( 1 ) == 1"),
    ((1, "return x and 3"), (1, "return 5 if x is None else x")),
)
"""A retry setting: 0 should disable retries, but the code returns 3; the other cases must stay as they are."""
