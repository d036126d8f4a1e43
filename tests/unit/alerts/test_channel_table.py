"""Receivers in ``vitals.toml``: read by kind, secrets only by where they are, every mistake told by line and none repeated."""

from __future__ import annotations

import pytest

from monitor.alerts.channel_table import Receiver, Source
from monitor.alerts.rules import RulesError, parse
from monitor.alerts.spans import read_span, write_span

EVERY_KIND = """
[channel.team]
kind = "slack"
url_env = "TEAM_URL"
interval = "2s"

[channel.oncall]
kind = "slack-bot"
token_file = "/run/secrets/slack"
channel = "#rl-alerts"

[channel.hook]
kind = "webhook"
url_env = "HOOK_URL"
secret_env = "HOOK_SECRET"
format = "alertmanager"

[channel.mail]
kind = "email"
host = "smtp.example.org"
port = 2525
tls = "none"
from = "rlvitals@example.org"
to = ["ada@example.org", "bob@example.org"]
username = "rlvitals"
password_env = "SMTP_PASSWORD"

[channel."pager.1"]
kind = "apprise"
url_env = "PAGER_URL"

[[route]]
channels = ["oncall", "slack", "pager.1"]
"""


def test_every_kind_is_read() -> None:
    found = {each.name: each for each in parse(EVERY_KIND).receivers}
    assert list(found) == ["team", "oncall", "hook", "mail", "pager.1"]
    assert found["team"] == Receiver("team", "slack", {"url": Source("env", "TEAM_URL")}, {}, 2.0)
    assert found["oncall"].secrets == {"token": Source("file", "/run/secrets/slack")}
    assert found["hook"].options == {"format": "alertmanager"} and set(found["hook"].secrets) == {"url", "secret"}
    assert found["mail"].options["to"] == ["ada@example.org", "bob@example.org"]


def told(text: str) -> dict[int, str]:
    with pytest.raises(RulesError) as caught:
        parse(text)
    return {problem.line: problem.sentence for problem in caught.value.problems}


def test_every_mistake_is_told_by_its_line() -> None:
    found = told(
        """[channel.a]
kind = "slak"
[channel.b]
kind = "slack"
[channel.c]
kind = "email"
host = ""
port = "25"
tls = "maybe"
form = "x@example.org"
to = "ada@example.org"
[channel.d]
kind = "webhook"
url_env = "X"
url_file = "y"
interval = "soon"
[channel."e e"]
kind = "slack"
url_env = "X"
[[route]]
channels = ["slack", "oncal"]
"""
    )
    assert list(found) == [2, 3, 5, 7, 8, 9, 10, 11, 15, 16, 17, 21]
    assert "did you mean 'slack'?" in found[2] and 'url_env = "NAME"' in found[3] and "needs from" in found[5]
    assert "did you mean 'from'?" in found[10] and "not from both" in found[15] and '"4h"' in found[16]
    assert "no channel 'oncal'" in found[21]


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("slack", 'url = "https://hooks/HUSH"'),
        ("slack", 'url_env = "https://hooks/HUSH"'),
        ("slack", 'url_file = "https://hooks/HUSH"'),
        ("slack", 'url_env = ["HUSH"]'),
        ("slack-bot", 'token = "xoxb-HUSH"'),
        ("slack-bot", 'token_env = "xoxb-HUSH"'),
        ("webhook", 'secret = "whsec_HUSH"'),
        ("email", 'password = "HUSH"'),
        ("apprise", 'url = "pover://HUSH@HUSH"'),
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(kind: str, line: str) -> None:
    found = told(f'[channel.a]\nkind = "{kind}"\n{line}\n')
    assert "secret" in found[3] and "HUSH" not in str(found)


@pytest.mark.parametrize("text", ["channel = 1", "[channel]\na = 1", "[[channel]]\nkind = 'slack'"])
def test_what_is_no_table_is_told(text: str) -> None:
    assert all("must be a table" in sentence for sentence in told(text).values())


def test_spans() -> None:
    wrong: list[str] = []
    assert [read_span(text, wrong.append) for text in ("90s", "15m", "4h", "1d", None)] == [90.0, 900.0, 14400.0, 86400.0, None]
    assert [write_span(seconds) for seconds in (90.0, 900.0, 14400.0, 86400.0)] == ["90s", "15m", "4h", "1d"]
    assert wrong == []
    assert [read_span(text, wrong.append) for text in ("0s", "4 h", "h", 4, True, "-1h", "1.5h")] == [None] * 7 and len(wrong) == 7
