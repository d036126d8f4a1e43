"""What surrounds the rules: causes, settings' names, regimes, resumes, organs, stalls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from monitor.detect import examples, fold, pace
from monitor.detect.contract import Context, Row
from monitor.detect.examples import AT, Example
from tests.unit.detect.streams import alarms, first, walk

Change = Callable[[int, dict[str, float]], dict[str, float]]


def _falling(age: int, row: dict[str, float]) -> float:
    return row["reward.task.mean"] * (0.9 if age == 0 else 0.4)


CAUSES: dict[str, Change] = {
    "stale rollouts": lambda age, row: {"stale.mean": 8.0, "iw.ess": 0.2, "kl_ref.k3": row["kl_ref.k3"] * 5, "reward.task.mean": _falling(age, row)},
    "learning rate too high": lambda age, row: {"opt.lr": 2e-5, "iw.ess": 0.2, "opt.grad_norm": 30.0, "entropy.mean": row["entropy.mean"] * 3},
    "sampler and trainer disagree": lambda age, row: {
        "mismatch.kl.k3": 0.3,
        "entropy.mean": row["entropy.mean"] * 2,
        "reward.task.mean": _falling(age, row),
    },
    "auxiliary reward farmed": lambda age, row: {"reward.aux.mean": 0.7 + 0.4 * age, "entropy.mean": row["entropy.mean"] * min(3, 1 + 0.1 * age)},
    "verifier cheated": lambda age, row: {"reward.audit.mean": 0.05},
    "verifier or environment broke": lambda age, row: {"reward.task.mean": 0.0, "reward.audit.mean": row["reward.audit.mean"]},
    "entropy pushed up": lambda age, row: {"entropy.mean": row["entropy.mean"] * min(8, 1.3**age), "len.completion.mean": 400 * min(3, 1.1**age)},
    "updates too large": lambda age, row: {"opt.grad_norm": 30.0, "iw.ess": 0.1, "kl_ref.k3": row["kl_ref.k3"] * 20},
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_named_by_the_first_alarm(name: str) -> None:
    found = alarms(walk(Example("", "", CAUSES[name]).rows()))
    assert found[0][0] <= AT + 8
    first = [f.cause.split(":")[0] for i, f in found if i == found[0][0]]
    assert set(first) == {name}


def test_a_verifier_that_breaks_without_an_audit_is_told_from_a_policy_that_breaks() -> None:
    rows = Example("", "", lambda age, row: {"reward.task.mean": 0.0}).rows()
    for row in rows:
        del row["reward.audit.mean"]
    first = alarms(walk(rows))[0][1]
    assert (first.detector, first.cause.split(":")[0]) == ("peak_and_fall", "verifier or environment broke")


def test_advice_names_the_setting_of_the_runs_framework() -> None:
    example = examples.FIRES["entropy_high"]
    by_framework = {}
    for framework in (None, "trl", "verl", "unheard-of"):
        found = alarms(walk(example.rows(), Context(framework=framework)))
        by_framework[framework] = next(f for _, f in found if f.detector == "entropy_high").advice
    assert "`epsilon_high`" in by_framework["trl"] and "`beta`" in by_framework["trl"]
    assert "`actor_rollout_ref.actor.kl_loss_coef`" in by_framework["verl"]
    assert by_framework[None] == by_framework["unheard-of"] and "`" not in by_framework[None]
    configured = alarms(walk(example.rows(), Context(config={"framework": "trl"})))
    assert any("`beta`" in f.advice for _, f in configured)


def longer(age: int, row: dict[str, float]) -> dict[str, float]:
    return {"len.completion.mean": row["len.completion.mean"] * 4, "entropy.mean": row["entropy.mean"] * 2}


def test_an_announced_regime_begins_new_baselines() -> None:
    rows = Example("", "", longer).rows()
    assert alarms(walk(rows))
    state = fold.initial()
    for i, values in enumerate(rows):
        if i == AT:
            state = fold.new_regime(state)
        state, findings = fold.observe(state, Row(i, i, values), Context())
        assert not [f for f in findings if f.severity in ("warning", "critical")]
    assert state["rows"] == len(rows)


def test_absolute_rules_stay_on_through_a_regime() -> None:
    state = fold.new_regime(fold.initial())
    state, findings = fold.observe(state, Row(0, 0, {"opt.loss": float("inf")}), Context())
    assert [f.detector for f in findings] == ["non_finite"]


def test_the_first_rows_after_a_resume_raise_no_alarm_by_themselves() -> None:
    def odd(age: int, row: dict[str, float]) -> dict[str, float]:
        return {"iw.ess": 0.1, "opt.grad_norm": row["opt.grad_norm"] * 12} if age < 2 else {}

    rows = Example("", "", odd).rows()
    steps = [i if i < AT else i - 20 for i in range(len(rows))]
    assert alarms(walk(rows)) and not alarms(walk(rows, steps=steps))


def test_organs_say_what_was_seen_what_is_solved_and_what_cannot_be_judged() -> None:
    state = fold.initial()
    for i in range(30):
        values = {k: v for k, v in examples.healthy(i).items() if not k.startswith("env.")}
        state, _ = fold.observe(state, Row(i, i, {**values, "reward.task.mean": 0.98}), Context())
    seen = fold.organs(state, Context())
    assert seen["reward"].state == "solved" and "0.98" in seen["reward"].sentence
    assert seen["policy"].state == "healthy" and "entropy" in seen["policy"].sentence
    assert seen["behaviour"].state == "cannot judge" and "env.error_frac or env.tool_fail_frac" in seen["behaviour"].sentence
    assert any("eval.task.mean" in reason for reason in seen["reward"].reasons)
    taught = dataclasses.replace(Context(), signal="teacher_kl")
    assert fold.organs(state, taught)["reward"].state == "cannot judge"
    assert any("teacher_kl" in line for line in fold.cannot_judge(state, taught))


def test_a_run_that_learns_from_a_teacher_is_judged_by_its_reward_only_where_it_falls() -> None:
    taught = Context(signal="teacher_kl")
    rows = [{**examples.healthy(i), "reward.task.mean": 0.0, "reward.audit.mean": 0.0, "adv.nonzero_frac": 0.0} for i in range(60)]
    assert alarms(walk(rows))
    assert not alarms(walk(rows, taught))
    assert {f.detector for _, f in alarms(walk(examples.FIRES["peak_and_fall"].rows(), taught))} == {"peak_and_fall"}


def test_small_batches_are_given_more_room() -> None:
    """The same drop of two rows is an alarm with 1024 rollouts and none with 8."""

    def rows(sequences: float) -> list[dict[str, float]]:
        made = Example("", "", lambda age, row: {"reward.task.mean": 0.38} if age in (0, 1) else {}).rows()
        return [{**row, "batch.sequences": sequences} for row in made]

    def heard(sequences: float) -> bool:
        return any(f.detector == "peak_and_fall" for _, f in alarms(walk(rows(sequences))))

    assert heard(1024) and not heard(8)


def test_a_stall_is_measured_against_the_runs_own_pace() -> None:
    assert pace.stalled(100, 1) is None
    assert pace.stalled(130, 1) == "critical"
    assert pace.stalled(300, 60) == "warning"
    assert pace.stalled(299, 60) is None
    assert pace.stalled(600, 60) == "critical"


def test_a_signal_that_dies_with_the_entropy_converged_too_early_and_one_that_never_was_lacks_contrast() -> None:
    def why(decay: float) -> str:
        rows = [{"reward.task.mean": 0.02, "entropy.mean": 0.4 * decay**i, "adv.nonzero_frac": 0.1} for i in range(30)]
        found = first(walk(rows), "no_signal")
        assert found is not None
        return found[1].cause.partition(":")[0]

    assert why(0.88) == "premature convergence"
    assert why(1.0) == "groups without contrast"


def test_a_fall_from_the_very_first_rows_needs_a_batch_that_can_show_it() -> None:
    def falls(sequences: float) -> list[int]:
        values = (0.58, 0.28, 0.19, 0.22, 0.11, 0.06, 0.2, 0.16)
        rows = [{"reward.task.mean": value, "batch.sequences": sequences} for value in values]
        return [i for i, finding in alarms(walk(rows)) if finding.detector == "peak_and_fall"]

    assert falls(64)[0] == 4
    assert falls(8) == []


def test_the_first_updates_that_leave_the_reference_are_told_only_with_a_dip() -> None:
    def told(values: tuple[float, ...]) -> bool:
        rows = [{"reward.task.mean": value, "kl_ref.k3": 0.6, "batch.sequences": 64.0} for value in values]
        return first(walk(rows), "kl_acceleration") is not None

    assert told((0.38, 0.05, 0.06, 0.03, 0.03))
    assert not told((0.38, 0.4, 0.42, 0.39, 0.45)), "a resumed run is far from its reference and well"


def test_a_single_odd_batch_is_watched_and_what_leaps_or_lasts_is_told() -> None:
    def told(rows: int, factor: float) -> bool:
        def odd(age: int, row: dict[str, float]) -> dict[str, float]:
            if age >= rows:
                return {}
            return {"iw.ess": 0.05, "mismatch.kl.k3": 0.4, "kl_ref.k3": row["kl_ref.k3"] * factor, "opt.grad_norm": row["opt.grad_norm"] * 4.5}

        return bool(alarms(walk(Example("", "", odd).rows())))

    assert not told(1, 5.0)
    assert told(2, 5.0) and told(1, 40.0)


def test_a_gradient_with_two_modes_is_not_out_of_range_in_its_upper_one() -> None:
    """Small batches have rows without a signal, whose gradient is a fraction of the others'."""

    def told(norm: float) -> bool:
        def small(age: int, row: dict[str, float]) -> dict[str, float]:
            usual = row["opt.grad_norm"] * (2 if age // 4 % 3 == 0 else 0.05)
            return {"opt.grad_norm": norm, "iw.ess": 0.2} if 40 <= age < 43 else {"opt.grad_norm": usual}

        return any(f.detector == "grad_spike" for _, f in alarms(walk(Example("", "", small, at=0).rows())))

    assert told(20.0) and not told(0.5)


def test_a_dip_of_a_small_batch_takes_more_rows() -> None:
    """Answers are cut while the reward is low for ``rows`` rows: of 16 rollouts both are made by one hard prompt."""

    def told(sequences: float, rows: int) -> bool:
        def hard(age: int, row: dict[str, float]) -> dict[str, float]:
            return {"len.truncated_frac": 0.3, "reward.task.mean": 0.35} if age < rows else {}

        found = [{**row, "batch.sequences": sequences} for row in Example("", "", hard).rows()]
        return any(f.detector == "length_runaway" for _, f in alarms(walk(found)))

    assert told(64, 2)
    assert not told(16, 2) and told(16, 8)


def test_an_odd_batch_that_moved_the_policy_no_further_than_usual_is_watched() -> None:
    def told(moved: float) -> bool:
        def odd(age: int, row: dict[str, float]) -> dict[str, float]:
            if age:
                return {}
            return {"iw.ess": 0.05, "kl_ref.k3": row["kl_ref.k3"] * 40, "opt.grad_norm": row["opt.grad_norm"] * 20, "update.kl_old.k3": moved}

        return bool(alarms(walk(Example("", "", odd).rows())))

    assert told(0.4) and not told(0.004)


def test_stale_batches_whose_updates_stay_small_are_watched() -> None:
    def told(moved: float) -> bool:
        def stale(age: int, row: dict[str, float]) -> dict[str, float]:
            return {"iw.ess": 0.55, "kl_ref.k3": row["kl_ref.k3"] * 6, "update.kl_old.k3": moved} if age < 4 else {}

        return bool(alarms(walk(Example("", "", stale).rows())))

    assert told(0.1) and not told(0.001)


def test_what_rambling_rollouts_do_is_one_sign_until_it_lasts_and_lies_far_out() -> None:
    """Length and repetition for ``rows`` rows while the task stands: how far is far depends on the size of the batch."""

    def told(sequences: float, length: float, median: float = 390.0, rows: int = 8) -> bool:
        def rambling(age: int, row: dict[str, float]) -> dict[str, float]:
            typical = {"batch.sequences": sequences, "len.completion.p50": median}
            return (
                {**typical, "len.completion.mean": length, "rep.ngram_frac": 0.5}
                if 20 <= age < 20 + rows
                else {**typical, "len.completion.p50": 380.0}
            )

        quiet = {"rep.ngram_frac": 0.05, "batch.sequences": sequences, "len.completion.p50": 380.0}
        found = [
            {**quiet, **row} if i < AT else row for i, row in enumerate(Example("", "", lambda age, row: {**quiet, **rambling(age, row)}).rows())
        ]
        return bool(alarms(walk(found)))

    assert not told(16, 900.0) and not told(64, 900.0) and told(256, 900.0)
    assert told(64, 1300.0) and not told(64, 1300.0, rows=3)
    assert told(16, 900.0, median=800.0)


def test_entropy_that_costs_some_reward_is_watched_and_one_that_costs_a_quarter_is_told() -> None:
    def told(task: float) -> bool:
        def pushed(age: int, row: dict[str, float]) -> dict[str, float]:
            return {"entropy.mean": row["entropy.mean"] * 1.9, "reward.task.mean": row["reward.task.mean"] * task} if age < 3 else {}

        return any(f.detector == "entropy_high" for _, f in alarms(walk(Example("", "", pushed).rows())))

    assert told(0.68) and not told(0.82)


def test_a_task_that_begins_with_little_signal_is_given_time_unless_the_policy_narrows() -> None:
    def first_alarm(decay: float) -> int:
        rows = [{"reward.task.mean": 0.02, "entropy.mean": 0.4 * decay**i, "adv.nonzero_frac": (0.5, 0.4, 0.4, *[0.125] * 30)[i]} for i in range(30)]
        found = first(walk(rows), "no_signal")
        assert found is not None
        return found[0]

    assert first_alarm(0.9) < 11 < first_alarm(1.0)


def test_prompts_are_solved_by_the_groups_of_several_rows() -> None:
    rows = [
        {"reward.task.mean": 0.95, "adv.nonzero_frac": 0.25 * (i % 6 == 5), "group.all_pass_frac": 1 - 0.75 * (i % 6 == 5), "entropy.mean": 0.2}
        for i in range(40)
    ]
    assert not alarms(walk(rows))


def test_a_refused_update_is_watched_and_refusals_that_go_on_are_told() -> None:
    def told(rows: int, task: float = 1.0) -> bool:
        def refused(age: int, row: dict[str, float]) -> dict[str, float]:
            return {"opt.skipped": float(age < rows), "reward.task.mean": row["reward.task.mean"] * (task if age < 8 else 1)}

        return any(f.detector == "refused_updates" for _, f in alarms(walk(Example("", "", refused).rows())))

    assert not told(1) and told(3) and told(2, task=0.7)
