"""The end of the process: every open run is finished, for a bounded time, and told why. Also what a fork must forget."""

from __future__ import annotations

import atexit
import os
import sys
from types import TracebackType
from typing import Protocol

from monitor.client import spool

EXIT_TIMEOUT_S = 5.0
"""Seconds that all open runs together may take at the end of the process; ``VITALS_EXIT_TIMEOUT_S`` changes it."""


class Finishable(Protocol):
    def finish(self, state: str = ..., reason: str | None = ..., timeout: float = ...) -> None: ...


_open: list[Finishable] = []
_last_error: list[BaseException] = []
_installed: list[int] = []


def watch(run: Finishable) -> None:
    """Finish ``run`` at the end of the process unless :func:`forget` is called before."""
    if not _installed:
        _installed.append(os.getpid())
        atexit.register(_finish_all)
        os.register_at_fork(after_in_child=_forget_all)
        previous = sys.excepthook

        def remember_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            _last_error[:] = [error]
            previous(kind, error, trace)

        sys.excepthook = remember_error
    _open.append(run)


def forget(run: Finishable) -> None:
    if run in _open:
        _open.remove(run)


def end_of(error: BaseException | None) -> tuple[str, str | None]:
    """State and reason of a run that ended with ``error``."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "finished", None
    reason = f"{type(error).__name__}: {error}"[:1000]
    return ("stopped" if isinstance(error, KeyboardInterrupt) else "crashed"), reason


def _finish_all() -> None:
    state, reason = end_of(_last_error[0] if _last_error else None)
    try:
        timeout = float(os.environ.get("VITALS_EXIT_TIMEOUT_S", EXIT_TIMEOUT_S))
    except ValueError:
        timeout = EXIT_TIMEOUT_S
    for run in list(_open):
        run.finish(state, reason, timeout / len(_open) if _open else timeout)


def _forget_all() -> None:
    _open.clear()
    spool.forget_after_fork()
