"""Sums of three single digits whose result is a single digit: answered from the head, though a calculator page is there to be opened."""

from __future__ import annotations

from random import Random

from trainer.tasks.task import Task


def evaluate(words: list[str]) -> int | None:
    """The value of ``d (+|-) d ...``, or None when ``words`` is no such sum."""
    if len(words) % 2 == 0 or not all(word.isdigit() for word in words[::2]) or not all(word in "+-" for word in words[1::2]):
        return None
    value = int(words[0])
    for sign, digit in zip(words[1::2], words[2::2], strict=True):
        value += int(digit) if sign == "+" else -int(digit)
    return value


def draw(family: str, rng: Random) -> Task:
    """A random sum; ``sum2`` has two digits, ``sum3`` three."""
    count = int(family[-1])
    while True:
        words = [str(rng.randint(0, 9))]
        for _ in range(count - 1):
            words += [rng.choice("+-"), str(rng.randint(0, 9))]
        value = evaluate(words)
        if value is not None and 0 <= value <= 9:
            return Task(family, count - 1, ("compute", *words), answer=str(value))
