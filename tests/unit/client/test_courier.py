from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monitor.cli import main
from monitor.client import encode, leftovers
from monitor.client.courier import Courier, Voice
from monitor.client.spool import Spool
from monitor.client.transport import Transport
from monitor.wire import RunStart
from tests.unit.client.receiver import Receiver, Reply, receiving


def spool_with(root: Path, url: str, rows: int = 3, attempt: str = "a1") -> Spool:
    spool = Spool.create(root, RunStart("r1", attempt, "p", "n", 1.0), url)
    spool.append([encode.row_line(i, 1.0, {"x": i}, {}) for i in range(rows)])
    return spool


@pytest.fixture
def courier(tmp_path: Path, collector: Receiver) -> Iterator[Courier]:
    transport = Transport(collector.url, "s3cret")
    yield Courier(spool_with(tmp_path, collector.url), transport, Voice(), jitter=lambda: 1.0)
    transport.close()


def run_out(courier: Courier) -> list[float]:
    """Step without waiting until everything is delivered; the pauses it would have made."""
    pauses = []
    for _ in range(50):
        pause = courier.step()
        if pause is None:
            return pauses
        pauses.append(pause)
    raise AssertionError("it does not come to an end")


def once(reply: Reply, verb: str = "/batches") -> Any:
    """A behaviour that answers ``reply`` to the first message whose path ends in ``verb``."""
    done: list[bool] = []

    def behave(path: str, message: dict[str, Any]) -> Reply | None:
        if path.endswith(verb) and not done:
            done.append(True)
            return reply
        return None

    return behave


def test_opens_sends_and_closes(courier: Courier, collector: Receiver) -> None:
    assert run_out(courier) == [0.0, 0.0]
    assert courier.page == f"{collector.url}/run/r1"
    assert collector.starts[0]["attempt"] == "a1" and collector.values("x") == [0, 1, 2] and courier.rows == 3
    courier.spool.append([encode.end_line("crashed", 2.0, "why")])
    assert courier.step() is None and courier.done
    assert collector.ends == [{"attempt": "a1", "state": "crashed", "at": 2.0, "reason": "why"}]
    assert {one["Authorization"] for one in collector.headers} == {"Bearer s3cret"}


FAULTS = {
    "500": Reply(500, b"boom"),
    "503 in HTML": Reply(503, b"<html>", {"Content-Type": "text/html"}),
    "429": Reply(429, b"{}"),
    "408": Reply(408, b"{}"),
    "garbage": Reply(200, b"\x00\xff not json"),
    "another server's JSON": Reply(200, b'{"hello": "world"}'),
    "a list": Reply(200, b"[]"),
    "nothing": Reply(200, b""),
    "half a body": Reply(200, b'{"accepted": 3, "duplicate": 0, "refused": [], "requests": []}', cut=20),
    "a redirect": Reply(302, b"", {"Location": "http://127.0.0.1:1/"}),
    "no token": Reply(401, b'{"detail": "who are you?"}'),
}


