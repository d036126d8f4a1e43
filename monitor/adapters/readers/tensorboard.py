"""TensorBoard event files: TFRecord frames with their checksums, and of the protobuf inside only the scalars.

A frame is a little-endian u64 length, the masked CRC-32C of those 8 bytes, the payload and its masked CRC-32C (tensorflow,
``record_writer.cc``). Of ``Event`` the fields step=2 and summary=5 are read, of a summary's value tag=1, simple_value=2 and tensor=8, of a
tensor dtype=1, tensor_content=4, float_val=5 and double_val=6.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from monitor.adapters.readers.source import Raw, ReadError, Source

TITLE = "TensorBoard events"
MAX_RECORD = 64 * 2**20
WINDOW = 16
"""Steps held open, because writers log one tag at a time."""


@cache
def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


def masked_crc(data: bytes) -> int:
    """The CRC-32C (Castagnoli) of ``data``, rotated and offset as TFRecord stores it."""
    crc, table = 0xFFFFFFFF, _table()
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def is_events(head: bytes) -> bool:
    """Whether a file starts with a frame whose length checks out."""
    return len(head) >= 12 and struct.unpack("<I", head[8:12])[0] == masked_crc(head[:8])


def frames(source: Source) -> Iterator[tuple[int, bytes]]:
    """Number from 1 and payload of every whole frame. A frame cut off at the end is noted, a damaged one ends the file or is skipped."""
    count = 0
    with source.open() as handle:
        while head := handle.read(12):
            count += 1
            if len(head) < 12:
                source.notes.add("cut", f"record {count}, the last one, is cut off and was left out")
                return
            size, crc = struct.unpack("<QI", head)
            if crc != masked_crc(head[:8]) or size > MAX_RECORD:
                source.notes.add("damaged", f"record {count} has a damaged length: the file was read up to it")
                return
            payload, tail = handle.read(size), handle.read(4)
            if len(payload) < size or len(tail) < 4:
                source.notes.add("cut", f"record {count}, the last one, is cut off and was left out")
                return
            if struct.unpack("<I", tail)[0] != masked_crc(payload):
                source.notes.add("checksum", f"record {count} fails its checksum and was left out")
                continue
            yield count, payload


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each protobuf field; ValueError when ``data`` is no message."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            if position >= len(data) or shift > 63:
                raise ValueError("a number runs past the end of the message")
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(data):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or (varint() if kind == 2 else -1)
        if size < 0 or position + size > len(data):
            raise ValueError("a field runs past the end of the message")
        yield tag >> 3, data[position : position + size]
        position += size


def _tensor(data: bytes) -> float | None:
    """The one number of a scalar tensor of dtype float (1), double (2) or half (19), or None."""
    found = dict(fields(data))
    dtype = found.get(1)
    for field, code, kind in ((4, "<f", 1), (5, "<f", 1), (4, "<d", 2), (6, "<d", 2), (4, "<e", 19)):
        content = found.get(field)
        if dtype == kind and isinstance(content, bytes) and len(content) == struct.calcsize(code):
            return float(struct.unpack(code, content)[0])
    return None


def _scalar(data: bytes) -> tuple[str, float] | None:
    found = dict(fields(data))
    tag, simple, tensor = found.get(1), found.get(2), found.get(8)
    value: float | None = None
    if isinstance(simple, bytes) and len(simple) == 4:
        value = float(struct.unpack("<f", simple)[0])
    elif isinstance(tensor, bytes):
        value = _tensor(tensor)
    if value is None or not isinstance(tag, bytes):
        return None
    return tag.decode("utf-8", "replace"), value


def _event(payload: bytes) -> tuple[int, dict[str, float]]:
    step, values = 0, {}
    for number, value in fields(payload):
        if number == 2 and isinstance(value, int):
            step = value - 2**64 if value >= 2**63 else value
        elif number == 5 and isinstance(value, bytes):
            for inner, summary in fields(value):
                if inner == 1 and isinstance(summary, bytes) and (found := _scalar(summary)):
                    values[found[0]] = found[1]
    return step, values


def event_files(folder: Path) -> list[Path]:
    """The event files of a folder and those below it, oldest first."""
    return sorted(folder.rglob("*tfevents*"), key=lambda path: (path.name, str(path)))


def read(source: Source) -> Iterator[Raw]:
    for count, payload in frames(source):
        try:
            step, values = _event(payload)
        except ValueError as error:
            raise ReadError(f"{source.path}, record {count}: the record is no TensorBoard event ({error})") from error
        if values:
            yield Raw(count, step, values)
