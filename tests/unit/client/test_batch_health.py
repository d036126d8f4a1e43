from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from monitor.client.batch_health import BatchHealth, Reading
from tests.unit.client import reference

torch.set_num_threads(1)
DTYPES = [torch.float32, torch.bfloat16]


def close(got: Mapping[str, float], expected: Mapping[str, float]) -> None:
    """Same names; same values up to float64 rounding of sums; NaN equals NaN."""
    assert {name for name in expected if name not in got} == set()
    for name, value in expected.items():
        assert got[name] == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), name


def drawn(seed: int, rows: int, columns: int, dtype: torch.dtype, spread: float = 0.3) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(scale: float) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * scale

    logp = -normal(1.0).abs()
    return {
        "logp": logp.to(dtype),
        "behaviour_logp": (logp + normal(spread)).to(dtype),
        "mask": torch.rand(rows, columns, generator=generator) > 0.4,
        "old_logp": (logp + normal(spread)).to(dtype),
        "ref_logp": (logp + normal(spread)).to(dtype),
        "entropy": normal(1.0).abs().to(dtype),
        "advantages": torch.randn(rows, generator=generator).to(dtype),
        "removed": torch.rand(rows, columns, generator=generator) > 0.9,
    }


def expected_of(batch: Mapping[str, torch.Tensor]) -> tuple[dict[str, float], dict[str, list[int]]]:
    as_numpy = {name: (t.double().numpy() if t.is_floating_point() else t.numpy()) for name, t in batch.items()}
    with np.errstate(all="ignore"):
        return reference.token_metrics(
            as_numpy["logp"],
            as_numpy["behaviour_logp"],
            as_numpy["mask"],
            as_numpy["old_logp"],
            as_numpy["ref_logp"],
            as_numpy["entropy"],
            as_numpy["advantages"],
            as_numpy["removed"],
            0.2,
            0.28,
        )


def measured(*batches: Mapping[str, torch.Tensor]) -> Reading:
    health = BatchHealth(eps_low=0.2, eps_high=0.28)
    for batch in batches:
        health.observe(**batch)
    health.pack(7)
    reading = health.collect()
    assert reading is not None and reading.step == 7
    return reading


@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 6), columns=st.integers(1, 12), cut=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_random_batches_equal_the_reference_however_they_are_split(dtype: torch.dtype, seed: int, rows: int, columns: int, cut: int) -> None:
    batch = drawn(seed, rows, columns, dtype)
    values, hists = expected_of(batch)
    whole = measured(batch)
    close(whole.values, values)
    assert {name: whole.hists[name] for name in hists} == hists
    parts = [{name: t[i : i + cut] for name, t in batch.items()} for i in range(0, rows, cut)]
    close(measured(*parts).values, values)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_log_ratio_of_90_is_reported_as_the_weight_it_is(dtype: torch.dtype) -> None:
    batch = drawn(1, 4, 8, dtype)
    batch["mask"][:] = True
    batch["logp"][2, 3], batch["behaviour_logp"][2, 3] = -1.0, -91.0
    values, _ = expected_of(batch)
    got = measured(batch).values
    close(got, values)
    assert got["iw.max"] == pytest.approx(math.exp(90), rel=1e-12)
    assert got["iw.ess"] == pytest.approx(1 / 32, rel=1e-6)


def test_a_log_ratio_beyond_float64_is_infinite() -> None:
    batch = drawn(1, 2, 4, torch.float32)
    batch["mask"][:] = True
    batch["behaviour_logp"][0, 0] = -1000.0
    assert measured(batch).values["iw.max"] == math.inf


@pytest.mark.parametrize("field", ["logp", "behaviour_logp", "old_logp", "ref_logp", "entropy"])
def test_nan_in_a_trained_token_is_reported_and_elsewhere_has_no_influence(field: str) -> None:
    batch = drawn(3, 4, 6, torch.float32)
    batch["mask"][1, 2], batch["mask"][0, 0] = True, False
    values, _ = expected_of(batch)
    batch[field][0, 0] = math.nan
    close(measured(batch).values, values)
    batch[field][1, 2] = math.nan
    with_nan = measured(batch).values
    close(with_nan, expected_of(batch)[0])
    assert any(math.isnan(value) for value in with_nan.values())


def test_nan_outlives_later_micro_batches() -> None:
    first, second = drawn(1, 2, 4, torch.float32), drawn(2, 2, 4, torch.float32)
    first["mask"][:] = second["mask"][:] = True
    first["logp"][0, 0] = math.nan
    got = measured(first, second).values
    assert math.isnan(got["iw.max"]) and math.isnan(got["iw.min"]) and math.isnan(got["iw.mean"]) and not math.isnan(got["entropy.mean"])


