"""Real processes killed at random; ``VITALS_KILLS=100`` makes it the whole experiment."""

from __future__ import annotations

import os

import pytest

from bench.chaos import torment


@pytest.mark.timeout(900)
def test_after_random_kills_postgres_holds_what_was_logged() -> None:
    verdict = torment(int(os.environ.get("VITALS_KILLS", "8")), seed=int(os.environ.get("VITALS_SEED", "3")), pause=(0.2, 1.0))
    assert verdict.good, verdict
    assert verdict.stored > 50 and verdict.stored + verdict.in_window == verdict.logged
