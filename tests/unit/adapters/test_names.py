"""The name tables are sound, trainers are told apart, and traps of single keys are sprung."""

from __future__ import annotations

import csv
import math
import tomllib
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.adapters import names
from monitor.adapters.names import NameMap, framework, frameworks, parse_transform, recognise
from monitor.metrics import describe

ROWS = list(csv.DictReader(resources.files("monitor.adapters").joinpath("names.csv").read_text("utf-8").splitlines()))


def test_every_row_leads_to_a_catalogue_name() -> None:
    for row in ROWS:
        parse_transform(row["transform"])
        assert row["name"] == "-" or describe(row["name"].replace("<name>", "part")).organ != "custom", row
        assert ("<name>" in row["name"]) <= ("<name>" in row["key"]), row


def test_no_key_is_named_twice_for_one_framework() -> None:
    keys = [(row["framework"], row["key"]) for row in ROWS]
    assert len(keys) == len(set(keys))


def test_no_exact_key_is_taken_by_a_pattern_before_it() -> None:
    for found in frameworks():
        names_ = NameMap(found)
        for row in ROWS:
            if row["framework"] == found.id and "*" not in row["key"] and "<name>" not in row["key"] and row["name"] != "-":
                assert names_.name(found.strip + row["key"]) == row["name"], row


def test_every_framework_of_the_tables_is_described() -> None:
    table = tomllib.loads(resources.files("monitor.adapters").joinpath("frameworks.toml").read_text("utf-8"))
    assert {row["framework"] for row in ROWS} <= {*table, "common"}
    assert all(entry.get("base", "hf") in table for entry in table.values())


@pytest.mark.parametrize("text", ["__import__('os')", "x+1", "x**2", "1/x", "eval(x)", "--x", "x/1e3", "lambda x: x"])
def test_only_known_transforms_are_accepted(text: str) -> None:
    with pytest.raises(ValueError, match="is none of"):
        parse_transform(text)


@given(x=st.floats())
def test_transforms_do_what_they_say(x: float) -> None:
    def same(found: float, wanted: float) -> bool:
        return found == wanted or (math.isnan(found) and math.isnan(wanted))

    assert same(parse_transform("")(x), x)
    assert same(parse_transform("-x")(x), -x)
    assert same(parse_transform("1-x")(x), 1 - x)
    assert same(parse_transform("x/100")(x), x / 100)
    assert same(parse_transform("sqrt(x)")(x), math.sqrt(x) if x >= 0 else math.nan)


@pytest.mark.parametrize(
    ("keys", "id_"),
    [
        (["completions/mean_length", "frac_reward_zero_std", "kl"], "trl"),
        (["train/completions/mean_length", "train/global_step", "train/kl"], "trl"),
        (["completion_length", "rewards/f", "reward", "kl", "reward_std"], "trl-0.16"),
        (["completions/mean_length", "sample/staleness_mean", "kl"], "trl-async"),
        (["completions/mean_length", "global_step/max_steps"], "ms-swift"),
        (["actor/ppo_kl", "critic/score/mean"], "verl"),
        (["actor/policykl", "critic/score/mean"], "roll"),
        (["train/vllm_kl", "train/ppo_clip_ratio"], "openrlhf"),
        (["mismatch_kl/all/mean", "optim/lr"], "prime-rl"),
        (["train/agg/all/solver/reward/mean"], "prime-rl"),
        (["policy/loss_metrics/clip_ratio", "policy/policy_loss"], "skyrl"),
        (["rollout/raw_reward", "train/loss"], "slime"),
        (["train/token_mult_prob_error", "train/loss"], "nemo-rl"),
        (["ppo_actor/task_reward/avg"], "areal"),
        (["optim/kl_sample_train_v1", "optim/lr"], "tinker"),
        (["objective/kl0_avg", "val/ratio"], "open-instruct"),
        (["env_runners/episode_return_mean"], "rllib"),
        (["rollout/ep_rew_mean", "train/loss"], "sb3"),
        (["loss", "learning_rate", "epoch"], "hf"),
        (["reward.task.mean", "entropy.mean", "whatever"], "rlvitals"),
        (["loss", "reward"], "plain"),
    ],
)
def test_trainers_are_told_apart(keys: list[str], id_: str) -> None:
    assert recognise(keys).id == id_


@pytest.mark.parametrize(
    ("id_", "native", "expected"),
    [
        ("trl", {"sampling/importance_sampling_ratio/max": 3.0}, {"iw_applied.max": 3.0}),
        ("trl", {"kl": 0.1}, {"kl_ref.k3": 0.1}),
        ("trl-async", {"kl": 0.1}, {"mismatch.kl.k3": 0.1}),
        ("trl-rloo", {"kl": -0.1}, {"kl_ref.k1": -0.1}),
        ("trl", {"completions/mean_terminated_length": 0.0}, {}),
        ("trl", {"rewards/a/b/mean": 1.0}, {"reward.fn.a/b.mean": 1.0}),
        ("verl", {"rollout_corr/rollout_is_max": 2.0}, {"iw_applied.max": 2.0}),
        ("verl", {"val-core/math/acc/mean@1": 0.5}, {"eval.math/acc/mean@1": 0.5}),
        ("roll", {"actor/policykl": 0.25}, {"update.kl_old.k1": -0.25}),
        ("roll", {"actor/max_len_mask_ratio": 0.75}, {"len.truncated_frac": 0.25}),
        ("sb3", {"train/entropy_loss": -1.5}, {"entropy.mean": 1.5}),
        ("prime-rl", {"perf/mfu": 40.0}, {"perf.mfu": 0.4}),
        ("nemo-rl", {"baseline_reward/pct_0": 25.0}, {"group.all_fail_frac": 0.25}),
        ("nemo-rl", {"train/probs_ratio_max": -1.0}, {}),
        ("open-instruct", {"objective/kl2_avg": 0.01, "val/stop_rate": 0.9}, {"kl_ref.k3": 0.01, "len.truncated_frac": pytest.approx(0.1)}),
        ("slime", {"rollout/rewards": 0.0}, {"rollout/rewards": 0.0}),
        ("tinker", {"env/all/total_turns": 9.0, "env/all/correct": 0.5}, {"env/all/total_turns": 9.0, "reward.fn.correct.mean": 0.5}),
        ("plain", {"my_metric": 1.0, "reward": 2.0}, {"my_metric": 1.0, "reward.total.mean": 2.0}),
    ],
)
def test_keys_become_what_they_mean(id_: str, native: dict[str, float], expected: dict[str, float]) -> None:
    assert NameMap(framework(id_)).translate(native) == expected


def test_the_better_key_wins_and_the_other_keeps_its_name() -> None:
    prime = NameMap(framework("prime-rl"))
    row = {"train/math/all/solver/reward/mean": 0.25, "train/agg/all/solver/reward/mean": 0.5}
    for order in (row, dict(reversed(row.items()))):
        out = prime.translate(order)
        assert out["reward.total.mean"] == 0.5
        assert out["train/math/all/solver/reward/mean"] == 0.25


def test_no_two_frameworks_claim_one_log() -> None:
    """A framework's own rows alone must not be taken for another trainer's: marks are checked in order, so an earlier one may steal."""
    for found in frameworks():
        for mark in found.marks:
            keys = [part.pattern.replace("[^/]*", "a").replace("\\", "") for part in mark]
            assert recognise(keys).id == found.id, (found.id, keys)


def test_reading_the_tables_is_lazy() -> None:
    assert names.frameworks() is names.frameworks()
