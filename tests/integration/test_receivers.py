"""Named receivers of ``vitals.toml``, told by routes, as the worker sets them up."""

from __future__ import annotations

from pathlib import Path

import pytest
from receiving import Receiver
from runs import Feed, broken, good
from sqlalchemy.ext.asyncio import AsyncEngine
from test_delivery import PACE, until_sent, working

from monitor.settings import channels, load, rules
from monitor.worker import Worker

TOML = """
[channel.team]
kind = "slack"
url_env = "TEAM_URL"

[channel.oncall]
kind = "webhook"
url_file = "oncall.url"

[channel.alertmanager]
kind = "webhook"
url_env = "OTHER_URL"
format = "alertmanager"

[[route]]
channels = ["team", "alertmanager"]

[[route]]
channels = ["oncall"]
match = {project = "repair"}
severity = "critical"

[[route]]
channels = ["webhook"]
match = {project = "another"}
"""


async def test_routes_name_the_receivers_of_the_file_and_of_the_environment(
    engine: AsyncEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver() as team, Receiver() as oncall, Receiver() as other, Receiver() as alertmanager:
        (tmp_path / "vitals.toml").write_text(TOML)
        (tmp_path / "oncall.url").write_text(oncall.url + "\n")
        monkeypatch.setenv("TEAM_URL", team.url)
        monkeypatch.setenv("OTHER_URL", alertmanager.url)
        monkeypatch.setenv("VITALS_WEBHOOK_URL", other.url)
        settings = load(rules=tmp_path / "vitals.toml", allow_private_webhooks=True)
        ruled = rules(settings)
        feed = await Feed(engine, "r1").start()
        await feed.rows(good(3) + broken(1))
        async with working(Worker(engine, channels(settings, ruled), routes=ruled.routes, pace=PACE, rules=ruled)):
            await until_sent(engine, 3)
        assert len(team.taken) == len(oncall.taken) == 1 and not other.requests
        (notification,) = alertmanager.taken
        assert notification.json["version"] == "4" and notification.json["receiver"] == "alertmanager" and notification.json["status"] == "firing"
        assert oncall.taken[0].json["type"] == "alert.critical" and "blocks" in team.taken[0].json
