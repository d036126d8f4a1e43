from __future__ import annotations

import json
import resource
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.client import encode, stream
from monitor.client.spool import Parcel, Spool, left_behind
from monitor.wire import RunStart


def opening(attempt: str = "a1") -> RunStart:
    return RunStart(run="r1", attempt=attempt, project="p", name="n", started_at=1.0)


def row(step: int, size: int = 1) -> bytes:
    return encode.row_line(step, float(step), {"x" * size: step}, {})


def rollout(ordinal: int, size: int = 10) -> bytes:
    return encode.rollout_line(0, ordinal, {"turns": [("agent", "y" * size)]})


def steps(parcel: Parcel | None) -> list[int]:
    return [json.loads(text)["step"] for text in parcel.records.get(encode.ROW, ())] if parcel else []


def drained(spool: Spool) -> list[Parcel]:
    """Take and acknowledge everything."""
    parcels = []
    while (parcel := spool.take()) is not None:
        parcels.append(parcel)
        spool.acknowledge()
    return parcels


def again(spool: Spool) -> Spool:
    """The spool as the next process finds it."""
    spool.close()
    found = Spool.adopt(spool.folder)
    assert found is not None
    return found


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Writing past ``size`` bytes of a file fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_records_leave_in_order_once_acknowledged(tmp_path: Path) -> None:
    spool = Spool.create(tmp_path, opening(), "http://c")
    assert spool.take() is None
    spool.append([row(0), rollout(0), row(1)])
    first = spool.take()
    assert first is not None and first.seq == 1 and steps(first) == [0, 1] and first.count(encode.ROLLOUT) == 1
    spool.append([row(2)])
    assert spool.take() is first
    spool.acknowledge()
    second = spool.take()
    assert second is not None and second.seq == 2 and steps(second) == [2]
    body = json.loads(second.body("a1"))
    assert body["rows"] == [{"step": 2, "at": 2.0, "values": {"x": 2}, "hists": {}}] and body["seq"] == 2 and body["attempt"] == "a1"
    spool.acknowledge()
    assert spool.take() is None and spool.pending_bytes == 0


def test_the_next_process_sends_the_unacknowledged_batch_under_its_number_then_the_rest(tmp_path: Path) -> None:
    spool = Spool.create(tmp_path, opening(), "http://c")
    spool.append([row(0)])
    spool.take()
    spool.acknowledge()
    spool.append([row(1), row(2)])
    spool.take()
    spool.append([row(3)])
    spool = again(spool)
    assert spool.opening["run"] == "r1" and spool.url == "http://c"
    assert spool.waiting() == {"rows": 3, "rollouts": 0, "events": 0}
    assert [(parcel.seq, steps(parcel)) for parcel in drained(spool)] == [(2, [1, 2]), (3, [3])]


Deed = st.one_of(st.integers(1, 5), st.sampled_from(["take", "acknowledge", "restart"]))


@given(st.lists(Deed, max_size=40))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_between_every_row_leaves_once_and_in_order(tmp_path_factory: pytest.TempPathFactory, deeds: list[int | str]) -> None:
    spool = Spool.create(tmp_path_factory.mktemp("spool"), opening(), "http://c")
    spool_bytes, stream.SEGMENT_BYTES = stream.SEGMENT_BYTES, 200
    try:
        written = 0
        delivered: dict[int, list[int]] = {}
        for deed in deeds:
            if isinstance(deed, int):
                spool.append([row(written + i) for i in range(deed)])
                written += deed
            elif deed == "restart":
                spool = again(spool)
            elif (parcel := spool.take()) is not None:
                assert delivered.setdefault(parcel.seq, steps(parcel)) == steps(parcel)
                if deed == "acknowledge":
                    spool.acknowledge()
        for parcel in drained(spool):
            assert delivered.setdefault(parcel.seq, steps(parcel)) == steps(parcel)
        assert [step for seq in sorted(delivered) for step in delivered[seq]] == list(range(written))
        assert spool.pending_bytes == 0
        spool.close(remove=True)
        assert not spool.folder.exists()
    finally:
        stream.SEGMENT_BYTES = spool_bytes


def test_a_torn_last_line_is_not_sent_and_does_not_harm_the_others(tmp_path: Path) -> None:
    spool = Spool.create(tmp_path, opening(), "http://c")
    spool.append([row(0), row(1)])
    main = next(spool.folder.glob("main-*"))
    main.write_bytes(main.read_bytes() + b'R{"step":2,"at"')
    spool = again(spool)
    spool.append([row(3)])
    assert [step for parcel in drained(spool) for step in steps(parcel)] == [0, 1, 3]


def test_a_line_that_the_disk_garbled_is_left_out(tmp_path: Path) -> None:
    spool = Spool.create(tmp_path, opening(), "http://c")
    spool.append([row(0), row(1), row(2)])
    main = next(spool.folder.glob("main-*"))
    main.write_bytes(main.read_bytes().replace(row(1), b"\0" * len(row(1))))
    assert [step for parcel in drained(again(spool)) for step in steps(parcel)] == [0, 2]


def test_without_a_readable_cursor_everything_is_sent_again(tmp_path: Path) -> None:
    spool = Spool.create(tmp_path, opening(), "http://c")
    spool.append([row(0), row(1)])
    spool.take()
    spool.acknowledge()
    (spool.folder / "cursor.json").write_bytes(b"")
    assert [step for parcel in drained(again(spool)) for step in steps(parcel)] == [0, 1]