def test_without_trained_tokens_there_is_no_metric_but_their_number() -> None:
    batch = drawn(1, 3, 4, torch.float32)
    batch["mask"][:] = False
    reading = measured(batch)
    assert reading.values == {"batch.tokens": 0.0}
    assert reading.hists == {}


def test_one_token_is_a_batch() -> None:
    batch = {name: t[:1, :1] if t.dim() == 2 else t[:1] for name, t in drawn(5, 1, 1, torch.float32).items()}
    batch["mask"][:] = True
    close(measured(batch).values, expected_of(batch)[0])


def test_a_sequence_without_trained_tokens_has_no_sequence_weight() -> None:
    batch = drawn(6, 3, 5, torch.float32)
    batch["mask"][:] = True
    batch["mask"][1] = False
    batch["behaviour_logp"][1] = -500.0
    close(measured(batch).values, expected_of(batch)[0])


def test_an_empty_micro_batch_changes_nothing() -> None:
    batch = drawn(8, 3, 5, torch.float32)
    nothing = {name: t[:0] for name, t in batch.items()}
    close(measured(batch, nothing).values, expected_of(batch)[0])


@given(seed=st.integers(0, 2**31), rows=st.integers(1, 5), columns=st.integers(1, 20), vocab=st.sampled_from([2, 5, 100_000]))
@settings(max_examples=60, deadline=None)
def test_repetition_equals_the_reference(seed: int, rows: int, columns: int, vocab: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocab, (rows, columns), generator=generator)
    mask = torch.rand(rows, columns, generator=generator) > 0.2
    health = BatchHealth(vocab)
    health.observe_batch(token_ids=ids, mask=mask)
    health.pack()
    reading = health.collect()
    assert reading is not None
    close(reading.values, reference.repetition(ids.numpy(), mask.numpy()))


@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=st.integers(0, 2**31), count=st.integers(1, 24), size=st.integers(1, 8), longest=st.sampled_from([3, 200, 4096]))
@settings(max_examples=40, deadline=None)
def test_batches_of_rollouts_equal_the_reference(dtype: torch.dtype, seed: int, count: int, size: int, longest: int) -> None:
    rng = np.random.default_rng(seed)
    task = rng.choice([0.0, 0.5, 1.0], count)
    style = torch.tensor(rng.normal(size=count)).to(dtype)
    advantages = torch.tensor(rng.normal(size=count) * rng.choice([0.0, 1.0, 5.0], count)).to(dtype)
    groups = [i // size for i in range(count)]
    lengths = rng.integers(0, longest + 1, count)
    truncated, stale = rng.random(count) > 0.7, rng.integers(0, 9, count)
    health = BatchHealth()
    health.observe_batch(
        {"task": task.tolist(), "style": style},
        groups,
        advantages=advantages,
        lengths=lengths.tolist(),
        truncated=truncated.tolist(),
        staleness=stale.tolist(),
    )
    health.pack()
    reading = health.collect()
    assert reading is not None
    values, hists = reference.batch_metrics(task, style.double().numpy(), groups, advantages.double().numpy(), lengths, truncated, stale)
    close(reading.values, values)
    assert reading.hists == hists


def test_long_completions_are_told_within_their_fine_bin() -> None:
    lengths = [5000, 40_000, 40_000, 100_000, 900_000]
    health = BatchHealth()
    health.observe_batch(lengths=lengths)
    health.pack()
    reading = health.collect()
    assert reading is not None
    assert reading.values["len.completion.max"] == 900_000
    assert reading.values["len.completion.p50"] == pytest.approx(40_000, rel=0.011)
    assert sum(reading.hists["len.completion.hist"]) == 5


def test_absent_is_not_zero() -> None:
    health = BatchHealth()
    health.observe_batch({"style": [1.0, 2.0]})
    health.pack(grad_norm=0.5)
    reading = health.collect()
    assert reading is not None
    assert reading.values.keys() == {
        *("opt.grad_norm", "batch.sequences", "reward.aux.mean", "reward.aux.style.mean"),
        *("reward.total.mean", "reward.total.std", "reward.total.max", "reward.total.min"),
    }
    assert health.collect() is None
    health.pack()
    again = health.collect()
    assert again is not None and again.values == {}


def test_values_that_a_critic_explains() -> None:
    returns, mask = torch.tensor([[1.0, 2.0, 3.0, 9.0]]), torch.tensor([[1, 1, 1, 0]])
    health = BatchHealth()
    health.observe(torch.zeros(1, 4), None, mask, values=returns - torch.tensor([[0.5, 0.0, -0.5, 4.0]]), returns=returns)
    health.pack()
    reading = health.collect()
    assert reading is not None
    assert reading.values["value.explained_var"] == pytest.approx(1 - (0.5 / 3) / (2 / 3))
    assert reading.values["value.mean"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mask": torch.ones(2, 3)}, "mask (2, 3) must have the shape of logp (2, 4)"),
        ({"advantages": torch.ones(3)}, "advantages (3,) must be (2, 4) or (2,)"),
        ({"logp": torch.ones(8)}, "logp must be [B, T], not (8,)"),
    ],
)
def test_a_wrong_shape_is_named(change: dict[str, torch.Tensor], sentence: str) -> None:
    given_ = {"logp": torch.zeros(2, 4), "behaviour_logp": torch.zeros(2, 4), "mask": torch.ones(2, 4)} | change
    with pytest.raises(ValueError, match=r".") as raised:
        BatchHealth().observe(**given_)
    assert sentence in str(raised.value)


