"""verl's console line ``step:12 - actor/entropy:0.43 - critic/score/mean:np.float64(0.25) - ...``, with or without Ray's prefix."""

from __future__ import annotations

import re
from collections.abc import Iterator

from monitor.adapters.readers.source import Raw, Source, number

TITLE = "verl console lines"

_LINE = re.compile(r"(?:^|[\s)\]|])step:(\d+) - (\S[^:]*:.*)$")
_ROUNDED = re.compile(r"-?\d+\.\d{3}")
_TINY = re.compile(r"(?:^|/)(?:lr|kl|kl_loss|ppo_kl|reward_kl_penalty|grad_norm|actor|critic)$")


def match(text: str) -> re.Match[str] | None:
    """The step and the metrics of a line, or None."""
    return _LINE.search(text) if "step:" in text and not text.startswith("{") else None


def read(source: Source) -> Iterator[Raw]:
    """Old versions round to three decimals: there a 0.000 of a learning rate, KL or gradient norm says nothing and is left out."""
    for line, text in source.lines():
        found = match(text)
        if found is None:
            continue
        pairs = [piece.rsplit(":", 1) for piece in found[2].split(" - ") if ":" in piece]
        if line == source.unfinished:
            del pairs[-1:]
            source.notes.add("cut", f"line {line}, the last one, has no line end: its last value may be cut and was left out")
        rounded = len(pairs) > 4 and all(_ROUNDED.fullmatch(pair[1].strip()) for pair in pairs)
        values: dict[str, float] = {}
        for key, text_value in pairs:
            value = number(text_value)
            if value is None:
                continue
            if rounded and value == 0 and _TINY.search(key.strip()):
                source.notes.add("rounded", f"line {line}: numbers are rounded to three decimals, so that 0.000 of {key.strip()} is not taken for 0")
                continue
            values[key.strip()] = value
        yield Raw(line, int(found[1]), values)
