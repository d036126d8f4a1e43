"""Every detector, in the order in which a person should read them."""

from __future__ import annotations

from monitor.detect.contract import Detector
from monitor.detect.optimizer import NON_FINITE
from monitor.detect.signal import NO_SIGNAL

DETECTORS: tuple[Detector, ...] = (NON_FINITE, NO_SIGNAL)

DETECTOR_BY_ID = {detector.id: detector for detector in DETECTORS}
