"""Tables whose rows become cards on a phone, where each cell says what it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from dash import html


def cards(label: str, heads: Sequence[str], rows: Iterable[Sequence[Any]], *, wide: Collection[str] = (), framed: bool = False) -> Any:
    """A table called ``label``; a card gives the columns of ``wide`` a line of their own. ``framed`` puts a border around it."""
    head = html.Thead(html.Tr([html.Th(each, scope="col") for each in heads]))
    body = html.Tbody([html.Tr([_cell(name, content, name in wide) for name, content in zip(heads, row, strict=True)]) for row in rows])
    table = html.Table([head, body], className="plain cards", **{"aria-label": label})
    return html.Div(table, className="card scroll" if framed else "scroll", tabIndex=0, role="region", **{"aria-label": label})


def _cell(name: str, content: Any, wide: bool) -> Any:
    return html.Td(content, className="wide" if wide else None, **{"data-label": name})
