"""Laws of the losses: what they have in common on policy, where the clip takes the gradient away, and that observations have no influence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainer import losses
from trainer.losses import Surrogate

ROWS, LENGTH = 6, 9

Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Surrogate]
SURROGATES: dict[str, Loss] = {
    "reinforce": lambda logp, old, a, m: losses.reinforce(logp, a, m),
    "ppo": lambda logp, old, a, m: losses.ppo(logp, old, a, m, 0.2, 0.28, 3.0),
    "token": losses.token_weighted,
    "sequence": losses.sequence_weighted,
    "gspo": lambda logp, old, a, m: losses.gspo(logp, old, a, m, 3e-4, 4e-4),
    "gspo_token": lambda logp, old, a, m: losses.gspo_token(logp, old, a, m, 3e-4, 4e-4),
    "cispo": lambda logp, old, a, m: losses.cispo(logp, old, a, m, 0.28),
    "ctpo": lambda logp, old, a, m: losses.ctpo(logp, old, a, m, 0.2, 0.28),
}


def batch(seed: int, *, spread: float = 0.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """logp (a leaf with gradient), old, advantage (one per row) and mask (at least one token per row), in double precision."""
    rng = torch.Generator().manual_seed(seed)
    logp = -torch.rand(ROWS, LENGTH, generator=rng, dtype=torch.float64) * 3
    old = logp + spread * torch.randn(ROWS, LENGTH, generator=rng, dtype=torch.float64)
    advantage = torch.randn(ROWS, 1, generator=rng, dtype=torch.float64).expand(ROWS, LENGTH)
    mask = torch.rand(ROWS, LENGTH, generator=rng) < 0.6
    mask[:, 2] = True
    return logp.requires_grad_(), old, advantage, mask


def gradient(loss: Tensor, logp: Tensor) -> Tensor:
    return torch.autograd.grad(loss, logp)[0]


@given(st.integers(0, 10_000))
def test_on_policy_gradients_agree(seed: int) -> None:
    logp, old, a, m = batch(seed)
    grads = {name: gradient(losses.sequence_mean(f(logp, old.detach(), a, m).loss, m), logp) for name, f in SURROGATES.items()}
    for name in ("ppo", "token", "sequence", "gspo_token", "cispo", "ctpo"):
        torch.testing.assert_close(grads[name], grads["reinforce"])
    torch.testing.assert_close(grads["gspo"], grads["reinforce"])


@given(st.integers(0, 10_000))
def test_ppo_gradient_is_zero_exactly_where_clipped(seed: int) -> None:
    logp, old, a, m = batch(seed, spread=0.6)
    part = losses.ppo(logp, old, a, m, 0.2, 0.28)
    ratio = (logp - old).exp()
    expected = m & (((ratio > 1.28) & (a > 0)) | ((ratio < 0.8) & (a < 0)))
    assert torch.equal(part.clipped, expected)
    grad = gradient(losses.token_mean(part.loss, m), logp)
    assert torch.equal(grad == 0, expected | ~m)


@given(st.integers(0, 10_000))
def test_dual_clip_bounds_the_loss_of_bad_tokens(seed: int) -> None:
    logp, old, a, m = batch(seed, spread=3.0)
    assert (losses.ppo(logp, old, a, m, 0.2, 0.2, 3.0).loss <= torch.where(a < 0, 3.0 * a.abs(), torch.inf)).all()


@given(st.integers(0, 10_000))
def test_cispo_keeps_the_gradient_of_clipped_tokens(seed: int) -> None:
    logp, old, a, m = batch(seed, spread=0.6)
    part = losses.cispo(logp, old, a, m, 0.28)
    grad = gradient(losses.token_mean(part.loss, m), logp)
    torch.testing.assert_close(grad[part.clipped], (-1.28 * a / m.sum())[part.clipped])
    assert (grad[m & (a != 0)] != 0).all()


@given(st.integers(0, 10_000))
def test_gspo_ratio_is_the_geometric_mean(seed: int) -> None:
    logp, old, a, m = batch(seed, spread=0.3)
    ones = torch.ones_like(a)
    part = losses.gspo(logp, old, ones, m, 10.0, 10.0)
    for row in range(ROWS):
        ratios = (logp - old)[row][m[row]].exp()
        torch.testing.assert_close(-part.loss[row][m[row]], ratios.log().mean().exp().expand(int(m[row].sum())))
    n = m.sum(1, keepdim=True)
    s = -part.loss.amin(1, keepdim=True)
    wide = losses.gspo(logp, old, a, m, 10.0, 10.0)
    grad = gradient(losses.sequence_mean(wide.loss, m), logp)
    torch.testing.assert_close(grad, torch.where(m, -s * a / (ROWS * n), 0.0))


@given(st.integers(0, 10_000))
def test_ctpo_bounds_widen_with_the_root_of_the_position(seed: int) -> None:
    logp, old, a, m = batch(seed, spread=0.4)
    part = losses.ctpo(logp, old, a, m, 0.2, 0.28)
    for row in range(ROWS):
        total, position = 0.0, 0
        for t in range(LENGTH):
            if m[row, t]:
                position += 1
                total += float((logp.detach() - old)[row, t])
                bound = position**0.5
                out = (total > 0.28 * bound and a[row, t] > 0) or (total < -0.2 * bound and a[row, t] < 0)
                assert bool(part.clipped[row, t]) == out
    grad = gradient(losses.token_mean(part.loss, m), logp)
    assert (grad[part.clipped] == 0).all()


@pytest.mark.parametrize("name", SURROGATES)
@given(st.integers(0, 10_000))
def test_masked_tokens_have_no_influence(name: str, seed: int) -> None:
    logp, old, a, m = batch(seed, spread=0.5)
    noisy = torch.where(m, logp.detach(), torch.tensor(float("nan"), dtype=torch.float64)).requires_grad_()
    other = torch.where(m, old, torch.tensor(float("inf"), dtype=torch.float64))
    for mean in (losses.token_mean, losses.sequence_mean, lambda x, k: losses.constant_mean(x, k, 32.0)):
        clean = mean(SURROGATES[name](logp, old, a, m).loss, m)
        dirty = mean(SURROGATES[name](noisy, other, a, m).loss, m)
        torch.testing.assert_close(dirty, clean)


@given(st.lists(st.floats(-4, 4), min_size=4, max_size=4), st.lists(st.floats(-4, 4), min_size=4, max_size=4))
def test_kl_estimators_by_enumeration(one: list[float], two: list[float]) -> None:
    p, q = (torch.tensor(x, dtype=torch.float64).log_softmax(0) for x in (one, two))
    kl = (p.exp() * (p - q)).sum()
    torch.testing.assert_close((p.exp() * losses.k1(p, q)).sum(), kl)
    torch.testing.assert_close((p.exp() * losses.k3(p, q)).sum(), kl, atol=1e-9, rtol=1e-7)
    assert (losses.k3(p.float(), q.float()) >= 0).all() and (losses.k2(p, q) >= 0).all()
    torch.testing.assert_close((q.exp() * (p - q).exp()).sum(), torch.tensor(1.0, dtype=torch.float64))


def test_means_weigh_as_they_say() -> None:
    loss, mask = torch.tensor([[1.0, 3.0, 5.0], [10.0, 7.0, 7.0]]), torch.tensor([[True, True, True], [True, False, False]])
    assert losses.token_mean(loss, mask).item() == pytest.approx(19 / 4)
    assert losses.sequence_mean(loss, mask).item() == pytest.approx((3 + 10) / 2)
    assert losses.constant_mean(loss, mask, 32.0).item() == pytest.approx(19 / 64)
