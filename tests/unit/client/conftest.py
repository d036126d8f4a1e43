from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.client.receiver import Receiver, receiving


@pytest.fixture(autouse=True)
def spool_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spool of the test's own; nothing of the caller's environment counts."""
    for name in ("VITALS_URL", "VITALS_TOKEN", "VITALS_RUN", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "spool"
    monkeypatch.setenv("VITALS_SPOOL_DIR", str(root))
    return root


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as receiver:
        monkeypatch.setenv("VITALS_URL", receiver.url)
        yield receiver
