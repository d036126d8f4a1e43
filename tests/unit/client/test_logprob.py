from __future__ import annotations

import math

import pytest
import torch

from monitor.client.logprob import chunked_logp_entropy

torch.set_num_threads(1)


def naive(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    log_probs = torch.log_softmax((hidden @ weight.t()).double() / temperature, -1)
    return log_probs.gather(-1, targets[..., None]).squeeze(-1), -(log_probs.exp() * log_probs).sum(-1)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients_equal_the_naive_ones(chunk: int, temperature: float) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(3, 8, 16, requires_grad=True)
    weight = torch.randn(50, 16, requires_grad=True)
    targets = torch.randint(0, 50, (3, 8))
    mix = torch.randn(3, 8), torch.randn(3, 8)
    found = chunked_logp_entropy(hidden, weight, targets, chunk=chunk, temperature=temperature)
    expected = naive(hidden, weight, targets, temperature)
    for got, want in zip(found, expected, strict=True):
        assert got.shape == targets.shape
        torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-5)
    gradients = torch.autograd.grad(sum((one * scale).sum() for one, scale in zip(found, mix, strict=True)), [hidden, weight])
    wanted = torch.autograd.grad(sum((one * scale).sum() for one, scale in zip(expected, mix, strict=True)), [hidden, weight])
    for got, want in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-4)


def test_bfloat16_inputs_give_float32_results_near_the_exact_ones() -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(64, 32).bfloat16(), (torch.randn(200, 32) * 0.3).bfloat16()
    targets = torch.randint(0, 200, (64,))
    hidden.requires_grad_()
    logp, entropy = chunked_logp_entropy(hidden, weight, targets, chunk=16)
    exact = naive(hidden.float(), weight.float(), targets, 1.0)
    assert logp.dtype == entropy.dtype == torch.float32
    torch.testing.assert_close(logp.double(), exact[0], atol=0.05, rtol=0.02)
    torch.testing.assert_close(entropy.double(), exact[1], atol=0.05, rtol=0.02)
    logp.sum().backward()
    assert hidden.grad is not None and hidden.grad.dtype == torch.bfloat16


def test_a_certain_token_has_no_entropy_and_finite_gradients() -> None:
    hidden = torch.tensor([[1000.0, 0.0]], requires_grad=True)
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1e30, 0.0]])
    logp, entropy = chunked_logp_entropy(hidden, weight, torch.tensor([0]))
    assert logp.item() == 0.0 and entropy.item() == 0.0
    (logp + entropy).sum().backward()
    assert hidden.grad is not None and hidden.grad.isfinite().all()


def test_a_hidden_state_of_nan_stays_nan() -> None:
    logp, entropy = chunked_logp_entropy(torch.full((1, 2), math.nan), torch.ones(3, 2), torch.tensor([0]))
    assert math.isnan(logp.item()) and math.isnan(entropy.item())


def test_no_tokens_give_no_values() -> None:
    logp, entropy = chunked_logp_entropy(torch.ones(0, 2), torch.ones(3, 2), torch.zeros(0, dtype=torch.int64))
    assert logp.shape == entropy.shape == (0,)


@pytest.mark.parametrize(
    ("hidden", "weight", "targets", "options", "sentence"),
    [
        ((2, 3, 4), (5, 4), (2, 2), {}, "differ in their leading dimensions"),
        ((2, 4), (5, 3), (2,), {}, r"weight must be \[V, 4\]"),
        ((2, 4), (5, 4), (2,), {"chunk": 0}, "chunk must be at least 1"),
        ((2, 4), (5, 4), (2,), {"temperature": 0.0}, "temperature must be above 0"),
    ],
)
def test_a_wrong_shape_is_named(hidden: tuple[int, ...], weight: tuple[int, ...], targets: tuple[int, ...], options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        chunked_logp_entropy(torch.ones(hidden), torch.ones(weight), torch.zeros(targets, dtype=torch.int64), **options)
