"""An append-only file in numbered segments, with places to read from: the part of the spool that knows bytes and disks only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

SEGMENT_BYTES = 4 * 2**20


class Place(NamedTuple):
    """A byte between two lines: ``offset`` in segment number ``segment``."""

    segment: int
    offset: int


class Stream:
    """Lines in ``folder/PREFIX-NNNNNNNN``. Not thread-safe. A line is there when its newline is: a torn end is never read."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder = folder
        self._prefix = prefix
        self._file: int | None = None
        self._torn = False
        self.segments = sorted(int(path.name.rpartition("-")[2]) for path in folder.glob(f"{prefix}-*"))
        self._sizes = {segment: self._path(segment).stat().st_size for segment in self.segments}

    @property
    def size(self) -> int:
        return sum(self._sizes.values())

    def sizes(self) -> list[tuple[int, int]]:
        """Number and bytes of every segment, oldest first."""
        return [(segment, self._sizes[segment]) for segment in self.segments]

    @property
    def first(self) -> Place:
        return Place(self.segments[0] if self.segments else 1, 0)

    def append(self, block: bytes) -> None:
        """Write whole lines, all or none. Raises OSError; nothing of ``block`` can be read then."""
        if self._file is None or self._torn or self._sizes[self.segments[-1]] >= SEGMENT_BYTES:
            self._open_next()
        assert self._file is not None
        segment = self.segments[-1]
        written = 0
        try:
            while written < len(block):
                written += os.write(self._file, memoryview(block)[written:])
        except OSError:
            if written:
                self._take_back(segment)
            raise
        self._sizes[segment] += len(block)

    def sync(self) -> None:
        """Ask the disk to keep what was written. Raises OSError."""
        if self._file is not None:
            os.fdatasync(self._file)

    def read(self, place: Place, limit: int) -> tuple[list[bytes], Place]:
        """Whole lines from ``place`` within one segment, about ``limit`` bytes but at least one line, and the place after them."""
        lines: list[bytes] = []
        while place.segment in self._sizes or self._next(place.segment) is not None:
            if place.segment in self._sizes:
                lines = self._lines(place, limit)
            following = self._next(place.segment)
            if lines or following is None:
                break
            place = Place(following, 0)
        return lines, Place(place.segment, place.offset + sum(len(line) + 1 for line in lines))

    def lines_between(self, begin: Place, end: Place) -> list[bytes]:
        """The lines from ``begin`` to ``end`` of the same segment; fewer when the segment is gone."""
        if begin.segment != end.segment or begin.segment not in self._sizes:
            return []
        return self._bytes(begin, end.offset - begin.offset).split(b"\n")[:-1]

    def discard_before(self, place: Place) -> None:
        """Delete the segments that lie wholly before ``place``."""
        for segment in [number for number in self.segments if number < place.segment]:
            self._delete(segment)

    def shed(self, done: Place) -> list[bytes] | None:
        """Delete the oldest segment that is not being written and return its lines after ``done``; None when there is none."""
        spare = self.segments[:-1] if self._file is not None else self.segments
        if not spare:
            return None
        segment = spare[0]
        begin = done if done.segment == segment else Place(segment, 0)
        lines = [] if segment < done.segment else self.lines_between(begin, Place(segment, self._sizes[segment]))
        self._delete(segment)
        return lines

    def rotate(self) -> None:
        """Let the next append begin a new segment, so that the current one can be shed."""
        self._torn = True

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _path(self, segment: int) -> Path:
        return self._folder / f"{self._prefix}-{segment:08d}"

    def _next(self, segment: int) -> int | None:
        return next((number for number in self.segments if number > segment), None)

    def _open_next(self) -> None:
        segment = self.segments[-1] + 1 if self.segments else 1
        file = os.open(self._path(segment), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.close()
        self._file, self._torn = file, False
        self.segments.append(segment)
        self._sizes[segment] = 0

    def _take_back(self, segment: int) -> None:
        try:
            assert self._file is not None
            os.ftruncate(self._file, self._sizes[segment])
        except OSError:
            self._torn = True

    def _lines(self, place: Place, limit: int) -> list[bytes]:
        left = self._sizes[place.segment] - place.offset
        if left <= 0:
            return []
        block = self._bytes(place, min(limit, left))
        if b"\n" not in block:
            block = self._bytes(place, left)
        return block.split(b"\n")[:-1]

    def _bytes(self, place: Place, count: int) -> bytes:
        try:
            with self._path(place.segment).open("rb") as file:
                file.seek(place.offset)
                return file.read(count)
        except OSError:
            return b""

    def _delete(self, segment: int) -> None:
        self._path(segment).unlink(missing_ok=True)
        self.segments.remove(segment)
        del self._sizes[segment]
