from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from monitor.cli import COMMANDS, main
from monitor.cli.runs import _cells, table
from tests.unit.client.receiver import Reply, receiving


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_teaches_by_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert f"vitals {name}" in told.split("examples:")[1]


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    told = capsys.readouterr().out
    assert all(name in told for name in COMMANDS)


def test_the_help_needs_no_third_party_package() -> None:
    probe = "import sys; from monitor.cli import parser; parser(); print([m for m in ('fastapi', 'sqlalchemy', 'torch', 'dash') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_wrong_setting_is_one_sentence_and_exit_code_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("VITALS_PORT", "many")
    assert main(["up"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("vitals up: VITALS_PORT") and told.count("\n") == 1


def test_a_port_in_use_is_one_sentence_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["up", "--port", str(port), "--data-dir", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert str(port) in told and "--port" in told and told.count("\n") == 1


def test_an_unreachable_database_is_one_sentence_and_exit_code_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("VITALS_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    for command in (["migrate"], ["work"], ["serve", "--port", "25090"], ["backtest"], ["bands"]):
        assert main(command) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"vitals {command[0]}: The database nothing at 127.0.0.1 does not answer: ")
        assert told.endswith("; check that the server runs and that VITALS_DATABASE_URL is right.\n") and told.count("\n") == 1


@pytest.mark.parametrize("command", [["work"], ["serve", "--port", "25090"]])
def test_without_a_database_the_way_to_one_is_said(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VITALS_DATA_DIR", str(tmp_path))
    assert main(command) == 2
    told = capsys.readouterr().err
    assert told.endswith("; `vitals up` runs one there, VITALS_DATABASE_URL names another.\n") and told.count("\n") == 1


@pytest.mark.parametrize("name", ["diagnose", "rules", "channel", "outcome", "spool"])
def test_what_is_missing_is_said_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name])
    assert ended.value.code == 2
    told = capsys.readouterr().err.splitlines()
    assert told[-2].startswith(f"vitals {name}: error: the following arguments are required")
    assert told[-1].startswith(f"example: vitals {name} ")


@pytest.mark.parametrize("url", ["127.0.0.1:1", "http://127.0.0.1:1/", "localhost:1"])
@pytest.mark.parametrize("command", [["runs"], ["alerts"], ["outcome", "r", "healthy"]])
def test_an_address_may_lack_its_scheme(url: str, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    host = url.removeprefix("http://").rstrip("/")
    assert main([*command, "--url", url]) == 2
    told = capsys.readouterr().err
    assert f"no collector answers at http://{host} (" in told
    monkeypatch.setenv("VITALS_URL", url)
    assert main(command) == 2
    assert capsys.readouterr().err == told


def test_a_token_that_is_wrong_is_not_called_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with receiving() as collector:
        collector.behave = lambda path, message: Reply(401, b'{"error": "no"}')
        monkeypatch.delenv("VITALS_TOKEN", raising=False)
        assert main(["outcome", "r", "healthy", "--url", collector.url]) == 2
        assert capsys.readouterr().err == f"vitals outcome: {collector.url} wants a token; set VITALS_TOKEN\n"
        monkeypatch.setenv("VITALS_TOKEN", "wrong")
        assert main(["outcome", "r", "healthy", "--url", collector.url]) == 2
        assert capsys.readouterr().err == f"vitals outcome: {collector.url} does not accept the token in VITALS_TOKEN\n"


def test_runs_are_listed_with_what_other_commands_take_for_them() -> None:
    listed = {"severity": "healthy", "project": "p", "name": "n", "state": "running", "step": 1200, "seen": 90.0, "run": "5f93ffe5" * 4}
    heading, line = table([_cells(listed | {"sentence": "all is well"}, 95.0)])
    assert heading.split() == ["verdict", "project", "run", "state", "step", "seen", "id", "what"]
    assert line.split()[7:] == ["5f93ffe55f93", "all", "is", "well"]


@pytest.mark.parametrize("command", [["runs"], ["alerts"], ["outcome", "r", "healthy"], ["spool", "send"]])
def test_what_is_no_address_is_refused_by_name(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for url in ("ftp://127.0.0.1", "http://", "my collector", "collector", "host:port"):
        assert main([*command, "--url", url]) == 2
        told = capsys.readouterr().err
        assert told == f"vitals {command[0]}: {url!r} is not an address such as http://127.0.0.1:8900; name one with --url or VITALS_URL\n"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("slack", "slack is not set up; set VITALS_SLACK_WEBHOOK_URL in the environment of `vitals up` (or of `vitals work`) and of this command"),
        ("webhook", "webhook is not set up; set VITALS_WEBHOOK_URL in the environment of"),
        ("oncall", "oncall is not set up; add a [channel.oncall] table to a vitals.toml and name that file in VITALS_RULES"),
    ],
)
def test_a_channel_that_is_not_set_up_says_how(name: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for variable in ("VITALS_SLACK_WEBHOOK_URL", "VITALS_WEBHOOK_URL", "VITALS_RULES"):
        monkeypatch.delenv(variable, raising=False)
    assert main(["channel", "test", name]) == 2
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1
