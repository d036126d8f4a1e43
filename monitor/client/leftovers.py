"""What dead processes left in the spool: sending it, and telling how much it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from monitor.client.courier import Courier, Voice, deliver
from monitor.client.spool import Spool, default_root, left_behind
from monitor.client.transport import Transport


@dataclass(frozen=True, slots=True)
class Waiting:
    """An attempt whose process is gone and whose records were not all acknowledged."""

    project: str
    name: str
    run: str
    folder: Path
    url: str
    rows: int
    rollouts: int
    events: int
    size: int


@dataclass(frozen=True, slots=True)
class Sent:
    """What :func:`send` did with one attempt. ``problem`` is empty when everything was delivered and the folder removed."""

    project: str
    name: str
    folder: Path
    rows: int
    refused: int
    problem: str


def status(root: Path | None = None) -> list[Waiting]:
    """Attempts that wait under ``root`` (default: the user's spool), oldest first."""
    found: list[Waiting] = []
    for spool in _adopted(root):
        found.append(_waiting(spool))
        spool.close()
    return found


def send(
    root: Path | None = None,
    *,
    url: str | None = None,
    token: str | None = None,
    timeout: float = 60.0,
    only_for: str | None = None,
    stopped: Callable[[], bool] = lambda: False,
    begin: Callable[[Waiting], None] | None = None,
    tell: Callable[[Sent], None] | None = None,
) -> list[Sent]:
    """Deliver what waits under ``root``, oldest attempt first, to ``url`` (default: the address each run was started with).

    An attempt that makes no progress for ``timeout`` seconds is left for another time. ``only_for`` restricts to attempts started with that
    address, ``stopped`` ends early, ``begin`` hears of each attempt before it is sent, ``tell`` as it ends.
    """
    results: list[Sent] = []
    for spool in _adopted(root):
        if stopped() or only_for not in (None, spool.url):
            spool.close()
            continue
        if begin is not None:
            begin(_waiting(spool))
        transport = Transport(url or spool.url, token)
        courier = Courier(spool, transport, Voice())
        delivered = deliver(courier, timeout, stopped=stopped)
        opening = spool.opening
        problem = "" if delivered else f"{transport.url} did not take it within {timeout:g} s"
        results.append(Sent(str(opening["project"]), str(opening["name"]), spool.folder, courier.rows, courier.refused, problem))
        transport.close()
        spool.close(remove=delivered)
        if tell is not None:
            tell(results[-1])
    return results


def _waiting(spool: Spool) -> Waiting:
    opening, counts = spool.opening, spool.waiting()
    size = spool.pending_bytes
    return Waiting(str(opening["project"]), str(opening["name"]), str(opening["run"]), spool.folder, spool.url, **counts, size=size)


def _adopted(root: Path | None) -> Iterator[Spool]:
    for folder in left_behind(root or default_root()):
        spool = Spool.adopt(folder)
        if spool is not None:
            yield spool
