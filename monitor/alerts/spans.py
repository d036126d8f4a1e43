"""Lengths of time as people write them: ``30s``, ``15m``, ``4h``, ``1d``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def read_span(value: Any, complain: Callable[[str], None]) -> float | None:
    """Seconds; None for None, and after complaining."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,6})([smhd])", value) if isinstance(value, str) else None
    if found is None or int(found[1]) == 0:
        complain(f'a length of time is written "30s", "15m", "4h" or "1d", not {value!r}')
        return None
    return int(found[1]) * SECONDS[found[2]]


def write_span(seconds: float) -> str:
    """The inverse of :func:`read_span`, in the largest unit that fits."""
    unit = next(unit for unit in ("d", "h", "m", "s") if seconds % SECONDS[unit] == 0 or unit == "s")
    return f"{seconds / SECONDS[unit]:g}{unit}"
