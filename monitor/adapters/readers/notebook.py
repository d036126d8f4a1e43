"""The training tables that transformers leaves in a notebook's outputs (Unsloth recipes), as HTML; else the dicts printed there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from monitor.adapters.readers import trl_console
from monitor.adapters.readers.source import Raw, ReadError, Source, fault_line, number, whole

TITLE = "a notebook"
MAX_NOTEBOOK = 256 * 2**20

Table = list[list[str]]


class _Tables(HTMLParser):
    """Every table of an HTML fragment as rows of cell texts."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[Table] = []
        self._cell: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            if self.tables and self.tables[-1]:
                self.tables[-1][-1].append("".join(self._cell).strip())
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)


def _joined(value: Any) -> str:
    return "".join(str(part) for part in value) if isinstance(value, list) else value if isinstance(value, str) else ""


def _outputs(document: Any) -> Iterator[dict[str, Any]]:
    cells = document.get("cells") if isinstance(document, dict) else None
    if cells is None and isinstance(document, dict):
        cells = [cell for sheet in document.get("worksheets", []) if isinstance(sheet, dict) for cell in sheet.get("cells", [])]
    for cell in cells if isinstance(cells, list) else []:
        outputs = cell.get("outputs", []) if isinstance(cell, dict) else []
        for output in outputs if isinstance(outputs, list) else []:
            if isinstance(output, dict):
                yield output


def _key(title: str) -> str:
    key = title.replace(" / ", "/")
    return {"Training Loss": "loss", "Validation Loss": "eval_loss"}.get(key, key)


def _tables(document: Any) -> list[Table]:
    """Tables whose first column is the step, header first."""
    found = []
    for output in _outputs(document):
        data = output.get("data")
        html = _joined(data.get("text/html")) if isinstance(data, dict) else ""
        if "<table" in html:
            parser = _Tables()
            parser.feed(html)
            found += [table for table in parser.tables if len(table) > 1 and table[0][:1] == ["Step"]]
    return found


def _table_rows(table: Table) -> Iterator[Raw]:
    keys = [_key(title) for title in table[0]]
    for line, cells in enumerate(table[1:], start=1):
        step = whole(cells[0]) if cells else None
        values = {key: value for key, cell in zip(keys[1:], cells[1:], strict=False) if (value := number(cell)) is not None}
        if step is not None:
            yield Raw(line, step, values)


def _printed(document: Any) -> Iterator[Raw]:
    count = 0
    for output in _outputs(document):
        for text in _joined(output.get("text")).splitlines():
            for record in trl_console.records(text):
                side = trl_console.is_side(record)
                count += not side
                values = {key: value for key, cell in record.items() if (value := number(cell)) is not None}
                yield Raw(count, None if side else count, values)


def read(source: Source) -> Iterator[Raw]:
    """Of several tables the one of the reinforcement learning counts: most rows among those with a reward, else most rows. Line numbers
    count the rows of the table."""
    with source.text() as handle:
        text = handle.read(MAX_NOTEBOOK + 1)
    if len(text) > MAX_NOTEBOOK:
        raise ReadError(f"{source.path} is a notebook of more than {MAX_NOTEBOOK >> 20} MiB: export its log instead")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ReadError(f"{source.path}, line {fault_line(error)}: this is not a whole notebook ({error.msg})") from error
    except RecursionError as error:
        raise ReadError(f"{source.path}, line 1: the notebook is nested too deeply") from error
    tables = _tables(document)
    if not tables:
        return _printed(document)
    best = max(tables, key=lambda table: (any("reward" in title for title in table[0]), len(table)))
    if len(tables) > 1:
        source.notes.add("tables", f"the notebook holds {len(tables)} training tables: the one with {len(best) - 1} rows was read")
    return _table_rows(best)
