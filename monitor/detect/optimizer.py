"""Detectors of the optimizer: non-finite numbers, gradient spikes, updates of nothing."""

from __future__ import annotations

import math

from monitor.detect import cause, strain
from monitor.detect.contract import Detector, Finding, Parameter, State
from monitor.detect.rules import from_strain
from monitor.detect.view import View
from monitor.detect.words import called, counted, latest, upper
from monitor.metrics import describe

FATAL_ORGANS = ("optimizer", "policy")


def _non_finite(view: View, memory: State) -> tuple[State, Finding | None]:
    broken = sorted((name, value) for name, value in view.row.values.items() if not math.isfinite(value) and describe(name).organ in FATAL_ORGANS)
    if not broken:
        return memory, None
    name, value = broken[0]
    listed = ", ".join(f"{called(n)} is {v}" for n, v in broken[:4])
    return memory, view.finding(
        NON_FINITE,
        "critical",
        name,
        value,
        title=f"{describe(name).title} is not a finite number",
        evidence=f"On this row {listed}; every later update of these weights inherits it.",
        why=cause.OVERFLOW,
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


def _grad_spike(view: View, memory: State) -> tuple[State, Finding | None]:
    found = from_strain(view, GRAD_SPIKE, "Gradients are spiking", ("grad",))
    if found is not None or "grad" not in view.strains:
        return memory, found
    spike = view.strains["grad"]
    return memory, view.finding(
        GRAD_SPIKE,
        "information",
        spike.metric,
        spike.value,
        title="One gradient spike",
        evidence=f"Gradient norm {spike.value:.3g} where {spike.normal:.3g} is normal ({spike.z:.0f} noise units); nothing else moved.",
        why=cause.ONE_BATCH,
        baseline=spike.normal,
    )


GRAD_SPIKE = Detector(
    id="grad_spike",
    organ="optimizer",
    title="Gradient spikes",
    needs=(("opt.grad_norm",),),
    rule="The gradient norm before clipping is four times its own level. Once is information; with another sign it is a warning.",
    formula="ln norm > baseline + ln 4 by 4 noise units; with a second group on 2 of 3 rows, or with two more at once",
    source="single clipped spikes are harmless and common",
    remedy="Clip the norm, drop the batch, put a floor under the group's standard deviation.",
    judge=_grad_spike,
    parameters=strain.parameters("grad_spike"),
)


def _learning_nothing(view: View, memory: State) -> tuple[State, Finding | None]:
    rows = int(view.limit(LEARNING_NOTHING, "rows"))
    logged = [s for name in ("opt.update_norm", "opt.grad_norm", "opt.loss") if (s := view.series(name)).n and view.now(name) is not None]
    # A loss of 0 alone says nothing: on-policy it is 0 up to rounding.
    if not logged or logged[0].name == "opt.loss" or any(s.n < rows or any(s.x[-rows:]) for s in logged):
        return memory, None
    outcome = view.outcome
    solved = outcome is not None and outcome.solved(0.95)
    return memory, view.finding(
        LEARNING_NOTHING,
        "information" if solved else "warning",
        logged[0].name,
        0.0,
        title="Steps arrive, but nothing is learned",
        evidence=f"{upper(' and '.join(called(s.name) for s in logged))} exactly 0 on {latest(rows)}.",
        why=cause.SOLVED if solved else cause.FROZEN,
        limit=0.0,
    )


LEARNING_NOTHING = Detector(
    id="learning_nothing",
    organ="optimizer",
    title="Learning nothing",
    needs=(("opt.grad_norm", "opt.update_norm"),),
    rule="Loss, gradient norm and update norm, as far as logged, are all exactly zero for 20 rows.",
    formula="every one of them = 0 on `rows` rows; a loss of 0 alone is not enough",
    source="an exact zero is no small number: the gradient is empty",
    remedy="Look at the share of samples with an advantage; then at which parameters are trainable.",
    judge=_learning_nothing,
    parameters=(Parameter("rows", 20, "rows", "rows of exact zeros"),),
)


LATEST_ROWS = 10
"""Newest rows on which refusals are counted."""


def _refused_updates(view: View, memory: State) -> tuple[State, Finding | None]:
    count, skipped = view.now("opt.skipped"), view.series("opt.skipped").x[-LATEST_ROWS:]
    if count is None or not count > 0:
        return memory, None
    refused = len([x for x in skipped if x > 0])
    dip = view.outcome is not None and view.outcome.dip
    often = f", and updates were refused on {refused} of the last {len(skipped)} rows" if refused > 1 else ""
    return memory, view.finding(
        REFUSED_UPDATES,
        "warning" if dip or refused >= view.limit(REFUSED_UPDATES, "rows") else "watch",
        "opt.skipped",
        count,
        title="The step gate refused updates",
        evidence=f"{counted(int(count), 'update')} of this row {'was' if count == 1 else 'were'} not made{often}"
        + (f"; with it {view.outcome.says()}." if dip and view.outcome is not None else "."),
        why=cause.GATED,
        limit=0.0,
    )


REFUSED_UPDATES = Detector(
    id="refused_updates",
    organ="optimizer",
    title="Refused updates",
    needs=(("opt.skipped",),),
    rule="The step gate refused at least one update of the row. Once is watched, for the gate has done its work; that it goes on, or that the task "
    "reward dips, is an alarm.",
    formula="opt.skipped > 0; an alarm on `rows` of the newest 10 rows, or with a dip of the task reward",
    source="the gate's own decision; its event holds the reasons",
    remedy="Read the reasons in the run's skip events; lower the learning rate or the staleness if they go on.",
    judge=_refused_updates,
    parameters=(Parameter("rows", 3, "rows", "rows with a refusal, of the newest ten, from which it is an alarm"),),
)
