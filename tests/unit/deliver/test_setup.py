"""Channels out of the environment and ``vitals.toml``, and the sentence that each wrong one earns."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.settings import SECRETS, Settings, SettingsError, channels, load, rules

TOML = """
[channel.team]
kind = "slack"
url_env = "TEAM_URL"

[channel.hook]
kind = "webhook"
url_file = "hook.url"
secret_env = "HOOK_SECRET"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "vitals.toml").write_text(TOML)
    (tmp_path / "hook.url").write_text("https://hook.example/HUSH\n")
    monkeypatch.setenv("TEAM_URL", "https://hooks.example/services/HUSH")
    monkeypatch.setenv("HOOK_SECRET", "whsec_" + "SFVTSA" * 6)
    monkeypatch.setenv("VITALS_RULES", str(tmp_path / "vitals.toml"))
    return tmp_path


def built() -> list[str]:
    settings = load()
    return [f"{each!r}" for each in channels(settings, rules(settings))]


def test_the_file_stands_beside_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITALS_SLACK_WEBHOOK_URL", "https://hooks.slack.example/HUSH")
    found = built()
    assert found == [
        "Slack('slack', host='hooks.slack.example')",
        "Slack('team', host='hooks.example')",
        "Webhook('hook', host='hook.example')",
    ]


def test_every_wrong_channel_is_told_without_its_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEAM_URL")
    monkeypatch.setenv("HOOK_SECRET", "HUSH*")
    monkeypatch.setenv("VITALS_WEBHOOK_URL", "ftp://x/HUSH")
    with pytest.raises(SettingsError) as caught:
        built()
    lines = str(caught.value).splitlines()
    assert len(lines) == 3 and "HUSH" not in str(caught.value)
    assert lines[0].startswith("VITALS_WEBHOOK_URL") and "https://" in lines[0]
    assert "channel team: url_env: the environment variable TEAM_URL is not set or empty." in lines[1]
    assert "channel hook: the webhook's secret must be base64" in lines[2]


def test_a_missing_file_and_an_empty_one_are_told(folder: Path) -> None:
    (folder / "hook.url").write_text(" \n")
    with pytest.raises(SettingsError, match=r"channel hook: url_file: the file hook.url is empty\."):
        built()
    (folder / "hook.url").unlink()
    with pytest.raises(SettingsError, match=r"url_file: the file hook\.url cannot be read: No such file"):
        built()


def test_one_name_is_one_channel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "vitals.toml").write_text('[channel.slack]\nkind = "slack"\nurl_env = "TEAM_URL"\n')
    assert built() == ["Slack('slack', host='hooks.example')"]
    monkeypatch.setenv("VITALS_SLACK_WEBHOOK_URL", "https://hooks.slack.example/HUSH")
    with pytest.raises(SettingsError, match=r"channel slack: VITALS_SLACK_WEBHOOK_URL sets up a channel of this name too"):
        built()


def test_a_route_to_nowhere_is_told(folder: Path) -> None:
    (folder / "vitals.toml").write_text('[[route]]\nchannels = ["webhook"]\n')
    with pytest.raises(SettingsError, match="a route names the channel webhook, and nothing sets it up"):
        built()


@pytest.mark.parametrize("name", ["TOKEN", "DATABASE_URL", "SLACK_WEBHOOK_URL", "WEBHOOK_URL", "WEBHOOK_SECRET"])
def test_a_secret_may_be_the_contents_of_a_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text("https://hooks.example/HUSH\n")
    monkeypatch.setenv(f"VITALS_{name}_FILE", str(file))
    assert getattr(load(), name.lower()).get_secret_value() == "https://hooks.example/HUSH"
    monkeypatch.setenv(f"VITALS_{name}", "https://hooks.example/variable")
    assert getattr(load(), name.lower()).get_secret_value() == "https://hooks.example/variable"
    monkeypatch.delenv(f"VITALS_{name}")
    file.write_text(" \n")
    with pytest.raises(SettingsError, match=rf"VITALS_{name}_FILE: .*secret is empty\."):
        load()
    file.unlink()
    with pytest.raises(SettingsError, match=rf"VITALS_{name}_FILE: .*secret cannot be read: No such file"):
        load()


def test_no_other_setting_is_a_secret() -> None:
    assert {name for name, field in Settings.model_fields.items() if "SecretStr" in str(field.annotation)} == set(SECRETS)
