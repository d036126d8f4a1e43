from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from monitor.client.guard import Guard, Policy
from monitor.client.updates import update_norm_squared

torch.set_num_threads(1)


class Notes:
    def __init__(self) -> None:
        self.events: list[tuple[str, int | None, dict[str, Any]]] = []

    def event(self, kind: str, step: int | None = None, **detail: Any) -> None:
        self.events.append((kind, step, detail))


def trained(gate: Guard, updates: int, *, lr: float = 1e-3, grad_norm: float = 1.0) -> None:
    """Let ``updates`` ordinary updates pass."""
    for step in range(updates):
        optimizer = ready(lr)
        assert gate.check(step, optimizer, grad_norm=grad_norm * (1 + step % 3), advantages=torch.tensor([1.0, -1.0])).go


def ready(lr: float = 1e-3) -> torch.optim.Optimizer:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    model(torch.ones(1, 3)).sum().backward()
    return optimizer


OPTIMIZERS = [
    (torch.optim.AdamW, {"weight_decay": 0.0, "betas": (0.9, 0.95)}),
    (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.AdamW, {"weight_decay": 0.0, "foreach": True}),
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9}),
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.3}),
]


@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS)
def test_the_coming_update_is_what_the_optimizer_then_does(kind: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = kind(model.parameters(), lr=0.01, **options)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(5, 4)).square().sum().backward()
        foretold = math.sqrt(update_norm_squared(optimizer).item())
        before = torch.cat([p.detach().clone().flatten() for p in model.parameters()])
        optimizer.step()
        after = torch.cat([p.detach().flatten() for p in model.parameters()])
        assert foretold == pytest.approx((after - before).norm().item(), rel=1e-4)


def test_ordinary_updates_pass() -> None:
    notes = Notes()
    gate = Guard(notes)
    trained(gate, 30)
    assert gate.skipped == 0 and notes.events == []


def test_a_jump_of_the_learning_rate_is_skipped_and_noted_with_its_reason() -> None:
    notes = Notes()
    gate = Guard(notes)
    trained(gate, 10)
    optimizer = ready(lr=0.08)
    decision = gate.check(10, optimizer, grad_norm=1.0)
    assert decision.verdict == "skip" and not decision.go and not decision.halt
    assert any("size of the coming update" in reason and "80 times" in reason for reason in decision.reasons)
    ((kind, step, detail),) = notes.events
    assert (kind, step, detail["in_a_row"]) == ("skip", 10, 1)
    assert detail["evidence"]["lr"] == 0.08 and detail["reasons"] == list(decision.reasons)


def test_a_warm_up_of_the_learning_rate_passes() -> None:
    gate = Guard()
    for step in range(100):
        optimizer = ready(lr=1e-3 * (step + 1) / 100)
        assert gate.check(step, optimizer).go


def test_weights_are_judged_raw_and_only_where_the_mask_counts() -> None:
    gate = Guard(policy=Policy(max_weight=100.0))
    log_weights, mask = torch.zeros(2, 3), torch.ones(2, 3)
    log_weights[1, 2] = 90.0
    decision = gate.check(log_weights=log_weights, mask=mask)
    assert decision.verdict == "skip" and "1.22e+39 is above 100" in decision.reasons[0]
    mask[1, 2] = 0
    assert gate.check(log_weights=log_weights, mask=mask).go
    assert gate.check(log_weights=torch.tensor([0.0, 4.0]), mask=mask).go
    assert not gate.check(log_weights=torch.tensor([5.0, 0.0]), mask=mask).go
    assert gate.check(log_weights=log_weights, mask=torch.zeros(2, 3)).go


def test_the_mean_distance_from_the_sampler_is_bounded() -> None:
    """k3 of KL(sampler || policy): the mean of w - 1 - log w over the tokens that count."""
    log_weights, mask = torch.tensor([[0.3, -0.2, 5.0]]), torch.tensor([[1, 1, 0]])
    drift = (math.exp(0.3) - 1.3 + math.exp(-0.2) - 0.8) / 2
    assert Guard(policy=Policy(max_drift=drift * 1.001)).check(log_weights=log_weights, mask=mask).go
    refused = Guard(policy=Policy(max_drift=drift * 0.999)).check(log_weights=log_weights, mask=mask)
    assert refused.verdict == "skip" and "mean distance from the sampler" in refused.reasons[0]
    assert refused.evidence["drift"] == pytest.approx(drift)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("field", ["loss", "grad_norm", "log_weights", "advantages"])
def test_a_number_that_is_not_finite_is_skipped_or_halts(field: str, value: float) -> None:
    given: Any = torch.tensor([[value, 0.0]]) if field in ("log_weights", "advantages") else value
    decision = Guard().check(**{field: given})
    assert decision.verdict == "skip" and ("nan" in decision.reasons[0] or "inf" in decision.reasons[0])
    assert Guard(policy=Policy(nonfinite="halt")).check(**{field: given}).halt
    assert Guard(policy=Policy(nonfinite="go")).check(**{field: given}).go


def test_what_was_refused_does_not_become_usual_and_too_many_refusals_halt() -> None:
    notes = Notes()
    gate = Guard(notes, Policy(halt_after=3))
    trained(gate, 10)
    verdicts = [gate.check(step, grad_norm=500.0).verdict for step in range(3)]
    assert verdicts == ["skip", "skip", "halt"]
    assert [kind for kind, _, _ in notes.events] == verdicts
    assert "3 updates in a row were refused" in notes.events[-1][2]["reasons"]
    assert gate.take_skipped() == 3 and gate.take_skipped() == 0 and gate.skipped == 3


def test_a_gradient_of_zero_in_healthy_steps_makes_no_later_step_a_jump() -> None:
    gate = Guard()
    for step in range(10):
        assert gate.check(step, grad_norm=0.0).go
    assert gate.check(10, grad_norm=0.5).go


def test_nothing_given_is_let_through() -> None:
    decision = Guard().check(0)
    assert decision.go and decision.evidence == {}


def test_settings_are_read_by_name() -> None:
    assert Policy.of({"jump": 4.0, "halt_after": 2}) == Policy(jump=4.0, halt_after=2)
    with pytest.raises(ValueError, match="has no setting 'jmp'"):
        Policy.of({"jmp": 4.0})
    for wrong in ({"jump": 1.0}, {"max_weight": 0.0}, {"warmup": 0}, {"nonfinite": "stop"}, {"max_weight": math.nan}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Policy.of(wrong)