@pytest.mark.parametrize("verb", ["/runs", "/batches"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_collector_gets_the_same_message_again(courier: Courier, collector: Receiver, fault: str, verb: str) -> None:
    collector.behave = once(FAULTS[fault], verb)
    pauses = run_out(courier)
    assert sum(pause > 0 for pause in pauses) == 1
    assert collector.values("x") == [0, 1, 2] and [batch["seq"] for batch in collector.batches] == [1]
    assert courier.refused == 0


@pytest.mark.parametrize(("token", "told"), [("wrong", "does not accept the token it was sent"), (None, "wants a token; set VITALS_TOKEN")])
def test_a_token_that_is_wrong_is_not_called_missing(
    token: str | None, told: str, tmp_path: Path, collector: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    collector.behave = lambda path, message: Reply(401, b'{"error": "no"}')
    transport = Transport(collector.url, token)
    Courier(spool_with(tmp_path, collector.url), transport, Voice()).step()
    transport.close()
    assert capsys.readouterr().err == f"vitals: the collector at {collector.url} {told} (HTTP 401: no). Rows are kept\n"


def test_retry_after_is_obeyed_and_pauses_grow_up_to_a_limit(courier: Courier, collector: Receiver) -> None:
    collector.behave = lambda path, message: Reply(429, b"", {"Retry-After": "7"})
    assert [courier.step() for _ in range(3)] == [7.0, 7.0, 7.0]
    collector.behave = lambda path, message: Reply(500)
    pauses = [courier.step() for _ in range(20)]
    assert pauses == sorted(pauses) and pauses[-1] == 30.0
    collector.behave = lambda path, message: Reply(503, b"", {"Retry-After": "soon"})
    assert courier.step() == 30.0


def test_pauses_are_jittered(tmp_path: Path) -> None:
    courier = Courier(spool_with(tmp_path, "http://127.0.0.1:9"), Transport("http://127.0.0.1:9", None), Voice())
    pauses = {courier.step() for _ in range(30)}
    assert len(pauses) > 25 and all(pause is not None and 0.125 <= pause <= 30 for pause in pauses)


def test_an_unknown_attempt_is_opened_again_and_its_batch_sent_again(courier: Courier, collector: Receiver) -> None:
    collector.behave = once(Reply(404, b'{"detail": "no such run"}'))
    run_out(courier)
    assert len(collector.starts) == 2 and collector.values("x") == [0, 1, 2]


def test_an_address_without_a_collector_is_tried_again_with_pauses(courier: Courier, collector: Receiver) -> None:
    collector.behave = lambda path, message: Reply(404, b"<html>not here</html>")
    assert [courier.step(), courier.step()] == [0.25, 0.5]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_batch_is_told_once_counted_and_does_not_block(
    courier: Courier, collector: Receiver, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    collector.behave = lambda path, message: Reply(status, b'{"detail": "rows: is wrong"}') if message.get("seq") in (1, 2) else None
    for i in (3, 4):
        run_out(courier)
        courier.spool.append([encode.row_line(i, 1.0, {"x": i}, {})])
    run_out(courier)
    assert collector.values("x") == [4] and (courier.refused, courier.refused_rows, courier.rows) == (4, 4, 1)
    (told,) = capsys.readouterr().err.splitlines()
    assert "refused a batch of 3 records" in told and "rows: is wrong" in told


def test_a_refused_row_is_told_by_name_and_counted(courier: Courier, collector: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    refusal = {"kind": "row", "index": 1, "field": "values.x", "reason": "'abc' is not a number"}
    answer = json.dumps({"accepted": 2, "duplicate": 0, "refused": [refusal, refusal], "requests": []}).encode()
    collector.behave = once(Reply(200, answer))
    run_out(courier)
    assert (courier.rows, courier.refused) == (1, 2)
    assert capsys.readouterr().err == "vitals: the collector left out a row: values.x: 'abc' is not a number\n"


def test_a_batch_of_which_nothing_is_kept_names_each_refusal(courier: Courier, collector: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    refusals = [{"kind": "row", "index": i, "field": f"values.{i}", "reason": "is wrong"} for i in range(3)]
    answer = json.dumps({"error": "nothing", "field": "values.0", "accepted": 0, "duplicate": 0, "refused": refusals, "requests": ["stop"]}).encode()
    collector.behave = once(Reply(422, answer))
    run_out(courier)
    assert (courier.rows, courier.refused, courier.refused_rows, courier.requests) == (0, 3, 3, {"stop"})
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_a_refused_start_keeps_the_rows(courier: Courier, collector: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    collector.behave = lambda path, message: Reply(422, b'{"detail": "project: is empty"}')
    assert courier.step() == 300.0
    assert "project: is empty" in capsys.readouterr().err and courier.spool.pending_bytes > 0


def test_an_unreachable_collector_is_told_once_and_its_return_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with receiving() as receiver:
        port = receiver.server.server_port
    courier = Courier(spool_with(tmp_path, f"http://127.0.0.1:{port}"), Transport(f"http://127.0.0.1:{port}", None), Voice())
    for _ in range(3):
        pause = courier.step()
        assert pause is not None and pause > 0
    (told,) = capsys.readouterr().err.splitlines()
    assert f"no collector takes data at http://127.0.0.1:{port}" in told
    with receiving(port) as receiver:
        run_out(courier)
        courier.transport.close()
        assert receiver.values("x") == [0, 1, 2]
    assert "answers again" in capsys.readouterr().err


def test_a_connection_that_the_server_closed_meanwhile_is_opened_again(courier: Courier, collector: Receiver) -> None:
    collector.behave = lambda path, message: None
    courier.step()
    port = collector.server.server_port
    collector.close()
    with receiving(port) as successor:
        assert run_out(courier) == [0.0]
        assert successor.values("x") == [0, 1, 2]


def test_a_beat_asks_for_requests_without_taking_a_number(courier: Courier, collector: Receiver) -> None:
    run_out(courier)
    collector.requests = ["stop"]
    courier.beat()
    assert courier.requests == {"stop"} and collector.batches[-1]["rows"] == [] and collector.batches[-1]["seq"] == 0


def test_what_dead_processes_left_is_listed_and_sent_oldest_first(tmp_path: Path, collector: Receiver) -> None:
    for number in (1, 2):
        spool = spool_with(tmp_path, collector.url, rows=number, attempt=f"a{number}")
        spool.append([encode.end_line("finished", 2.0, None)] if number == 1 else [])
        spool.close()
    assert [(one.project, one.name, one.rows) for one in leftovers.status(tmp_path)] == [("p", "n", 1), ("p", "n", 2)]
    told: list[leftovers.Sent] = []
    sent = leftovers.send(tmp_path, tell=told.append)
    assert sent == told and [(one.rows, one.problem) for one in sent] == [(1, ""), (2, "")]
    assert [start["attempt"] for start in collector.starts] == ["a1", "a2"] and len(collector.ends) == 1
    assert leftovers.status(tmp_path) == [] and list(tmp_path.glob("a*")) == []


def test_what_cannot_be_sent_stays(tmp_path: Path) -> None:
    spool_with(tmp_path, "http://127.0.0.1:9").close()
    (sent,) = leftovers.send(tmp_path, timeout=0.3)
    assert "did not take it" in sent.problem and len(leftovers.status(tmp_path)) == 1


def test_sending_by_hand_names_each_run_before_it_waits_for_it(tmp_path: Path, collector: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        spool_with(tmp_path, "http://127.0.0.1:9", rows=number, attempt=f"a{number}").close()
    assert main(["spool", "send", "--folder", str(tmp_path), "--url", collector.url]) == 0
    told, progress = capsys.readouterr()
    assert told == "p/n: 1 row sent\np/n: 2 rows sent\n"
    first, second = progress.splitlines()
    assert first.startswith("p/n: sending 1 row, ") and second.startswith("p/n: sending 2 rows, ")
    assert first.endswith(f" bytes) to {collector.url}")


def test_leftovers_may_go_to_another_address(tmp_path: Path, collector: Receiver) -> None:
    spool_with(tmp_path, "http://127.0.0.1:9").close()
    assert leftovers.send(tmp_path, only_for="http://elsewhere:1") == []
    assert [one.problem for one in leftovers.send(tmp_path, url=collector.url)] == [""]
    assert collector.values("x") == [0, 1, 2]
