"""The on-disk spool of one attempt: what ``log`` returned for is written here first and leaves only when the collector has acknowledged it.

A folder per attempt under the spool's root::

    start.json      the RunStart and the collector's address
    lock            held by the process that writes or sends
    main-00000001   rows, events, shed counts and the end, one JSON line each behind a kind letter
    side-00000001   rollouts
    cursor.json     the last batch: its number, its places in both streams, whether it was acknowledged

**What survives.** Lines are in the operating system's hands within a quarter of a second of ``log`` (a SIGKILL loses at most those), and
``fdatasync`` follows within a second (a power cut loses at most those, and whatever the disk lies about).

**Exactly once.** A batch's number and places are written before it is sent; after a crash the same bytes travel under the same number.

**Bounded.** Above ``limit_bytes`` whole segments are shed, rollouts before anything else and oldest first; what is shed is counted and
travels as ``dropped``. While the disk refuses writes, lines wait in memory under the same rule and are sent from there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitor import wire
from monitor.client import encode
from monitor.client.stream import SEGMENT_BYTES, Place, Stream

LIMIT_BYTES = 512 * 2**20
HELD_BYTES = 32 * 2**20
PARCEL_BYTES = 2**20
PARCEL_LINES = 500

_owned: set[Path] = set()
"""Attempts that this process holds: record locks do not keep a process out of its own files."""


def default_root() -> Path:
    """``VITALS_SPOOL_DIR``, else ``rlvitals/spool`` in the user's state folder."""
    if named := os.environ.get("VITALS_SPOOL_DIR"):
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "rlvitals" / "spool"


@dataclass
class Parcel:
    """One batch: ``records`` maps kind letters to JSON texts; ``end`` is the RunEnd that closes the attempt and then stands alone."""

    seq: int
    records: dict[bytes, list[bytes]] = field(default_factory=dict)
    end: dict[str, Any] | None = None

    def count(self, kind: bytes) -> int:
        return len(self.records.get(kind, ()))

    def body(self, attempt: str) -> bytes:
        """The JSON of a ``wire.Batch``."""
        dropped: dict[str, int] = {}
        for text in self.records.get(encode.DROPPED, ()):
            dropped |= json.loads(text)
        parts = ((b"rows", encode.ROW), (b"rollouts", encode.ROLLOUT), (b"events", encode.EVENT))
        lists = b"".join(b',"%s":[%s]' % (name, b",".join(self.records.get(kind, ()))) for name, kind in parts)
        head = b'"attempt":%s,"seq":%d,"sent_at":%.3f' % (json.dumps(attempt).encode(), self.seq, time.time())
        return b'{%s%s,"dropped":%s}' % (head, lists, json.dumps(dropped).encode())


