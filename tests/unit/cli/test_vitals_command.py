from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from monitor.cli import COMMANDS, main


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
    for name in ("migrate", "work"):
        assert main([name]) == 2
        told = capsys.readouterr().err
        assert "database" in told.lower() and told.count("\n") == 1
