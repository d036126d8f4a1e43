from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import monitor.client
from monitor.client import leftovers
from monitor.metrics import HISTOGRAM_BY_NAME
from monitor.wire import MAX_METRICS_PER_ROW
from tests.unit.client.receiver import Receiver, Reply, eventually, receiving

NOWHERE = "http://127.0.0.1:9"


BEGIN = """
import monitor.client, os, pathlib, sys, time, signal

def written(text):
    return any(text.encode() in path.read_bytes() for path in pathlib.Path(os.environ["VITALS_SPOOL_DIR"]).rglob("*-0*") if path.is_file())

"""
"""What a child process begins with; ``written`` tells whether a row has reached the spool."""


def child(body: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A process of its own that runs ``body`` with the SDK imported."""
    program = BEGIN + textwrap.dedent(body)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=os.environ | variables, timeout=60)


def test_rows_rollouts_and_events_arrive_and_the_run_ends(collector: Receiver) -> None:
    run = monitor.client.start("p", "n", {"lr": 0.1, "seed": 7}, "grpo", tags=["t"], task_reward="reward.task.mean", aux_rewards=["a"])
    for value in (0.5, float("nan"), 2.5):
        run.log({"x": value})
    run.log({"y": 1.0}, step=10, hists={"adv.hist": [0] * 34})
    run.log_rollouts(10, [{"turns": [("agent", "hi")], "rewards": {"task": 1.0}}])
    run.log_rollouts(10, [monitor.client.Rollout(0, 1, "best", [monitor.client.Turn("agent", "yo")])])
    run.event("regime", 10, lr=0.2)
    run.finish("stopped", "enough")
    assert [row["step"] for row in collector.rows()] == [0, 1, 2, 10]
    assert collector.rows()[1]["values"] == {"x": "NaN"} and collector.rows()[3]["hists"] == {"adv.hist": [0] * 34}
    assert [one["ordinal"] for one in collector.records("rollouts")] == [0, 1]
    assert collector.records("events")[0]["detail"] == {"lr": 0.2}
    assert collector.ends[0]["state"] == "stopped" and collector.ends[0]["reason"] == "enough"
    start = collector.starts[0]
    assert (start["project"], start["name"], start["algorithm"], start["tags"]) == ("p", "n", "grpo", ["t"])
    assert start["config"] == {"lr": 0.1, "seed": 7}
    environment = start["environment"]
    assert environment["seed"] == 7 and environment["packages"]["numpy"] and environment["hardware"]["cpus"] and environment["python"]
    assert run.url == f"{collector.url}/run/{start['run']}"
    assert run.stats == monitor.client.Stats(logged=4, sent=4)


def test_silence_is_announced_and_its_end_is_told(collector: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    with monitor.client.start("p", "n") as run:
        run.quiet("loading", minutes=30)
        run.log({"x": 1.0})
        with run.quiet("evaluation", minutes=2):
            run.log({"y": 1.0})
        with pytest.raises(KeyError), run.quiet("waits for data"):
            raise KeyError
        with run.quiet("nonsense", minutes="soon"):  # type: ignore[arg-type]
            pass
    told = [(one["kind"], one["step"], one["detail"]) for one in collector.records("events")]
    assert told == [
        ("expect", None, {"seconds": 1800.0, "why": "loading"}),
        ("expect", 0, {"seconds": 120.0, "why": "evaluation"}),
        ("unpause", 0, {"why": "evaluation"}),
        ("pause", 1, {"why": "waits for data"}),
        ("unpause", 1, {"why": "waits for data"}),
    ]
    assert "minutes must be a number of minutes above 0, not 'soon'" in capsys.readouterr().err


def test_each_batch_says_when_it_was_sent(collector: Receiver) -> None:
    began = time.time()
    with monitor.client.start("p", "n") as run:
        run.log({"x": 1.0})
    assert [began <= batch["sent_at"] <= time.time() for batch in collector.batches if batch.get("rows")] == [True]


def test_what_changes_after_log_does_not_change_the_row(collector: Receiver) -> None:
    with monitor.client.start("p", "n") as run:
        values, tensor, counts = {"x": 1.0}, torch.tensor(2.0), [0] * 34
        run.log(values | {"t": tensor}, hists={"adv.hist": counts})
        run.log(values)
        values["x"], counts[0] = 9.0, 9
        tensor += 5
    assert [row["values"] for row in collector.rows()] == [{"x": 1.0, "t": 2.0}, {"x": 1.0}]
    assert collector.rows()[0]["hists"]["adv.hist"][0] == 0


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"project": ""}, "project cannot be used: it must not be empty"),
    ({"project": 7}, "project cannot be used: it must be a string, not int"),
    ({"name": "a\nb"}, "name cannot be used"),
    ({"name": "x" * 201}, "at most 200"),
    ({"signal": "fun"}, "signal must be one of reward, teacher_kl, environment_loss, not 'fun'"),
    ({"accepts": ["explode"]}, "accepts must be one of stop, checkpoint, pause, resume, not 'explode'"),
    ({"tags": "abc"}, "tags must be a list of names, not one string"),
    ({"tags": 5}, "tags must be a list of names, not int"),
    ({"aux_rewards": [""]}, r"aux_rewards\[0\] cannot be used"),
    ({"config": [1]}, "config must be a mapping such as a dict, not list"),
    ({"url": "ftp://localhost:8900"}, "is not an address such as http://127.0.0.1:8900; pass url= or set VITALS_URL"),
    ({"url": "my collector"}, "is not an address"),
    ({"url": "collector"}, "is not an address"),
    ({"url": "http://:99"}, "is not an address"),
    ({"url": "http://x:99999"}, "is not an address"),
    ({"token": "a b"}, "the token holds characters"),
    ({"resume": "../x"}, "resume must be 'auto', 'never' or the id of a run"),
    ({"rank": -1}, "rank must be a whole number from 0, not -1"),
    ({"rank": True}, "rank must be a whole number from 0, not True"),
    ({"rank": 1.5}, "rank must be a whole number from 0, not 1.5"),
    ({"rank": "3"}, "rank must be a whole number from 0, not '3'"),
    ({"spool_dir": 5}, "spool_dir must be the path of a folder, not 5"),
    ({"spool_dir": "a\0b"}, "spool_dir must be the path of a folder"),
    ({"token": 5}, "the token holds characters"),
    ({"resume": 5}, "resume must be 'auto', 'never' or the id of a run"),
    ({"url": 5}, "is not an address"),
    ({"spool_dir": "/proc/nowhere"}, "the spool /proc/nowhere cannot be written .*; pass spool_dir= or set VITALS_SPOOL_DIR"),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG)
def test_a_wrong_set_up_fails_at_the_start_with_the_remedy(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(monitor.client.SetupError, match=sentence):
        monitor.client.start(**({"project": "p", "name": "n", "url": NOWHERE} | change))


def test_an_address_may_lack_its_scheme(collector: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = collector.url.removeprefix("http://")
    monkeypatch.setenv("VITALS_URL", bare)
    for options in ({}, {"url": f"{bare}/"}, {"url": bare.replace("127.0.0.1", "localhost")}):
        with monitor.client.start("p", "n", **options) as run:
            run.log({"x": 1.0})
    assert collector.values("x") == [1.0, 1.0, 1.0]


def test_a_config_without_an_end_fails_at_the_start() -> None:
    config: dict[str, Any] = {}
    config["self"] = config
    with pytest.raises(monitor.client.SetupError, match="contains itself"):
        monitor.client.start("p", "n", config, url=NOWHERE)


def test_a_collector_that_is_down_is_one_warning_and_its_rows_are_sent_by_the_next_process(
    spool_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with receiving() as receiver:
        url = receiver.url
    run = monitor.client.start("p", "n", url=url)
    run.log({"x": 1.0})
    eventually(lambda: "no collector takes data" in capsys.readouterr().err)
    run.finish(timeout=3)
    assert "'vitals spool send' sends them" in capsys.readouterr().err
    assert run.stats.pending == 1 and run.url is None
    (waiting,) = leftovers.status(spool_root)
    assert (waiting.project, waiting.name, waiting.rows) == ("p", "n", 1)
    with receiving(int(url.rpartition(":")[2])) as receiver:
        with monitor.client.start("other", "run", url=url) as later:
            later.log({"y": 2.0})
            eventually(lambda: receiver.ends)
        assert receiver.values("x") == [1.0] and receiver.values("y") == [2.0]
        assert {end["attempt"] for end in receiver.ends} == {run.attempt, later.attempt}
    assert leftovers.status(spool_root) == []


def test_log_never_raises(collector: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    run = monitor.client.start("p", "n")
    for wrong in (None, 5, "text", [1, 2]):
        run.log(wrong)  # type: ignore[arg-type]
    run.log({"x": 1.0}, step="seven")  # type: ignore[arg-type]
    run.log({"x": 1.0}, hists={"adv.hist": 5})  # type: ignore[dict-item]
    run.log_rollouts(0, None)  # type: ignore[arg-type]
    run.log_rollouts(0, [{"turns": [("one",)]}])
    run.event("note", detail=object())
    run.log({"x": 2.0}, step=3)
    run.finish()
    assert collector.values("x") == [1.0, 2.0]
    assert run.stats == monitor.client.Stats(logged=7, sent=2, dropped=8)
    assert collector.batches[-1]["dropped"] == {"rows": 5, "values": 1, "rollouts": 2}
    *before, last = capsys.readouterr().err.splitlines()
    assert any("a row was left out" in line for line in before)
    assert last == "vitals: of 'n' 5 rows, 1 value, 2 rollouts could not be used"


def test_the_end_tells_what_the_collector_refused_and_what_found_no_room(
    collector: Receiver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    collector.behave = lambda path, message: Reply(422, b'{"error": "rows: is wrong"}') if message.get("rows") else None
    monkeypatch.setattr("monitor.client.run.MOST_QUEUED_ROLLOUTS", 2)
    with monitor.client.start("p", "n") as run:
        run.log({"x": 1.0})
        run.log({"x": 2.0})
        eventually(lambda: run.stats.refused == 2)
        run.log_rollouts(1, [{"turns": [("agent", "hi")]}] * 5)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2 and told[0].endswith("rows: is wrong; they are left out")
    shed = run.stats.dropped
    assert 1 < shed <= 3
    assert told[1] == f"vitals: of 'n' {shed} rollouts found no room in memory or on disk; 2 rows were refused by the collector"


def test_the_end_of_a_run_that_kept_everything_is_silent(collector: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    with monitor.client.start("p", "n") as run:
        run.log({"x": 1.0})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "step",
    [1.5, math.nan, math.inf, -1, True, np.True_, torch.tensor(True), "7", b"7", [7], np.array([1, 2]), torch.tensor(1.5), 2**53 + 1, len],
    ids=repr,
)
def test_a_step_that_is_no_whole_number_is_refused_by_name(step: Any, collector: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    with monitor.client.start("p", "n") as run:
        run.log({"x": 1.0}, step=3)
        run.log({"x": 2.0}, step=step)
        run.log_rollouts(step, [{"turns": [("agent", "hi")]}])
        run.event("note", step=step)
        run.log({"x": 3.0})
    assert [(row["step"], row["values"]["x"]) for row in collector.rows()] == [(3, 1.0), (4, 3.0)]
    assert collector.records("rollouts") == collector.records("events") == []
    assert run.stats == monitor.client.Stats(logged=3, sent=2, dropped=3)
    assert collector.batches[-1]["dropped"] == {"rows": 1, "rollouts": 1, "events": 1}
    told = capsys.readouterr().err
    for what in ("a row", "a rollout", "an event"):
        assert f"vitals: {what} was left out: step must be a whole number from 0 to 2**53, not " in told
    assert told.count("pass an int") == 3


@pytest.mark.parametrize(
    "step", [7, 7.0, np.int64(7), np.uint8(7), np.float32(7), np.array(7), torch.tensor(7), torch.tensor(7, dtype=torch.uint8)], ids=repr
)
def test_a_whole_number_of_any_library_is_a_step(step: Any, collector: Receiver) -> None:
    with monitor.client.start("p", "n", rank=np.int64(2)) as run:
        run.log({"x": np.float32(0.5), "y": torch.tensor(2), "z": True}, step=step)
        run.log_rollouts(step, [{"turns": [("agent", "hi")]}])
        run.event("note", step=step)
    assert collector.starts[0]["name"] == "n.rank2"
    records = (*collector.rows(), *collector.records("rollouts"), *collector.records("events"))
    assert [record["step"] for record in records] == [7, 7, 7]
    assert collector.rows()[0]["values"] == {"x": 0.5, "y": 2.0, "z": 1}


def test_each_argument_that_cannot_be_used_is_told_by_name_with_the_remedy(collector: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    run = monitor.client.start("p", "n", accepts=["stop"])
    run.log(None)  # type: ignore[arg-type]
    run.log({"x": 1.0}, hists=[1])  # type: ignore[arg-type]
    run.log({"x": 1.0}, hists={"adv.hist": [0.5] * 34})  # type: ignore[dict-item]
    run.log_rollouts(0, {"turns": []})
    run.log_rollouts(0, [{"turns": "hello"}])
    for kind in ("", 5, "x" * 201):
        run.event(kind)  # type: ignore[arg-type]
    for minutes in (math.nan, math.inf, -1, 0, True, "5", [5]):
        run.quiet("why", minutes)  # type: ignore[arg-type]
    run.on("stop", "save")  # type: ignore[arg-type]
    run.on(["stop"], print)  # type: ignore[arg-type]
    run.finish(reason=ValueError("why"), timeout="long")  # type: ignore[arg-type]
    assert [row["values"] for row in collector.rows()] == [{"x": 1.0}]
    assert collector.records("events") == [] and collector.ends[0]["reason"] == "why"
    assert collector.batches[-1]["dropped"] == {"rows": 2, "values": 1, "rollouts": 2, "events": 3}
    told = capsys.readouterr().err
    for sentence in (
        "a row was left out: values must be a mapping such as {'reward.task.mean': 0.5}, not NoneType",
        "a row was left out: hists must be a mapping such as {'adv.hist': [0, 3, ...]}, not list",
        "'adv.hist' is left out of a row: it holds a count that is negative or too large",
        "a rollout was left out: rollouts must be a list of Rollout objects or mappings, not dict",
        "a rollout was left out: the turns of a rollout are a list of (role, text) pairs, not 'hello'",
        "an event was left out: the kind of an event must be a word such as 'checkpoint', not ''",
        "minutes must be a number of minutes above 0, not nan; the silence of 'why' was not announced",
        "on takes a request and what to call for it, not 'stop' and 'save'",
        "on takes a request and what to call for it, not ['stop'] and <built-in function print>",
        "timeout must be a number of seconds above 0, not 'long'; 10 s are taken",
    ):
        assert f"vitals: {sentence}\n" in told


def test_a_callback_that_fails_costs_no_row_and_its_request_stays_open(collector: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    collector.requests = ["checkpoint"]
    with monitor.client.start("p", "n", accepts=["checkpoint"]) as run:
        run.on("checkpoint", lambda: 1 // 0)
        run.log({"x": 0.0})
        eventually(lambda: run.requests)
        run.log({"x": 1.0})
    assert collector.values("x") == [0.0, 1.0] and run.stats.dropped == 0
    assert collector.records("events") == []
    assert "what was to be called for 'checkpoint' failed, it stays open: ZeroDivisionError" in capsys.readouterr().err


def test_a_bad_value_costs_only_itself(collector: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    bins = [1] * HISTOGRAM_BY_NAME["adv.hist"].bins
    run = monitor.client.start("p", "n")
    run.log(
        {"x": 1.0, "y" * 300: 2.0, "z": "high", 7: 3.0, "inf": "Infinity", "huge": 10**400}, hists={"adv.hist": bins, "iw.hist": [1, 2], "own": [3]}
    )
    run.log({f"m{i}": float(i) for i in range(MAX_METRICS_PER_ROW + 2)})
    run.log({"z": object()})
    run.finish()
    first, second = collector.rows()
    assert first["values"] == {"x": 1.0, "inf": "Infinity"} and first["hists"] == {"adv.hist": bins}
    assert len(second["values"]) == MAX_METRICS_PER_ROW
    assert collector.batches[-1]["dropped"] == {"values": 9, "rows": 1}
    told = capsys.readouterr().err
    assert "'z' is left out of a row: 'high' is not a number" in told and "must be a string, not int" in told
    assert f"at most {MAX_METRICS_PER_ROW} metrics" in told and "must be 66" in told and "no histogram of the catalogue" in told
    assert told.count(f"at most {MAX_METRICS_PER_ROW} metrics") == 1


def test_a_finished_or_disabled_run_takes_everything_and_sends_nothing(collector: Receiver) -> None:
    run = monitor.client.start("p", "n")
    run.finish()
    for quiet in (run, monitor.client.Run.disabled()):
        quiet.log({"x": 1.0})
        quiet.log_rollouts(0, [{}])
        quiet.event("note")
        quiet.finish()
    assert collector.rows() == [] and len(collector.ends) == 1
    assert monitor.client.Run.disabled().url is None and not monitor.client.Run.disabled().should_stop
    assert monitor.client.Run.disabled().stats == monitor.client.Stats()


def test_only_rank_0_writes_unless_a_rank_is_given(collector: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    with monitor.client.start("p", "n") as quiet:
        quiet.log({"x": 1.0})
    assert collector.starts == []
    with monitor.client.start("p", "n", rank=3):
        pass
    monkeypatch.setenv("RANK", "0")
    with monitor.client.start("p", "n"):
        pass
    assert [start["name"] for start in collector.starts] == ["n.rank3", "n"]


def test_several_runs_in_one_process_do_not_mix(collector: Receiver) -> None:
    with monitor.client.start("p", "a") as first, monitor.client.start("p", "b") as second:
        for step in range(20):
            first.log({"x": step})
            second.log({"x": 100 + step})
    runs = {start["attempt"]: start["name"] for start in collector.starts}
    seen: dict[str, list[float]] = {"a": [], "b": []}
    for batch in collector.batches:
        seen[runs[batch["attempt"]]] += [row["values"]["x"] for row in batch["rows"]]
    assert seen == {"a": list(range(20)), "b": list(range(100, 120))}


def test_an_exception_ends_the_run_as_crashed_with_its_reason(collector: Receiver) -> None:
    with pytest.raises(RuntimeError), monitor.client.start("p", "n"):
        raise RuntimeError("out of luck")
    with pytest.raises(KeyboardInterrupt), monitor.client.start("p", "n"):
        raise KeyboardInterrupt
    assert [(end["state"], end["reason"]) for end in collector.ends] == [("crashed", "RuntimeError: out of luck"), ("stopped", "KeyboardInterrupt: ")]


def test_the_end_of_the_process_finishes_its_runs(collector: Receiver) -> None:
    done = child("run = monitor.client.start('p', 'n'); run.log({'x': 1.0})")
    assert (done.returncode, done.stderr) == (0, "")
    failed = child("run = monitor.client.start('p', 'n'); run.log({'x': 2.0}); raise OSError('no space')")
    assert failed.returncode == 1
    assert collector.values("x") == [1.0, 2.0]
    assert [(end["state"], end["reason"]) for end in collector.ends] == [("finished", None), ("crashed", "OSError: no space")]


def test_the_end_of_the_process_does_not_wait_long_for_a_collector_that_is_down(spool_root: Path) -> None:
    done = child("monitor.client.start('p', 'n').log({'x': 1.0})", VITALS_URL=NOWHERE, VITALS_EXIT_TIMEOUT_S="3")
    assert done.returncode == 0 and "'vitals spool send' sends them" in done.stderr
    assert [one.rows for one in leftovers.status(spool_root)] == [1]


def test_a_killed_process_loses_nothing_that_reached_the_spool_and_its_successor_continues_the_run(collector: Receiver, spool_root: Path) -> None:
    killed = child(
        """
        run = monitor.client.start("p", "n")
        for step in range(5): run.log({"x": step})
        while run.stats.sent < 5: time.sleep(0.01)
        run.log({"x": 5})
        while not written('"x":5'): time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    assert killed.returncode == -9
    with monitor.client.start("p", "n") as run:
        run.log({"x": 6})
    assert sorted(set(collector.values("x"))) == list(range(7))
    first, second = (start for start in collector.starts if start["attempt"] != collector.starts[0]["attempt"]), collector.starts[0]
    assert {one["run"] for one in first} == {second["run"]} == {run.uid}
    assert list(spool_root.glob("*/start.json")) == []


def test_rows_of_a_killed_attempt_arrive_before_the_next_attempt_opens(spool_root: Path) -> None:
    killed = child(
        """
        run = monitor.client.start("p", "n")
        run.log({"x": 0})
        while not written('"x":0'): time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        VITALS_URL=NOWHERE,
    )
    assert killed.returncode == -9
    with receiving() as receiver, monitor.client.start("p", "n", url=receiver.url) as run:
        run.log({"x": 1})
        eventually(lambda: len(receiver.rows()) == 2)
        attempts = [start["attempt"] for start in receiver.starts]
    assert attempts[-1] == run.attempt and len(attempts) == 2
    assert receiver.values("x") == [0, 1]


def test_a_finished_run_is_not_continued_and_a_crashed_one_is(collector: Receiver) -> None:
    def uid(**options: Any) -> str:
        with monitor.client.start("p", "n", **options) as run:
            return run.uid

    first = uid()
    assert uid() != first
    with pytest.raises(RuntimeError), monitor.client.start("p", "n") as crashed:
        raise RuntimeError
    assert uid() == crashed.uid
    assert uid(resume="my-run_1") == "my-run_1"
    assert uid(resume="never") != crashed.uid


def test_a_living_run_of_the_same_name_is_not_continued(collector: Receiver) -> None:
    with monitor.client.start("p", "n") as one, monitor.client.start("p", "n") as two:
        assert one.uid != two.uid


def test_a_forked_child_logs_nothing_says_so_and_may_start_a_run_of_its_own(collector: Receiver) -> None:
    done = child(
        """
        run = monitor.client.start("p", "parent")
        run.log({"x": 1.0})
        time.sleep(0.5)
        pid = os.fork()
        if pid == 0:
            run.log({"x": 100.0})
            run.finish()
            own = monitor.client.start("p", "child")
            own.log({"x": 2.0})
            own.finish(timeout=60)
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        run.log({"x": 3.0})
        run.finish(timeout=60)
        """
    )
    assert done.returncode == 0, done.stderr
    assert "its child" in done.stderr and "Start a run of its own" in done.stderr
    assert sorted(collector.values("x")) == [1.0, 2.0, 3.0]
    assert sorted(start["name"] for start in collector.starts) == ["child", "parent"]
    assert len(collector.ends) == 2


def test_requests_reach_only_a_run_that_accepts_them(collector: Receiver) -> None:
    collector.requests = ["stop", "checkpoint"]
    with monitor.client.start("p", "deaf") as deaf, monitor.client.start("p", "obedient", accepts=["stop", "checkpoint"]) as obedient:
        deaf.log({"x": 1.0})
        obedient.log({"x": 1.0})
        eventually(lambda: obedient.should_stop)
        eventually(lambda: deaf.stats.sent)
        assert obedient.requests == {"stop", "checkpoint"}
        assert not deaf.should_stop and deaf.requests == frozenset()


def test_a_callback_runs_in_log_once_per_request_and_reports_that_it_obeyed(collector: Receiver) -> None:
    collector.requests = ["checkpoint"]
    calls: list[int] = []
    with monitor.client.start("p", "n", accepts=["checkpoint"]) as run:
        run.on("checkpoint", lambda: calls.append(1))
        run.log({"x": 0.0})
        eventually(lambda: run.requests)
        assert calls == []
        for _ in range(3):
            run.log({"x": 1.0})
        assert calls == [1]
        collector.requests = []
        run.log({"x": 1.0})
        eventually(lambda: not run.requests)
        run.log({"x": 1.0})
        collector.requests = ["checkpoint"]
        run.log({"x": 1.0})
        eventually(lambda: run.requests)
        run.log({"x": 1.0})
        assert calls == [1, 1]
    done = [event for event in collector.records("events") if event["kind"] == "request_done"]
    assert [event["detail"] for event in done] == [{"request": "checkpoint"}] * 2


def test_the_token_is_never_written_to_disk(collector: Receiver, spool_root: Path) -> None:
    collector.behave = lambda path, message: Reply(500)
    run = monitor.client.start("p", "n", token="very-secret-token")
    run.log({"x": 1.0})
    eventually(lambda: any(header.get("Authorization") == "Bearer very-secret-token" for header in collector.headers))
    run.finish(timeout=0.3)
    assert all(b"very-secret-token" not in path.read_bytes() for path in spool_root.rglob("*") if path.is_file())


def test_secrets_on_the_command_line_are_not_recorded(collector: Receiver) -> None:
    child("sys.argv = ['train', '--api-key', 'abc', '--lr', '1', '--token=xyz']; monitor.client.start('p', 'n').finish()")
    assert collector.starts[0]["environment"]["command"] == ["train", "--api-key", "***", "--lr", "1", "--token=***"]
    assert json.dumps(collector.starts[0]).count("xyz") == 0
