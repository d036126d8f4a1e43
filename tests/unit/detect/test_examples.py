"""Every detector speaks on its own example, in time and with evidence, and no detector raises an alarm on any quiet one."""

from __future__ import annotations

import functools
import re

import pytest

from monitor.detect import cause, examples
from monitor.detect.contract import Finding
from monitor.detect.registry import DETECTORS
from tests.unit.detect.streams import ALARMS, alarms, walk

INFORMS = {"dead_reward", "staleness", "slowdown"}
"""Detectors that tell and never alarm."""


@functools.cache
def spoken(detector: str) -> list[list[Finding]]:
    """The findings of each row of the detector's example."""
    example = examples.FIRES[detector]
    return walk(example.rows(), example.context)


IDS = [detector.id for detector in DETECTORS]
CAUSES = {candidate.name for candidate in cause.CANDIDATES}


def test_every_detector_has_both_examples_and_a_unique_id() -> None:
    assert len(set(IDS)) == len(IDS)
    assert set(examples.FIRES) == set(examples.QUIET) == set(IDS)


def test_the_healthy_run_is_silent() -> None:
    assert not any(walk([examples.healthy(i) for i in range(150)]))


@pytest.mark.parametrize("detector", IDS)
def test_it_speaks_on_its_example_and_not_before(detector: str) -> None:
    example = examples.FIRES[detector]
    found = [(i, f) for i, findings in enumerate(spoken(detector)) for f in findings if f.detector == detector]
    loud = [(i, f) for i, f in found if f.severity in ALARMS]
    assert found and (detector in INFORMS or loud), "silent on its own example"
    assert (detector in INFORMS) == (not loud)
    assert found[0][0] >= example.at
    assert (loud or found)[0][0] <= example.at + (40 if example.at < examples.AT else 25)


@pytest.mark.parametrize("detector", IDS)
def test_nobody_raises_an_alarm_on_the_quiet_example(detector: str) -> None:
    example = examples.QUIET[detector]
    assert alarms(walk(example.rows(), example.context)) == []


@pytest.mark.parametrize("detector", IDS)
def test_findings_carry_numbers_a_named_cause_advice_and_what_would_refute_them(detector: str) -> None:
    for i, findings in enumerate(spoken(detector)):
        for finding in findings:
            assert any(c.isdigit() for c in finding.evidence) or "nan" in finding.evidence, finding.evidence
            assert finding.cause.split(":")[0] in CAUSES
            assert finding.advice and finding.refutation and finding.title
            assert finding.step == i and finding.since_step is not None and finding.since_step <= i
            assert finding.metric not in finding.moved


def test_sentences_call_metrics_by_their_titles_and_count_correctly() -> None:
    """Evidence is for people: the name of a series is in ``metric`` and ``moved``."""
    for findings in (found for detector in IDS for found in spoken(detector)):
        for finding in findings:
            said = f"{finding.title} {finding.evidence}"
            assert re.findall(r"\b[a-z_]+\.[a-z_.0-9]*[a-z0-9]", said) == [], said
            assert not re.search(r"\b1 (rows|updates)\b", said), said
            assert finding.evidence[0] == finding.evidence[0].upper()


def test_onset_and_order_are_found_afterwards() -> None:
    """Entropy leaves its range rows before the alarm; the cascade names the first mover first."""
    example = examples.FIRES["length_runaway"]
    found = spoken("length_runaway")
    late = {f.detector: f for f in found[55]}
    assert abs((late["length_runaway"].since_step or 0) - example.at) <= 6
    assert late["length_runaway"].moved[0] == "entropy.mean"
    assert late["entropy_high"].moved[0] in ("len.completion.mean", "len.truncated_frac")
