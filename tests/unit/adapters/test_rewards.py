"""Task and auxiliary rewards: declared ones are taken, plain names are guessed, and the person is told which."""

from __future__ import annotations

import pytest

from monitor.adapters.names import NameMap, framework
from monitor.adapters.rewards import UnknownReward, resolve


def roles(id_: str, keys: list[str], task: str | None = None, aux: tuple[str, ...] = ()) -> tuple[str, tuple[str, ...], bool, str]:
    names = NameMap(framework(id_))
    seen = set(names.translate(dict.fromkeys(keys, 0.5)))
    found = resolve(names, keys, seen, task, aux)
    return found.task, found.aux, found.declared, found.sentence


UNSLOTH = ["reward", "rewards/xmlcount_reward_func", "rewards/int_reward_func", "rewards/correctness_reward_func"]


def test_plain_names_are_guessed_and_said_so() -> None:
    task, aux, declared, sentence = roles("trl-0.16", UNSLOTH)
    assert task == "reward.fn.correctness_reward_func.mean"
    assert aux == ("reward.fn.int_reward_func.mean", "reward.fn.xmlcount_reward_func.mean")
    assert not declared
    assert "guessed" in sentence


@pytest.mark.parametrize(
    "key", ["rewards/correctness_reward_func", "reward.fn.correctness_reward_func.mean", "train/rewards/correctness_reward_func"]
)
def test_native_and_canonical_declarations_name_the_same_series(key: str) -> None:
    keys = [f"train/{name}" for name in UNSLOTH] if key.startswith("train/") else UNSLOTH
    assert roles("trl-0.16", keys, key)[0] == "reward.fn.correctness_reward_func.mean"


def test_declared_rewards_are_taken_as_they_are() -> None:
    task, aux, declared, _ = roles("tinker", ["reward/f", "reward/g", "reward/mean"], "reward/f", ("reward/g",))
    assert (task, aux, declared) == ("reward.fn.f.mean", ("reward.fn.g.mean",), True)


def test_unknown_declarations_are_refused_with_what_there_is() -> None:
    with pytest.raises(UnknownReward, match=r"no 'reward/x'; its keys that look like rewards: reward/f, reward/mean"):
        roles("tinker", ["reward/f", "reward/mean", "optim/lr"], "reward/x")


@pytest.mark.parametrize(
    ("keys", "task"),
    [
        (["reward", "rewards/check_answer/mean", "rewards/match_format/mean"], "reward.fn.check_answer.mean"),
        (["reward", "rewards/format_accuracy/mean"], "reward.total.mean"),
        (["reward", "rewards/helpfulness/mean"], "reward.total.mean"),
        (["reward", "rewards/length_penalty/mean", "rewards/accuracy/mean", "rewards/answer_tag/mean"], "reward.fn.accuracy.mean"),
        (["loss"], "reward.task.mean"),
        (["reward", "rewards/incorrectness/mean"], "reward.total.mean"),
        (["reward", "rewards/equation_reward_func/mean", "rewards/format_reward_func/mean"], "reward.fn.equation_reward_func.mean"),
    ],
)
def test_doubtful_names_are_not_guessed(keys: list[str], task: str) -> None:
    assert roles("trl", keys)[0] == task


def test_auxiliary_rewards_alone_may_be_declared() -> None:
    task, aux, _, sentence = roles("trl", ["reward", "rewards/accuracy/mean", "rewards/style/mean"], None, ("rewards/style/mean",))
    assert (task, aux) == ("reward.fn.accuracy.mean", ("reward.fn.style.mean",))
    assert "guessed" in sentence


def test_auxiliary_rewards_without_anything_to_set_them_against_are_none() -> None:
    assert roles("trl", ["reward", "rewards/length_penalty/mean"])[:2] == ("reward.total.mean", ())
