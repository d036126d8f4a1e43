"""Laws of advantages: what groups without spread say, what does not change them, and GAE against its definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainer import advantages as adv

rewards = st.lists(st.floats(-5, 5, width=32), min_size=8, max_size=8)


@pytest.mark.parametrize("estimate", [adv.group_normalised, adv.group_centred, adv.leave_one_out])
@pytest.mark.parametrize("level", [0.0, 1.0, 0.2, 1.2000000476837158])
def test_no_spread_no_advantage(estimate: object, level: float) -> None:
    assert not estimate(torch.full((16,), level), 8).any()  # type: ignore[operator]


@given(rewards, st.floats(0.5, 3), st.floats(-3, 3))
def test_group_normalised(values: list[float], scale: float, shift: float) -> None:
    r = torch.tensor(values, dtype=torch.float64)
    if r.std() < 0.05:
        return
    a = adv.group_normalised(r, 8)
    assert abs(a.mean()) < 1e-6 and a.std(correction=0) == pytest.approx(1, abs=1e-3)
    torch.testing.assert_close(adv.group_normalised(r * scale + shift, 8), a, atol=1e-3, rtol=1e-3)


@given(rewards)
def test_leave_one_out(values: list[float]) -> None:
    r = torch.tensor(values, dtype=torch.float64)
    expected = torch.stack([r[i] - (r.sum() - r[i]) / 7 for i in range(8)])
    torch.testing.assert_close(adv.leave_one_out(r, 8), expected, atol=1e-9, rtol=1e-9)


def episode(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    mask = torch.rand(3, 11, generator=rng) < 0.5
    mask[:, 4] = True
    r = torch.where(mask, torch.randn(3, 11, generator=rng, dtype=torch.float64), 0.0)
    return r, torch.randn(3, 11, generator=rng, dtype=torch.float64), mask


@given(st.integers(0, 10_000))
def test_gae_telescopes_at_one(seed: int) -> None:
    r, v, m = episode(seed)
    a, returns = adv.gae(r, v, m, 1.0, 1.0)
    torch.testing.assert_close(a, torch.where(m, adv.to_go(r, m) - v, 0.0))
    torch.testing.assert_close(returns, adv.to_go(r, m))


@given(st.integers(0, 10_000), st.floats(0.5, 1), st.floats(0, 1))
def test_gae_equals_its_definition(seed: int, gamma: float, lam: float) -> None:
    r, v, m = episode(seed)
    a, _ = adv.gae(r, v, m, gamma, lam)
    for row in range(3):
        at = m[row].nonzero().flatten().tolist()
        errors = [r[row, t] + gamma * (v[row, at[i + 1]] if i + 1 < len(at) else 0.0) - v[row, t] for i, t in enumerate(at)]
        for i, t in enumerate(at):
            expected = sum((gamma * lam) ** k * error for k, error in enumerate(errors[i:]))
            assert float(a[row, t]) == pytest.approx(float(expected), abs=1e-9)
    assert not a[~m].any()


@given(st.integers(0, 10_000))
def test_gae_at_zero_is_the_td_error(seed: int) -> None:
    r, v, m = episode(seed)
    a, _ = adv.gae(r, v, m, 1.0, 0.0)
    for row in range(3):
        last = int(m[row].nonzero().max())
        assert float(a[row, last]) == pytest.approx(float(r[row, last] - v[row, last]))


@given(st.integers(0, 10_000))
def test_whitened(seed: int) -> None:
    r, _, m = episode(seed)
    if m.sum() > 3:
        w = adv.whitened(r, m)[m]
        assert abs(w.mean()) < 1e-9 and w.std(correction=0) == pytest.approx(1, abs=1e-4)
