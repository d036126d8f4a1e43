"""How a rule that watches one part of the policy becomes a finding: one gate is a watch, a second and independent one makes it an alarm."""

from __future__ import annotations

import math

from monitor.detect import cause, stats
from monitor.detect.contract import Detector, Finding
from monitor.detect.strain import GAP, Strain
from monitor.detect.view import View
from monitor.detect.words import called, upper

WELCOME = ("entropy", "kl", "longer", "shorter", "repetition", "grad")
"""Groups whose strain is no fault while the task reward rises: exploration, distance from the reference, longer or shorter answers, more of what
answers share, and the larger gradients of a policy that begins to score."""
RAMBLING = ("entropy", "kl", "longer", "repetition")
"""Groups that a few rambling rollouts, or the harder prompts of one batch, move together: however many of them are strained, and though it costs some
reward, that is one sign."""

EXTREME = 12.0
"""Noise units from which one row is enough."""
SURE = 8.0
"""Noise units of the strongest strain from which three signs on one row are enough."""
SPIKY = ("kl", "grad", "repetition", "weights", "mismatch")
"""Groups whose single rows spike in healthy runs."""
FEW_SEQUENCES = 48
"""Batches smaller than this are made by a handful of rollouts: what they show must last for 3 of 5 rows."""
BATCH = ("weights", "mismatch")
"""Groups that tell only how a batch was: clipping may have kept it harmless."""
MOVED = ("kl", "grad", "entropy")
"""Groups that tell what a batch did to the policy."""
LEAP = 8.0
"""Factor over normal of such a group from which a single row is more than an odd batch."""
SMALL_UPDATE = 0.02
"""KL of the update in nats per token under which it went no further than usual targets allow (0.01 to 0.02), whatever its batch was like."""
FAR = 16.0
"""Entropy or mean length is far from normal at a factor of 1 + ``FAR`` / sqrt(rollouts): 3 for 64 rollouts."""
UNSAID_SEQUENCES = 64
"""Rollouts of a batch whose size is not logged."""
FAR_MEDIAN = 2.0
"""Factor from which the median length, which single rollouts do not move, is far."""


def support(view: View, *own: str) -> list[str]:
    """What else is wrong on this row, as evidence: strained groups other than ``own``, the task reward's dip, and an auxiliary reward that
    climbs while the length leaves its range."""
    found = [s.says() for s in view.others(*own)]
    if view.outcome is not None and view.outcome.dip:
        found.append(view.outcome.says())
    if ("shorter" in own or "longer" in own) and (climbing := cause.aux_climb(view)) is not None:
        found.append(f"{called(climbing)} {view.series(climbing).last:.3g} and rising")
    return found


def severity(view: View, group: str, own: tuple[str, ...]) -> str | None:
    """``watch`` for the own gate held on 3 of 5 rows; ``warning`` once another group or the reward's dip holds too; ``critical`` when the
    reward has fallen. The own gate must hold on 3 of 5 rows where the batch is small, else on 2 of 3. In a batch that is not small one row is enough
    when two other signs hold on it, one of them sure, and the reward dips or the policy leapt; or when the group does not spike by itself and its
    gate is extreme or the reward dips. Where nothing has moved but what rambling rollouts move (the reward, if not deeply), or odd batches whose
    updates stay small, it is watched until it holds on 4 of 5 rows and is far from normal."""
    strained = {group, *(s.group for s in view.others(*own))}
    outcome = view.outcome
    dip = outcome is not None and outcome.dip
    signs = len(support(view, *own))
    few = (view.now("batch.sequences") or math.inf) < FEW_SEQUENCES
    lasting = view.held(group, 5) >= 3 if few else view.held(group, 3) >= 2
    settled = lasting or (not few and group not in SPIKY and (dip or view.strains[group].z >= EXTREME))
    welcome = outcome is not None and outcome.rising and not dip and strained <= set(WELCOME)
    one_sign = not (outcome is not None and outcome.deep) and strained <= set(RAMBLING)
    odd = max((s.z for s in view.strains.values() if s.group in BATCH), default=0.0)
    unmoved = not dip and strained <= {*RAMBLING, *BATCH} and odd < EXTREME and _small_update(view)
    if welcome or ((one_sign or unmoved) and not (view.held(group, 5) >= 4 and _far(view))):
        return "watch" if settled else None
    together = signs >= 2 and not few and (dip or _leapt(view)) and max(s.z for s in view.strains.values()) >= SURE
    if signs and (settled or together) and not view.resumed:
        return "critical" if outcome is not None and outcome.fallen else "warning"
    return "watch" if view.held(group, 5) >= 3 else None


def _small_update(view: View) -> bool:
    """Whether the KL of this row's update was measured and is what an update may have."""
    moved = view.now("update.kl_old.k3")
    return moved is not None and moved < SMALL_UPDATE


def _leapt(view: View) -> bool:
    """Whether the policy has moved by a multiple on this row, and not by a small update."""
    return not _small_update(view) and any(s.factor >= LEAP for s in view.strains.values() if s.group in MOVED)


def _far(view: View) -> bool:
    """Whether entropy or length are further from normal than a few rollouts of the batch can carry a mean."""
    least = 1 + FAR / math.sqrt(max(view.now("batch.sequences") or UNSAID_SEQUENCES, 1.0))
    if any(s.factor >= least for s in view.strains.values() if s.metric in ("entropy.mean", "len.completion.mean")):
        return True
    median = view.series("len.completion.p50")
    if view.now(median.name) is None or len(median.x) < 6:
        return False
    usual = stats.median(median.x[: -min(GAP, len(median.x) // 2)])
    return usual > 0 and min(median.x[-3:]) >= FAR_MEDIAN * usual


def from_strain(view: View, detector: Detector, title: str, groups: tuple[str, ...], own: tuple[str, ...] = ()) -> Finding | None:
    """The finding for the strongest strain among ``groups``; ``own`` adds groups that are the same evidence seen twice."""
    strains = [view.strains[g] for g in groups if g in view.strains]
    if not strains:
        return None
    strain = max(strains, key=lambda s: s.z)
    level = severity(view, strain.group, (*groups, *own))
    if level is None:
        return None
    return describe_strain(view, detector, level, strain, title, support(view, *groups, *own))


def describe_strain(view: View, detector: Detector, level: str, strain: Strain, title: str, signs: list[str]) -> Finding:
    """A finding whose evidence names the value, what was normal, the excess in noise units and the second gate."""
    ratio = f"{strain.factor:.2g} times" if strain.factor < 1000 else "far above"
    evidence = (
        f"{upper(called(strain.metric))} is {strain.value:.3g}, {ratio} the {strain.normal:.3g} expected from this run ({strain.z:.0f} noise units)"
    )
    evidence += f"; with it {', '.join(signs)}." if signs else "; nothing else moved."
    why = cause.likely(view)
    return view.finding(
        detector,
        level,
        strain.metric,
        strain.value,
        title=title,
        evidence=evidence,
        why=why,
        baseline=strain.normal,
    )
