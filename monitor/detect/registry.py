"""Every detector, in the order in which a person should read them."""

from __future__ import annotations

from monitor.detect.auxiliary import AUX_DIVERGENCE, AUX_SHARE, DEAD_REWARD
from monitor.detect.behaviour import ENVIRONMENT_ERRORS
from monitor.detect.contract import Detector
from monitor.detect.optimizer import GRAD_SPIKE, LEARNING_NOTHING, NON_FINITE, REFUSED_UPDATES
from monitor.detect.pace import SLOWDOWN, STALENESS
from monitor.detect.policy import ENTROPY_HIGH, ENTROPY_LOW, KL_ACCELERATION, MISMATCH, WEIGHT_EXPLOSION
from monitor.detect.reward import AUDIT_GAP, EVAL_GAP, PEAK_AND_FALL
from monitor.detect.rollout import LENGTH_COLLAPSE, LENGTH_RUNAWAY, REPETITION, TRUNCATION
from monitor.detect.signal import ALL_FAIL, HUGE_ADVANTAGE, NO_SIGNAL

DETECTORS: tuple[Detector, ...] = (
    NON_FINITE,
    PEAK_AND_FALL,
    AUX_DIVERGENCE,
    AUX_SHARE,
    AUDIT_GAP,
    EVAL_GAP,
    NO_SIGNAL,
    ALL_FAIL,
    WEIGHT_EXPLOSION,
    MISMATCH,
    KL_ACCELERATION,
    ENTROPY_HIGH,
    ENTROPY_LOW,
    LENGTH_RUNAWAY,
    LENGTH_COLLAPSE,
    TRUNCATION,
    REPETITION,
    GRAD_SPIKE,
    HUGE_ADVANTAGE,
    LEARNING_NOTHING,
    REFUSED_UPDATES,
    DEAD_REWARD,
    ENVIRONMENT_ERRORS,
    STALENESS,
    SLOWDOWN,
)

DETECTOR_BY_ID = {detector.id: detector for detector in DETECTORS}
