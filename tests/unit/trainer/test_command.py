"""The command line: every preset loads, and a request that cannot be carried out ends with one sentence and exit code 2."""

from __future__ import annotations

import pytest

from trainer import presets
from trainer.cli import main
from trainer.config import Config, SettingError, changed


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_loads(name: str) -> None:
    preset = presets.load(name)
    assert preset.about
    if preset.fault is not None and preset.kind == "fault":
        assert preset.fault.control in presets.names()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--preset", "goblin-bonu"], "goblin-bonus"),
        (["--set", "lrr=1"], "'lr'"),
        (["--set", "lr=fast"], "lr must be a number"),
        (["--set", "lr"], "key=value"),
        (["--set", "aux.gold=1"], "aux"),
        (["--set", "steps=0"], "steps must be at least 1"),
        (["--set", "samples=1"], "samples must be at least 2"),
        (["--set", "algorithm=grop"], "'grpo'"),
        (["--set", "lr.x=1"], "not a table"),
        (["--set", "verifier=lazy"], "verifier"),
        (["--device", "quantum"], "quantum"),
        (["--checkpoint", "/nowhere/run.pt"], "/nowhere"),
        (["--checkpoint-every", "0"], "--checkpoint-every"),
        (["--jsonl", "/nowhere/rows.jsonl"], "/nowhere/rows.jsonl"),
        (["--collector", "notaurl"], "notaurl"),
    ],
)
def test_bad_requests(arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--quiet"]) == 2
    error = capsys.readouterr().err
    assert word in error and error.count("\n") == 1 and "Traceback" not in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["zoo", "--only", "nope"], "nope"),
        (["table", "--only", "gprs"], "gprs"),
        (["table", "--seeds", "a"], "--seeds"),
        (["zoo", "--set", "lr"], "key=value"),
        (["zoo", "--set", "fault.at_stepp=3"], "at_step"),
        (["zoo", "--set", "fault.at_step=-1", "--only", "goblin-bonus"], "at_step"),
        (["zoo", "--plan", "nowhere.toml"], "nowhere.toml"),
        (["zoo", "--plan", "plan.toml", "--only", "healthy"], "--only"),
        (["audit", "--tasks", "0"], "--tasks"),
        (["audit", "--set", "verifier=kind"], "kind"),
    ],
)
def test_bad_studies(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in (*presets.names(), "grpo", "dapo"))


def test_settings_do_not_leak_between_configs() -> None:
    first = changed(Config(), {"aux.word": 0.5, "lr": 1})
    assert first.aux == {"partial": 0.2, "word": 0.5} and first.lr == 1.0
    assert Config().aux == {"partial": 0.2}
    with pytest.raises(SettingError, match="verifier"):
        changed(Config(), {"verifier": ["nice"]})
    assert changed(Config(), {"verifier": "editable+unreachable"}).verifier == ("editable", "unreachable")
