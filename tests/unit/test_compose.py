"""The containers of ``docker-compose.yml`` are set up with names that the program reads, and run commands that it has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitor.cli import parser
from monitor.settings import SECRETS, Settings

FILE = Path(__file__).parents[2] / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))
OURS = {name: service for name, service in COMPOSE["services"].items() if service.get("image") == "rlvitals"}
KNOWN = {f"VITALS_{name.upper()}" for name in Settings.model_fields} | {f"VITALS_{name.upper()}_FILE" for name in SECRETS}
ASKED = re.compile(r"\$\{(\w+)(?:(:?[-?+])([^}]*))?\}")


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_a_setting(name: str) -> None:
    assert set(OURS[name]["environment"]) <= KNOWN
    assert {"VITALS_DATABASE_URL", "VITALS_RULES", "VITALS_WEBHOOK_SECRET_FILE"} <= set(OURS[name]["environment"])


def test_what_is_asked_of_the_shell_is_a_setting_too() -> None:
    written = "".join(line for line in FILE.read_text("utf-8").splitlines(keepends=True) if not line.startswith("#"))
    assert {match[1] for match in ASKED.finditer(written)} <= KNOWN | {"VITALS_CONFIG"}


def test_each_part_runs_a_command_that_exists() -> None:
    commands = {name: service["command"] for name, service in OURS.items() if "entrypoint" not in service}
    assert set(commands) == {"migrate", "collector", "worker", "dashboards"}
    for command in commands.values():
        parser().parse_args(command)


def _shown(value: str, shell: dict[str, str]) -> str:
    """``value`` as Compose fills it in from ``shell``: ``:-`` a default, ``:+`` a replacement, ``:?`` an error."""

    def fill(match: re.Match[str]) -> str:
        given, sign, other = shell.get(match[1], ""), match[2], match[3] or ""
        assert given or sign != ":?", other
        return (other if given else "") if sign == ":+" else given or (other if sign == ":-" else "")

    return ASKED.sub(fill, value)


@pytest.mark.parametrize(("shell", "rules", "mount"), [({}, "", "/dev/null"), ({"VITALS_CONFIG": "./here"}, "/etc/rlvitals/vitals.toml", "./here")])
def test_settings_are_right_with_and_without_a_folder_of_rules(
    shell: dict[str, str], rules: str, mount: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = OURS["worker"]
    for name, value in worker["environment"].items():
        monkeypatch.setenv(name, _shown(value, {"VITALS_TOKEN": "x" * 16, **shell}))
    settings = Settings()
    assert str(settings.rules or "") == rules and not settings.allow_private_webhooks
    assert settings.slack_webhook_url is settings.webhook_url is settings.webhook_secret is None
    assert [_shown(each, shell) for each in worker["volumes"]] == [f"{mount}:/etc/rlvitals:ro"]
