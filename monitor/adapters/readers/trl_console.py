"""The dict that transformers' trainers and OpenRLHF print per logging step, values as numbers or strings, between other text."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from monitor.adapters.readers.source import Raw, Source
from monitor.adapters.readers.steps import PEEK, choose_step_key, numbers, step_of

TITLE = "dicts on the console"

_DICT = re.compile(r"\{'[^{}]*\}")
_PAIR = re.compile(r"'([^']+)':\s*('[^']*'|\"[^\"]*\"|[\w.]+\([^()]*\)|[^,{}()]+)")
_BAR = re.compile(r"(\d+)/(\d+) \[[^\]]*(?:s/it|it/s)")
_BEFORE = re.compile(r"(?i)\bglobal[ _]step[ :=]+(\d+)\W*$")
_TELLING = ("epoch", "loss", "reward", "step", "global_step")


def records(text: str) -> Iterator[dict[str, str]]:
    """Every dict of metrics in a line, values as written."""
    if "{'" not in text:
        return
    for match in _DICT.finditer(text):
        found = {key: value.strip().strip("'\"") for key, value in _PAIR.findall(match[0])}
        if before := _BEFORE.search(text, 0, match.start()):
            found.setdefault("global_step", before[1])
        if any(key in found for key in _TELLING) and len(numbers(found)) >= 2:
            yield found


def is_side(record: dict[str, str]) -> bool:
    """Whether a dict is an evaluation or the summary at the end: it belongs to the step before it."""
    return "train_runtime" in record or all(key.startswith("eval_") or key == "epoch" for key in record)


@dataclass(slots=True)
class Tally:
    """What a first pass counts: dicts of training steps, and how far each progress bar came."""

    dicts: int = 0
    bars: Counter[int] = field(default_factory=Counter)
    reached: dict[int, int] = field(default_factory=dict)

    def look(self, text: str) -> bool:
        """Count a line; whether it held a dict of metrics."""
        if "/it" in text or "it/s" in text:
            for done, total in _BAR.findall(text):
                self.bars[int(total)] += 1
                self.reached[int(total)] = max(int(done), self.reached.get(int(total), 0))
        before = self.dicts
        self.dicts += sum(not is_side(record) for record in records(text))
        return self.dicts > before

    def interval(self) -> int:
        """Steps per dict: how far the busiest progress bar came, over the dicts printed; 1 when that is no whole number."""
        done = self.reached[max(self.bars, key=lambda total: (self.bars[total], total))] if self.bars else 0
        per = done / self.dicts if self.dicts else 0.0
        return round(per) if per >= 1 and abs(per - round(per)) <= 0.1 * per else 1


def _dicts(source: Source) -> Iterator[tuple[int, dict[str, str]]]:
    for line, text in source.lines():
        for record in records(text):
            yield line, record


def read(source: Source) -> Iterator[Raw]:
    """Where the dicts name no step, they are numbered by order times the interval that the progress bar gives away."""
    tally = Tally()
    for _, text in source.lines():
        tally.look(text)
    every = tally.interval()
    stream = _dicts(source)
    head = list(itertools.islice(stream, PEEK))
    key = choose_step_key(record for _, record in head)
    if key is None:
        source.notes.add("steps", f"the lines name no step: rows are numbered by order, {every} {'step' if every == 1 else 'steps'} apart")
    step, epoch = 0, 0.0
    for line, record in itertools.chain(head, stream):
        values = numbers(record)
        if is_side(record):
            yield Raw(line, None, values)
            continue
        if key is not None:
            values.pop(key, None)
            yield Raw(line, step_of(record, key), values)
            continue
        now = values.get("epoch", epoch)
        if now < epoch and step:
            step = max(0, round(step * now / epoch / every) - 1) * every
        step, epoch = step + every, now
        yield Raw(line, step, values)
