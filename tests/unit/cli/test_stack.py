"""What is checked before anything of the stack is started."""

from __future__ import annotations

import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from monitor.cli import main, stack
from monitor.cli.errors import CommandError
from monitor.cli.supervisor import Process, Supervisor
from monitor.settings import Settings


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"VITALS_SLACK_WEBHOOK_URL": "hooks.slack.com/x"}, "VITALS_SLACK_WEBHOOK_URL"),
        ({"VITALS_WEBHOOK_URL": "http://127.0.0.1:9/x"}, "VITALS_ALLOW_PRIVATE_WEBHOOKS"),
        ({"VITALS_WEBHOOK_URL": "http://localhost/x"}, "VITALS_ALLOW_PRIVATE_WEBHOOKS"),
        ({"VITALS_WEBHOOK_URL": "https://example.org/x", "VITALS_WEBHOOK_SECRET": "not base64"}, "VITALS_WEBHOOK_SECRET"),
        ({"VITALS_WEBHOOK_URL": "https://example.org/x", "VITALS_WEBHOOK_SECRET": "abc"}, "WEBHOOK_SECRET: .* this is 2 bytes; `echo"),
        ({"VITALS_WEBHOOK_SECRET": "abc"}, "VITALS_WEBHOOK_SECRET: .* this is 2 bytes; `echo"),
        ({"VITALS_RULES": "/no/such/file.toml"}, "VITALS_RULES"),
    ],
)
def test_a_wrong_channel_or_rules_file_is_said_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], named: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    supervisor, settings = Supervisor(lambda line: None), Settings(port=0, data_dir=tmp_path / "data")
    with pytest.raises(CommandError, match=named):
        stack.start_stack(supervisor, settings, lambda line: None)
    assert not (tmp_path / "data").exists()


def test_a_folder_has_one_supervisor(tmp_path: Path) -> None:
    with stack.only_one(tmp_path), pytest.raises(CommandError, match="already runs in"), stack.only_one(tmp_path):
        pass
    with stack.only_one(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="choose another with --data-dir"), stack.only_one(tmp_path / "file" / "data"):
        pass


def test_a_part_that_ends_says_why_and_is_started_again_soon(tmp_path: Path) -> None:
    told: list[str] = []
    supervisor = Supervisor(told.append)
    part = Process("worker", [sys.executable, "-c", "print('VITALS_X: is wrong.'); raise SystemExit(2)"], tmp_path / "log", lambda: True)
    supervisor.start(part)
    deadline = time.monotonic() + 20
    while part.alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    supervisor.watch()
    supervisor.stop()
    assert "VITALS_X: is wrong." in told[-1] and "again in 0.25 s" in told[-1]


@contextmanager
def echo() -> Iterator[str]:
    """The address of a listener that gives back what it is sent, as a TCP connection to itself does."""

    class Echo(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(self.request.recv(4096))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_what_does_not_speak_http_is_no_collector(capsys: pytest.CaptureFixture[str]) -> None:
    with echo() as address:
        assert not stack.answers(address)
        with pytest.raises(OSError, match="does not speak HTTP"):
            stack.get_json(address)
        for words in (["runs"], ["alerts"]):
            assert main([*words, "--url", address]) == 2
            assert "no collector answers" in capsys.readouterr().err
