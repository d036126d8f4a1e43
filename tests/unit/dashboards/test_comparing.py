"""What a comparison is made of: settings with their announced changes, groups of runs, where a metric ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dashboards.grouping import Line, keys, known, lines
from dashboards.outcome import Outcome, lived, outcome
from dashboards.pages.compare import key_metrics
from dashboards.settings_of import differences, settings_of
from monitor.store.queries import EventView, RunView
from monitor.store.series import Curve

AT = datetime(2026, 11, 30, tzinfo=UTC)


def run(uid: str, **changes: Any) -> RunView:
    plain: dict[str, Any] = dict.fromkeys(RunView.__dataclass_fields__)
    plain |= {"uid": uid, "shown": uid.upper(), "signal": "reward", "aux_rewards": (), "tags": (), "config": {}, "environment": {}}
    return RunView(**(plain | changes))


def regime(step: int | None, **detail: Any) -> EventView:
    return EventView(1, 0, step, AT, "regime", detail)


def test_settings_are_flat_and_carry_their_announced_changes() -> None:
    one = run("a", config={"aux": {"word": 0.0}, "fault": {"patch": {"aux.word": 0.5}}}, environment={"pid": 7, "git": "3f"}, algorithm="grpo")
    assert settings_of(one, [regime(10, **{"aux.word": 0.5}), regime(None, clip="off")]) == {
        "aux.word": "0.0, 0.5 from step 10",
        "fault.patch.aux.word": "0.5",
        "clip": "not set, off later",
        "algorithm": "grpo",
        "signal": "reward",
        "environment.git": "3f",
    }
    many = settings_of(run("b", config={"lr": 1}), [regime(step, lr=step) for step in (1, 2, 3)])
    assert many["lr"] == "1, …, 2 from step 2, 3 from step 3"


def test_only_what_differs_is_told_the_environment_last() -> None:
    first, other = {"lr": "1", "kl": "0", "environment.git": "a"}, {"lr": "2", "kl": "0", "aux.word": "0.5", "environment.git": "b"}
    assert [(each.name, each.values) for each in differences([first, other])] == [
        ("aux.word", (None, "0.5")),
        ("lr", ("1", "2")),
        ("environment.git", ("a", "b")),
    ]


def test_runs_are_grouped_by_any_setting_a_tag_or_the_algorithm() -> None:
    runs = [
        run("a", config={"lr": 1, "seed": 0}, tags=("x", "y")),
        run("b", config={"lr": 1, "seed": 1}, tags=("x",), algorithm="ppo"),
        run("c", config={"seed": 2}),
    ]
    assert keys(runs) == ["lr", "seed", "tag", "algorithm"]
    assert lines(runs) == [Line("A", ("a",)), Line("B", ("b",)), Line("C", ("c",))]
    assert lines(runs, "lr") == [Line("lr 1 (n = 2)", ("a", "b")), Line("lr not set (n = 1)", ("c",))]
    assert [line.name for line in lines(runs, "tag")] == ["tag x (n = 2)", "tag y (n = 1)", "tag no tag (n = 1)"]
    assert [line.name for line in lines(runs, "algorithm")] == ["algorithm not named (n = 2)", "algorithm ppo (n = 1)"]
    assert known(runs, "lr") and not known(runs, "nothing")


def test_a_metric_ends_at_the_mean_of_its_last_finite_points_without_what_was_lived_again() -> None:
    crashed = Curve([0, 1, 2, 3], [0.0, 0.1, 9.0, 9.0], [], [], [])
    resumed = Curve([2, 3, 4], [0.2, None, 0.4], [], [], [(3, "NaN")])
    assert lived({1: resumed, 0: crashed}) == ({0: 0.0, 1: 0.1, 2: 0.2, 4: 0.4}, None)
    assert outcome("reward.task.mean", {0: crashed, 1: resumed}) == Outcome((0.0 + 0.1 + 0.2 + 0.4) / 4, 0.4)
    assert outcome("entropy.mean", {0: Curve([0], [None], [], [], [(0, "NaN")])}) == Outcome(None, None, "NaN")
    assert outcome("entropy.mean", {}) is None


def test_the_rewards_that_runs_are_made_of_are_compared() -> None:
    logged = ["entropy.mean", "reward.aux.word.mean", "reward.fn.tests.mean", "reward.task.mean", "my.own"]
    assert key_metrics(logged, [run("a", task_reward="reward.fn.tests.mean")]) == [
        "reward.task.mean",
        "reward.fn.tests.mean",
        "reward.aux.word.mean",
        "entropy.mean",
    ]
