"""Values that pages show, and what a reader sees of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from monitor.store.queries import AlertView, Change

T0 = datetime(2026, 11, 30, tzinfo=UTC)


def an_alert(number: int, detector: str, *, since: int, held_by: str = "", resolved: int | None = None) -> AlertView:
    muted = f"{held_by} explains it" if held_by else None
    changes = (Change(since + 1, T0, "ok", "critical", "opened", muted),)
    finding = {"title": detector, "metric": "kl_ref.k3", "since_step": since}
    state, over = ("open", None) if resolved is None else ("resolved", T0)
    return AlertView(number, "r", "r", "p", detector, "policy", "critical", state, since + 1, T0, since + 5, resolved, over, finding, changes=changes)


def text_of(tree: Any) -> str:
    """Everything a reader sees of a component."""
    if isinstance(tree, (list, tuple)):
        return " ".join(text_of(each) for each in tree)
    if tree is None or isinstance(tree, (str, int, float)):
        return "" if tree is None else str(tree)
    return text_of(getattr(tree, "children", None))
