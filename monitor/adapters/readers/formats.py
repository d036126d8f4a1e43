"""Every format, and which one a file is in. The choice looks at content, never at a file's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from monitor.adapters.readers import csvfile, jsondoc, jsonl, keyvalue, notebook, tensorboard, trl_console, verl_console
from monitor.adapters.readers.source import Raw, ReadError, Source


@dataclass(frozen=True, slots=True)
class Format:
    """One way of writing logs. ``window`` is how many steps its writers leave open at a time, ``unit`` what its records are counted in."""

    title: str
    read: Callable[[Source], Iterator[Raw]]
    window: int = 1
    unit: str = "line"


JSONL = Format(jsonl.TITLE, jsonl.read)
DOCUMENT = Format(jsondoc.TITLE, jsondoc.read)
NOTEBOOK = Format(notebook.TITLE, notebook.read, unit="row")
TABLE = Format(csvfile.TITLE, csvfile.read)
EVENTS = Format(tensorboard.TITLE, tensorboard.read, tensorboard.WINDOW, "record")
TRL = Format(trl_console.TITLE, trl_console.read)
VERL = Format(verl_console.TITLE, verl_console.read)
PAIRS = Format(keyvalue.TITLE, keyvalue.read)

FORMATS = (EVENTS, NOTEBOOK, DOCUMENT, JSONL, TABLE, VERL, TRL, PAIRS)


def _lines(source: Source) -> Format | None:
    """The line format that fits most lines of a text, the more specific one where two fit equally."""
    counts, lines = {VERL: 0, TRL: 0, JSONL: 0, PAIRS: 0}, 0
    for _, text in source.lines():
        lines += bool(text) and not text.isspace()
        counts[VERL] += verl_console.match(text) is not None
        counts[TRL] += any(True for _ in trl_console.records(text))
        if text.rstrip().endswith("}"):
            counts[JSONL] += jsonl.is_metrics(text)
        if not counts[VERL] and not counts[TRL] and not counts[JSONL]:
            counts[PAIRS] += keyvalue.parse(text) is not None
    best = max((VERL, TRL, JSONL), key=lambda form: counts[form])
    chosen = best if counts[best] else PAIRS
    source.share = counts[chosen], lines
    return chosen if counts[chosen] else None


def detect(source: Source) -> Format:
    """The format of ``source``. ReadError, in one sentence, when it is none of :data:`FORMATS`."""
    head = source.head()
    if not head.strip():
        raise ReadError(f"{source.path} is empty: nothing has been logged yet")
    if tensorboard.is_events(head):
        return EVENTS
    if b"\0" in head[:4096]:
        raise ReadError(f"{source.path} is a binary file, and not a TensorBoard event file: point to the text log, CSV or JSON of the run")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    begin = list(islice(((n, t) for n, t in source.lines() if t.strip() and not t.startswith("#")), 2))
    first = [text for _, text in begin]
    if start.startswith(b"{") and any(jsonl.parse(text) is not None for text in first[:1]):
        return DOCUMENT if b'"log_history"' in head and len(first) == 1 else NOTEBOOK if b'"nbformat"' in head and len(first) == 1 else JSONL
    if start.startswith(b"{") and len(first) == 2 and jsonl.broken(*first):
        return JSONL
    if start.startswith(b"{"):
        return NOTEBOOK if b'"cells"' in head[:2048] or b'"nbformat"' in head or b'"metadata"' in head[:2048] else DOCUMENT
    if start.startswith((b"[{", b"[\n", b"[\r", b"[ ")) and start[1:].lstrip().startswith(b"{"):
        return DOCUMENT
    if len(first) == 2 and csvfile.looks_like(*first):
        return TABLE
    found = _lines(source)
    if found is None:
        shown = first[0].strip()[:40] if first else ""
        raise ReadError(
            f"{source.path}, line {begin[0][0] if begin else 1}: no format known to the readers (it begins {shown!r}, and no line holds metrics): "
            "see docs/readers.md for what can be read"
        )
    return found