class Spool:
    """One attempt's records. One thread appends, another takes and acknowledges. Only the constructors raise."""

    def __init__(self, folder: Path, lock: int, *, limit_bytes: int = LIMIT_BYTES, validate: bool = False) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.opening: dict[str, Any] = {}
        self.url = ""
        self._lock_file = lock
        self._validate = validate
        self._guard = threading.Lock()
        self._main = Stream(folder, "main")
        self._side = Stream(folder, "side")
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._flight: Parcel | None = None
        self._shed: dict[str, int] = {}
        self._shed_told: dict[str, int] = {}
        self.problem: str | None = None
        self._seq = 0
        self._acked = True
        self._places = {"main": [self._main.first] * 2, "side": [self._side.first] * 2}
        self._recall()

    @classmethod
    def create(cls, root: Path, opening: wire.RunStart, url: str, *, limit_bytes: int = LIMIT_BYTES) -> Spool:
        """A new attempt's spool. Raises OSError when ``root`` cannot be written."""
        folder = root / opening.attempt
        folder.mkdir(parents=True, mode=0o700)
        lock = _claim(folder)
        if lock is None:
            raise OSError(f"{folder} is locked by another process")
        spool = cls(folder, lock, limit_bytes=limit_bytes)
        try:
            spool.describe(opening, url)
        except OSError:
            spool.close()
            raise
        return spool

    @classmethod
    def adopt(cls, folder: Path) -> Spool | None:
        """The spool that a dead process left in ``folder``; None while its process lives or when it holds no readable start."""
        lock = _claim(folder)
        if lock is None:
            return None
        spool = cls(folder, lock, validate=True)
        try:
            described = json.loads((folder / "start.json").read_bytes())
            spool.opening, spool.url = described["start"], described["url"]
        except (OSError, ValueError, KeyError, TypeError):
            spool.close()
            return None
        return spool

    def describe(self, opening: wire.RunStart, url: str) -> None:
        """Record how the attempt is opened. Raises OSError."""
        self.opening, self.url = wire.spelled(opening), url
        _replace(self.folder / "start.json", json.dumps({"url": url, "start": self.opening}).encode())

    @property
    def attempt(self) -> str:
        return str(self.opening.get("attempt", self.folder.name))

    def append(self, lines: Sequence[bytes]) -> None:
        """Take whole records (kind letter and JSON, no newline). Never raises: what the disk refuses waits in memory."""
        with self._guard:
            if self._main.size + self._side.size > self.limit_bytes:
                self._make_room()
            waiting = [*self._held, *lines]
            self._held.clear()
            self._held_bytes = 0
            if self._shed != self._shed_told:
                waiting.insert(0, encode.dropped_line(self._shed))
                self._shed_told = dict(self._shed)
            for stream, rollouts in ((self._main, False), (self._side, True)):
                block = [line for line in waiting if line.startswith(encode.ROLLOUT) == rollouts]
                if block and not self._write(stream, block):
                    self._hold(block)

    def sync(self) -> None:
        """Ask the disk to keep what was appended. Never raises."""
        for stream in (self._main, self._side):
            try:
                stream.sync()
            except OSError as error:
                self.problem = str(error)

    def take(self) -> Parcel | None:
        """The batch that awaits its acknowledgement, or the next one; None when everything was acknowledged."""
        with self._guard:
            if self._flight is None:
                self._flight = self._again() if not self._acked else self._next()
            return self._flight

    def acknowledge(self) -> None:
        """The collector has the batch, or refused it for good."""
        with self._guard:
            self._flight = None
            self._acked = True
            self._remember()
            for stream, name in ((self._main, "main"), (self._side, "side")):
                with contextlib.suppress(OSError):
                    stream.discard_before(self._places[name][1])

    @property
    def unsettled(self) -> bool:
        """Whether an append of nothing has something to do: lines to write again, shed counts to report."""
        return bool(self._held) or self._shed != self._shed_told

    @property
    def dropped(self) -> int:
        """Records shed so far."""
        return sum(self._shed.values())

    def shed(self, kind: str) -> int:
        """Records of one kind (rows, rollouts, events) shed so far."""
        return self._shed.get(kind, 0)

    def count_shed(self, kind: str, count: int) -> None:
        """Add ``count`` records that were shed before they came here."""
        with self._guard:
            self._shed[kind] = self._shed.get(kind, 0) + count

    @property
    def pending_bytes(self) -> int:
        """Bytes that no acknowledged batch covers."""
        with self._guard:
            return self._held_bytes + sum(self._left(stream, self._places[name][self._acked]) for stream, name in self._streams())

    def waiting(self) -> dict[str, int]:
        """How many rows, rollouts and events no acknowledged batch covers. Reads the files."""
        with self._guard:
            counts = {"rows": 0, "rollouts": 0, "events": 0}
            names = {encode.ROW: "rows", encode.ROLLOUT: "rollouts", encode.EVENT: "events"}
            for line in self._held:
                counts[names.get(line[:1], "events")] += line[:1] in names
            for stream, name in self._streams():
                place = self._places[name][self._acked]
                while True:
                    lines, place = stream.read(place, SEGMENT_BYTES)
                    if not lines:
                        break
                    for line in lines:
                        if line[:1] in names:
                            counts[names[line[:1]]] += 1
            return counts

    def close(self, *, remove: bool = False) -> None:
        """Let go of the attempt; ``remove`` deletes it."""
        with self._guard:
            self._main.close()
            self._side.close()
            if remove:
                for path in self.folder.glob("*"):
                    with contextlib.suppress(OSError):
                        path.unlink()
                with contextlib.suppress(OSError):
                    self.folder.rmdir()
            _owned.discard(self.folder)
            if self._lock_file >= 0:
                os.close(self._lock_file)
                self._lock_file = -1

    def _streams(self) -> tuple[tuple[Stream, str], ...]:
        return (self._main, "main"), (self._side, "side")

    def _left(self, stream: Stream, place: Place) -> int:
        begun = place.offset if place.segment in stream.segments else 0
        earlier = sum(size for segment, size in stream.sizes() if segment < place.segment)
        return max(0, stream.size - earlier - begun)

    def _write(self, stream: Stream, lines: Sequence[bytes]) -> bool:
        block = b"\n".join(lines) + b"\n"
        for _ in range(2):
            try:
                stream.append(block)
                self.problem = None
                return True
            except OSError as error:
                self.problem = f"{self.folder}: {error.strerror or error}"
                if not self._shed_rollouts():
                    break
        return False

    def _hold(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._held.append(line)
            self._held_bytes += len(line)
        while self._held_bytes > HELD_BYTES:
            oldest = next((line for line in self._held if line.startswith(encode.ROLLOUT)), self._held[0])
            self._held.remove(oldest)
            self._held_bytes -= len(oldest)
            self._count_shed([oldest])

    def _make_room(self) -> None:
        while self._main.size + self._side.size > self.limit_bytes:
            if self._shed_rollouts():
                continue
            if self._side.size > SEGMENT_BYTES // 4:
                self._side.rotate()
            lines = self._main.shed(self._places["main"][1])
            if lines is None:
                self._main.rotate()
                return
            self._count_shed(lines)

    def _shed_rollouts(self) -> bool:
        lines = self._side.shed(self._places["side"][1])
        self._count_shed(lines or ())
        return lines is not None

    def _count_shed(self, lines: Iterable[bytes]) -> None:
        names = {encode.ROW: "rows", encode.ROLLOUT: "rollouts", encode.EVENT: "events"}
        for line in lines:
            if name := names.get(line[:1]):
                self._shed[name] = self._shed.get(name, 0) + 1
            elif line[:1] == encode.DROPPED:
                self._shed_told = {}

    def _next(self) -> Parcel | None:
        lines: list[bytes] = []
        places: dict[str, list[Place]] = {}
        for stream, name in self._streams():
            begin = self._places[name][1]
            found, end = stream.read(begin, PARCEL_BYTES)
            kept = found[:PARCEL_LINES]
            if name == "main":
                kept = _until_end(kept)
            begin = Place(end.segment, end.offset - sum(len(line) + 1 for line in found))
            places[name] = [begin, Place(end.segment, begin.offset + sum(len(line) + 1 for line in kept))]
            if name == "main" and kept and kept[0].startswith(encode.END):
                rest, _ = self._side.read(self._places["side"][1], 1)
                if rest or self._held:
                    kept, places[name] = [], [begin, begin]
            lines.extend(kept)
        if lines:
            self._places = places
            return self._begin(lines)
        if self._held:
            lines = _until_end([self._held.popleft() for _ in range(min(len(self._held), PARCEL_LINES))])
            return self._begin(lines)
        return None

    def _begin(self, lines: Sequence[bytes]) -> Parcel:
        self._seq += 1
        self._acked = False
        self._remember()
        return self._parcel(lines)

    def _again(self) -> Parcel:
        """The batch that a dead process had sent or was about to."""
        return self._parcel([line for stream, name in self._streams() for line in stream.lines_between(*self._places[name])])

    def _parcel(self, lines: Sequence[bytes]) -> Parcel:
        parcel = Parcel(self._seq)
        for line in lines:
            if self._validate and not _is_json(line[1:]):
                continue
            if line.startswith(encode.END):
                parcel.end = json.loads(line[1:])
            else:
                parcel.records.setdefault(line[:1], []).append(line[1:])
        return parcel

    def _remember(self) -> None:
        state = {"seq": self._seq, "acked": self._acked, "places": self._places, "shed": self._shed}
        try:
            _replace(self.folder / "cursor.json", json.dumps(state).encode())
        except OSError as error:
            self.problem = f"{self.folder}: {error.strerror or error}"

    def _recall(self) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            state = json.loads((self.folder / "cursor.json").read_bytes())
            self._places = {name: [Place(*place) for place in state["places"][name]] for name in ("main", "side")}
            self._shed = {str(kind): int(count) for kind, count in state["shed"].items()}
            self._seq, self._acked = int(state["seq"]), bool(state["acked"])


def left_behind(root: Path) -> list[Path]:
    """Folders of attempts under ``root`` that no living process holds, oldest first."""
    found = [path for path in _folders(root) if path not in _owned and not is_held(path)]
    return sorted(found, key=_started_at)


def _folders(root: Path) -> list[Path]:
    try:
        return [path for path in root.iterdir() if (path / "start.json").is_file()]
    except OSError:
        return []


def _started_at(folder: Path) -> float:
    try:
        return (folder / "start.json").stat().st_mtime
    except OSError:
        return 0.0


def _until_end(lines: list[bytes]) -> list[bytes]:
    """``lines`` before the end record; the end record alone when it comes first."""
    at = next((i for i, line in enumerate(lines) if line.startswith(encode.END)), None)
    return lines if at is None else lines[: max(at, 1)]


def _is_json(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(content)
    temporary.replace(path)


def _claim(folder: Path) -> int | None:
    """The file descriptor of the attempt's lock, or None when it is held."""
    if folder in _owned:
        return None
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        if not folder.is_dir():
            return None
        raise
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    _owned.add(folder)
    return lock


def is_held(folder: Path) -> bool:
    """Whether a living process, this one included, writes or sends the attempt in ``folder``."""
    if not folder.is_dir():
        return False
    lock = _claim(folder)
    if lock is None:
        return True
    os.close(lock)
    _owned.discard(folder)
    return False


def forget_after_fork() -> None:
    """In a forked child nothing is held: locks belong to the parent."""
    _owned.clear()
