"""Bytes from the network as the messages of ``monitor.wire``.

The whole message is decoded at once; only if that fails is it taken apart, so that one bad row costs that row and not the batch. JSON's
missing NaN and Infinity are accepted both as strings and as the bare tokens that Python's ``json.dumps`` writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from monitor.store.checks import BadField
from monitor.wire import MAX_BODY_BYTES, Batch, Event, Number, Refusal, Rollout, Row

_DRAINED_BYTES = 8 * MAX_BODY_BYTES
_batch = msgspec.json.Decoder(Batch)
_Message = TypeVar("_Message")


class NotJson(ValueError):
    """The body is not a JSON object; the message is one sentence."""


class TooLarge(ValueError):
    """The body is over the limit."""


async def read_body(chunks: AsyncIterator[bytes]) -> bytes:
    """The whole body, of which at most 8 MiB are ever held. Raises TooLarge, after reading on for a while so that the sender sees the answer."""
    held: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size <= MAX_BODY_BYTES:
            held.append(chunk)
        else:
            held.clear()
            if size > _DRAINED_BYTES:
                break
    if size > MAX_BODY_BYTES:
        raise TooLarge(f"The body is larger than {MAX_BODY_BYTES // 2**20} MiB; send smaller batches.")
    return b"".join(held)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A batch without the items of the wrong type; ``places`` tells where an item of ``batch`` stood in the message."""

    batch: Batch
    refused: list[Refusal] = field(default_factory=list)
    places: dict[str, list[int]] = field(default_factory=dict)

    def in_message(self, refusal: Refusal) -> Refusal:
        """``refusal`` with its index counted in the message."""
        if (indexes := self.places.get(refusal.kind)) is not None:
            refusal.index = indexes[refusal.index]
        return refusal


def read_batch(body: bytes) -> Parsed:
    """Raises NotJson, and BadField for a field that belongs to the batch as a whole."""
    try:
        return Parsed(_batch.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return _apart(read_object(body))


def read_message(body: bytes, kind: type[_Message]) -> _Message:
    """A message that is taken whole or not at all. Raises NotJson and BadField."""
    return _convert(read_object(body), kind)


def read_object(body: bytes) -> dict[str, Any]:
    if not body:
        raise NotJson("The body is empty; send a JSON object.")
    try:
        tree = json.loads(body)
    except UnicodeDecodeError:
        raise NotJson("The body is not UTF-8 text.") from None
    except RecursionError:
        raise NotJson("The body is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"The body is not JSON: {error.msg} at line {error.lineno} column {error.colno}.") from None
    except ValueError:
        raise NotJson("The body holds a number with too many digits.") from None
    if not isinstance(tree, dict):
        raise NotJson("The body is not a JSON object.")
    return tree


_PARTS: tuple[tuple[str, str, type[Any]], ...] = (("rows", "row", Row), ("rollouts", "rollout", Rollout), ("events", "event", Event))


def _apart(tree: dict[str, Any]) -> Parsed:
    dropped = tree.get("dropped", {})
    parsed = Parsed(_convert({key: tree[key] for key in ("attempt", "seq") if key in tree} | {"dropped": dropped}, Batch))
    for name, kind, wanted in _PARTS:
        items = tree.get(name, [])
        if not isinstance(items, list):
            raise BadField(name, "must be an array")
        kept = getattr(parsed.batch, name)
        parsed.places[kind] = []
        for index, item in enumerate(items):
            try:
                kept.append(_convert(item, wanted))
                parsed.places[kind].append(index)
            except BadField as error:
                parsed.refused.append(Refusal(kind, index, error.field, error.reason))
    return parsed


def _convert(tree: Any, kind: type[_Message]) -> _Message:
    try:
        return msgspec.convert(tree, kind)
    except RecursionError:
        raise BadField("body", "is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise _named(str(error), tree) from None


_PATH = re.compile(r"^(?P<reason>.*?)(?: - at `(?P<where>key in )?\$?\.?(?P<path>.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>\w+)`")
_VALUES: dict[str, Any] = {"values": Number, "rewards": Number, "hists": list[int], "dropped": int}


def _named(message: str, tree: Any) -> BadField:
    """msgspec's complaint as a field and a reason; it hides the keys of mappings, so those are looked up."""
    found = _PATH.match(message)
    assert found is not None
    path, reason = found["path"] or "", found["reason"].replace("`", "")
    if (missing := _MISSING.match(message)) is not None:
        return BadField(f"{path}.{missing['name']}" if path else missing["name"], "is missing")
    root, bracket, _ = path.partition("[...]")
    if bracket and root in _VALUES and isinstance(tree, dict):
        for key, value in tree[root].items():
            try:
                msgspec.convert(value, _VALUES[root])
            except msgspec.ValidationError as error:
                inner = str(error).split(" - at")[0].replace("`", "")
                return BadField(f"{root}.{ascii(str(key)[:200])[1:-1]}", _lower(inner))
    return BadField(path or "body", _lower(reason))


def _lower(reason: str) -> str:
    return reason.replace("Expected", "expected").replace("int | float | str | null", "a number")