def test_columns_of_different_lengths_are_named() -> None:
    with pytest.raises(ValueError, match="one entry per rollout"):
        BatchHealth().observe_batch({"task": [1.0, 0.0]}, [1, 1, 1])


class NoSync(TorchDispatchMode):
    """Counts the operations that would make a host wait for its accelerator."""

    WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal", "is_nonzero", "bincount", "_assert_async")

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.waits: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = str(func)
        self.calls += 1
        boolean = name.startswith(("aten.index.", "aten.index_put")) and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
        if boolean or any(name.startswith(f"aten.{wait}") for wait in self.WAITS):
            self.waits.append(name)
        return func(*args, **(kwargs or {}))


def test_the_hot_path_never_waits_for_the_device() -> None:
    batch = drawn(1, 8, 16, torch.bfloat16)
    ids = torch.randint(0, 100, (8, 16))
    health = BatchHealth(100)
    rewards = {"task": torch.ones(8), "style": torch.zeros(8)}
    with NoSync() as counted:
        for _ in range(2):
            health.observe(**batch, token_ids=ids, values=batch["entropy"], returns=batch["entropy"])
        health.observe_batch(
            rewards,
            torch.arange(8) // 4,
            audit=torch.ones(8),
            advantages=batch["advantages"],
            truncated=torch.zeros(8, dtype=torch.bool),
            staleness=torch.ones(8),
            mask=batch["mask"],
            turns=torch.ones(8),
            tool_calls=torch.ones(8),
            tool_failures=torch.zeros(8),
            errors=torch.zeros(8),
        )
        health.pack(0, grad_norm=torch.tensor(1.0), loss=torch.tensor(0.5), lr=1e-3, extra={"opt.policy_loss": torch.tensor(0.1)})
    assert counted.calls > 100
    assert counted.waits == []
    reading = health.collect()
    assert reading is not None and reading.values["opt.grad_norm"] == 1.0 and reading.values["opt.policy_loss"] == pytest.approx(0.1)


def test_the_counter_sees_a_wait() -> None:
    x = torch.ones(3)
    with NoSync() as counted:
        x[x > 0].sum().item()
    assert len(counted.waits) == 2


def test_gradients_are_neither_needed_nor_touched() -> None:
    batch = drawn(1, 2, 3, torch.float32)
    batch["logp"].requires_grad_()
    health = BatchHealth()
    health.observe(**batch)
    assert batch["logp"].grad is None
    health.pack(grad_norm=batch["logp"].sum())
    assert health.collect() is not None


def share(task: list[float], style: list[float], groups: list[int]) -> float | None:
    health = BatchHealth()
    health.observe_batch({"task": task, "style": style}, groups)
    health.pack(0)
    reading = health.collect()
    assert reading is not None
    return reading.values.get("reward.aux.share")


def test_the_auxiliary_share_says_which_reward_tells_the_samples_of_a_group_apart() -> None:
    assert share([1, 0, 1, 0], [0.3, 0.3, 0.1, 0.1], [0, 0, 1, 1]) == pytest.approx(0.0, abs=1e-12)
    assert share([1, 1, 0, 0], [0.3, 0.0, 0.0, 0.3], [0, 0, 1, 1]) == pytest.approx(1.0)
    assert share([1, 0], [-1.0, 0.0], [0, 0]) is None, "they cancel: nothing is told apart"
    assert share([0.1, 0.1, 0.1], [0.2, 0.2, 0.2], [0, 0, 0]) is None
