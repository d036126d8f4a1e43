"""Every task of every family: the start fails at least one test, the fix passes all four, and all of it can be said in the vocabulary."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from trainer import vocab
from trainer.tasks import arithmetic, catalogue, repair
from trainer.tasks.task import Task, source


def outcomes(task: Task, lines: tuple[str, ...]) -> list[bool]:
    space: dict[str, Any] = {}
    exec(source(lines), space)
    return [bool(eval(test, space)) for test in task.tests]


@pytest.mark.parametrize("family", repair.FAMILIES)
def test_start_fails_and_fix_passes(family: str) -> None:
    for seed in range(60):
        task = repair.draw(family, Random(seed))
        assert len(task.tests) == 4
        assert all(outcomes(task, task.fixed)), task.key
        assert not all(outcomes(task, task.lines)), task.key
        for text in (*task.prompt, *task.lines, *task.fixed, *task.tests, *(mistake for _, mistake in task.mistakes)):
            assert vocab.decode(vocab.encode(text)) == text


def test_running_example() -> None:
    task = repair.RUNNING_EXAMPLE
    assert outcomes(task, task.lines) == [True, False, True, True]
    assert all(outcomes(task, task.fixed))
    assert task.wrong_lines == (1,)


def test_draw_is_a_function_of_the_generator() -> None:
    mix = dict.fromkeys(catalogue.FAMILIES, 1.0)
    assert [catalogue.draw(mix, Random(7)).key for _ in range(3)] == [catalogue.draw(mix, Random(7)).key] * 3
    assert len({catalogue.draw(mix, Random(seed)).family for seed in range(200)}) == len(catalogue.FAMILIES)


@pytest.mark.parametrize(("words", "value"), [("3 + 5", 8), ("9 - 4 + 1", 6), ("2", 2), ("3 +", None), ("+ 3", None), ("3 x 4", None), ("", None)])
def test_sums(words: str, value: int | None) -> None:
    assert arithmetic.evaluate(words.split()) == value