def test_the_end_leaves_last_and_alone(tmp_path: Path) -> None:
    spool = Spool.create(tmp_path, opening(), "http://c")
    spool.append([row(0), rollout(0), encode.end_line("finished", 9.0, None)])
    first, last = drained(spool)
    assert steps(first) == [0] and first.count(encode.ROLLOUT) == 1 and first.end is None
    assert last.end == {"state": "finished", "at": 9.0, "reason": None} and last.records == {}


def test_above_the_limit_the_oldest_rollouts_go_first_and_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SEGMENT_BYTES", 1000)
    spool = Spool.create(tmp_path, opening(), "http://c", limit_bytes=8000)
    for i in range(40):
        spool.append([row(i), rollout(i, 300)])
    parcels = drained(spool)
    kept = [json.loads(text)["ordinal"] for parcel in parcels for text in parcel.records.get(encode.ROLLOUT, ())]
    assert [step for parcel in parcels for step in steps(parcel)] == list(range(40))
    assert kept == list(range(40 - len(kept), 40)) and 0 < len(kept) < 40
    assert spool.dropped == spool.shed("rollouts") == 40 - len(kept)
    told = [json.loads(parcel.body("a1"))["dropped"] for parcel in parcels]
    assert max(one.get("rollouts", 0) for one in told) == 40 - len(kept)


def test_rows_are_shed_only_when_no_rollout_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SEGMENT_BYTES", 1000)
    spool = Spool.create(tmp_path, opening(), "http://c", limit_bytes=5000)
    for i in range(100):
        spool.append([row(i, 100)])
    spool.append([row(100)])
    kept = [step for parcel in drained(spool) for step in steps(parcel)]
    assert kept == list(range(101 - len(kept), 101)) and len(kept) < 60
    assert spool.shed("rows") == 101 - len(kept)
    assert spool.dropped == 101 - len(kept)
    assert again(spool).dropped == 101 - len(kept)


def test_what_the_disk_refuses_waits_in_memory_and_is_sent_from_there(tmp_path: Path) -> None:
    spool = Spool.create(tmp_path, opening(), "http://c")
    spool.append([row(0)])
    with files_limited_to(10):
        spool.append([row(1), rollout(0)])
        assert spool.problem is not None and "File too large" in spool.problem
        assert spool.unsettled
        assert [step for parcel in drained(spool) for step in steps(parcel)] == [0, 1]
        spool.append([row(2)])
    spool.append([row(3)])
    assert not spool.unsettled and spool.problem is None
    assert [step for parcel in drained(spool) for step in steps(parcel)] == [2, 3]
    assert spool.dropped == 0


def test_memory_is_bounded_while_the_disk_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.client.spool.HELD_BYTES", 2000)
    spool = Spool.create(tmp_path, opening(), "http://c")
    with files_limited_to(0):
        for i in range(20):
            spool.append([row(i), rollout(i, 300)])
        kept = drained(spool)
    assert [step for parcel in kept for step in steps(parcel)] == list(range(20))
    assert spool.shed("rollouts") > 10 and spool.shed("rows") == 0


def test_a_full_disk_in_the_middle_of_a_block_loses_and_doubles_nothing(tmp_path: Path) -> None:
    spool = Spool.create(tmp_path, opening(), "http://c")
    spool.append([row(0)])
    used = next(spool.folder.glob("main-*")).stat().st_size
    with files_limited_to(used + 20):
        spool.append([row(1), row(2)])
    spool.append([row(3)])
    spool = again(spool)
    assert [step for parcel in drained(spool) for step in steps(parcel)] == [0, 1, 2, 3]


def test_a_living_process_keeps_its_attempt(tmp_path: Path) -> None:
    spool = Spool.create(tmp_path, opening(), "http://c")
    assert left_behind(tmp_path) == [] and Spool.adopt(spool.folder) is None
    look = f"from monitor.client.spool import left_behind; from pathlib import Path; print(len(left_behind(Path({str(tmp_path)!r}))))"

    def seen() -> str:
        return subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout.strip()

    assert seen() == "0"
    spool.close()
    assert seen() == "1" and left_behind(tmp_path) == [spool.folder]


def test_a_folder_without_a_start_is_no_attempt(tmp_path: Path) -> None:
    (tmp_path / "names").mkdir()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "start.json").write_text("{")
    assert Spool.adopt(tmp_path / "odd") is None
    assert Spool.adopt(tmp_path / "gone") is None
    assert left_behind(tmp_path / "nowhere") == []


def test_lines_are_on_disk_after_a_sigkill(tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import os, signal
        from pathlib import Path
        from monitor.client.spool import Spool
        from monitor.client import encode
        from monitor.wire import RunStart
        spool = Spool.create(Path({str(tmp_path)!r}), RunStart("r", "killed", "p", "n", 1.0), "http://c")
        spool.append([encode.row_line(i, 1.0, {{"x": i}}, {{}}) for i in range(5)])
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    (folder,) = left_behind(tmp_path)
    spool = Spool.adopt(folder)
    assert [step for parcel in drained(spool) for step in steps(parcel)] == list(range(5))
