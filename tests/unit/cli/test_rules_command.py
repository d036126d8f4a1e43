"""``vitals rules`` shows a file to start from and tells what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.cli import main


def test_what_is_shown_passes_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "show"]) == 0
    path = tmp_path / "vitals.toml"
    path.write_text(capsys.readouterr().out)
    assert main(["rules", "check", str(path)]) == 0
    assert "nothing wrong" in capsys.readouterr().out


def test_problems_are_told_one_per_line_with_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "vitals.toml"
    path.write_text('[detectors.no_such]\na = 1\n\n[[route]]\nchannels = "slack"\n')
    assert main(["rules", "check", str(path)]) == 1
    told = capsys.readouterr().err.strip().splitlines()
    assert [line.split(": ", 2)[-2].rsplit(", ", 1)[-1] for line in told] == ["line 1", "line 5"]


def test_a_missing_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["rules", "check"]) == 2
    assert "vitals.toml cannot be read" in capsys.readouterr().err
