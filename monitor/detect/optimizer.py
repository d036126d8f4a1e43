"""Detectors of the optimizer: non-finite numbers, gradient spikes."""

from __future__ import annotations

import math

from monitor.detect.contract import Detector, Finding, State
from monitor.detect.view import View
from monitor.metrics import describe

FATAL_ORGANS = ("optimizer", "policy")


def _non_finite(view: View, memory: State) -> tuple[State, Finding | None]:
    broken = sorted((name, value) for name, value in view.row.values.items() if not math.isfinite(value) and describe(name).organ in FATAL_ORGANS)
    if not broken:
        return memory, None
    name, value = broken[0]
    listed = ", ".join(f"{n} = {v}" for n, v in broken[:4])
    return memory, view.finding(
        NON_FINITE,
        "critical",
        name,
        value,
        title=f"{describe(name).title} is not a finite number",
        evidence=f"On this row {listed}; every later update of these weights inherits it.",
        cause="overflow in the loss or in an importance weight, or a batch without a trained token",
        refutation="the row's loss and gradient norm, recomputed from the same batch, are finite",
    )


NON_FINITE = Detector(
    id="non_finite",
    organ="optimizer",
    title="Not a finite number",
    needs=(("opt.loss", "opt.policy_loss", "opt.grad_norm", "iw.max", "iw.mean", "kl_ref.k3", "entropy.mean"),),
    rule="A loss, gradient norm, importance weight, KL or entropy is NaN or infinite.",
    formula="any value of the optimizer or the policy that is not finite",
    source="IEEE 754: no operation leads back from NaN",
    remedy="Stop before the optimizer step and go back to the last checkpoint with finite weights.",
    judge=_non_finite,
)
