"""Alerts by e-mail: a real SMTP server that also answers 451, 550 and hangs up, and one that asks for TLS and a password."""

from __future__ import annotations

import ssl
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from mailserver import Mailserver
from runs import Feed, broken, good, until
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine
from test_delivery import ONE_STORY, PACE, rows_of, until_sent, working

from monitor import wire
from monitor.deliver.channel import TransportError
from monitor.deliver.mail import Mail
from monitor.deliver.trial import Trial
from monitor.store.tables import channel, delivery, delivery_attempt, incident
from monitor.wire import Turn
from monitor.worker import Worker


def mail(server: Mailserver, *recipients: str, **more: object) -> Mail:
    options = {"port": server.port, "tls": "none", "timeout_s": 3.0, "private": True, **more}
    return Mail("mail", "127.0.0.1", "rlvitals@example.org", recipients or ("ada@example.org",), **options)  # type: ignore[arg-type]


async def test_an_alert_arrives_as_text_and_as_html_with_everything_in_it(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    turns = [Turn("prompt", "0 should disable retries"), Turn("agent", "<script>alert(1)</script>")]
    rollouts = [wire.Rollout(3, 0, "worst", turns, {"task": 0.0})]
    async with Mailserver() as server:
        await feed.rows(good(3) + broken(1), rollouts=rollouts)
        worker = Worker(engine, [mail(server, "ada@example.org", "bob@example.org")], link="http://127.0.0.1:8900", pace=PACE)
        async with working(worker):
            await until_sent(engine, 1)
            await feed.rows(good(20))
            await until_sent(engine, 2)
    first, second = server.taken
    assert server.recipients == [["ada@example.org", "bob@example.org"]] * 2
    assert first["Subject"].startswith("Critical: ") and second["Subject"].startswith("Resolved: ")
    assert first["To"] == "ada@example.org, bob@example.org" and first["Auto-Submitted"] == "auto-generated"
    assert first["References"] == second["References"] and first["Message-ID"] != second["Message-ID"]
    text, page = (first.get_body((kind,)).get_content() for kind in ("plain", "html"))  # type: ignore[union-attr]
    for part in ("First remedy", "Evidence", "worst rollout of step 3", "http://127.0.0.1:8900/run/r1?step=3", "repair / name of r1"):
        assert part in text and part in page
    (story,) = await rows_of(engine, select(incident))
    for read in (text, page):
        assert 0 < read.index(f"http://127.0.0.1:8900/incident/{story['uid']}") < read.index("http://127.0.0.1:8900/run/r1?step=3")
    assert "<script>" in text and "<script>" not in page and "&lt;script&gt;" in page


async def test_a_server_that_fails_in_every_way_gets_every_message_once(engine: AsyncEngine) -> None:
    script = ["451 greylisted", "cut", "452 full", "421 going down"]
    feed = await Feed(engine, "r1").start()
    async with Mailserver(data=lambda n: script[n - 1] if n <= len(script) else "250 OK") as server:
        await feed.rows(ONE_STORY)
        async with working(Worker(engine, [mail(server)], pace=PACE)):
            await until_sent(engine, 2)
        assert [each["Subject"].split(":")[0] for each in server.taken] == ["Critical", "Resolved"]
    attempts = await rows_of(engine, select(delivery_attempt).order_by(delivery_attempt.c.at))
    assert [row["outcome"] for row in attempts] == ["failed"] * len(script) + ["delivered"] * 2
    assert [row["status"] for row in attempts] == [451, None, 452, 421, 250, 250]


async def test_recipients_that_are_refused(engine: AsyncEngine) -> None:
    """One of two: the other gets it and the log says who did not. All: the channel needs somebody, and the alert waits."""
    feed = await Feed(engine, "r1").start()
    async with Mailserver(rcpt=lambda address: "550 no such user" if address.startswith("gone") else "250 OK") as server:
        await feed.rows(good(3) + broken(1))
        async with working(Worker(engine, [mail(server, "gone@example.org", "ada@example.org")], pace=PACE)):
            await until_sent(engine, 1)
        assert server.recipients == [["ada@example.org"]]
        (attempt,) = await rows_of(engine, select(delivery_attempt))
        assert attempt["outcome"] == "delivered" and "refused gone@example.org (550)" in attempt["error"]
        await feed.rows(good(20))
        async with working(Worker(engine, [mail(server, "gone@example.org")], pace=PACE)):
            await until(lambda: _disabled(engine))
        assert len(server.taken) == 1
    assert (await rows_of(engine, select(delivery.c.state).order_by(delivery.c.id)))[1]["state"] == "pending"


async def _disabled(engine: AsyncEngine) -> bool:
    found = await rows_of(engine, select(channel))
    return found[0]["state"] == "disabled" and "550" in found[0]["last_error"]


async def test_a_message_that_is_refused_blocks_nothing_after_it(engine: AsyncEngine) -> None:
    feed = await Feed(engine, "r1").start()
    async with Mailserver(data=lambda n: "554 looks like spam" if n == 1 else "250 OK") as server:
        await feed.rows(ONE_STORY)
        async with working(Worker(engine, [mail(server)], pace=PACE)):
            await until_sent(engine, 1)
        assert [each["Subject"].split(":")[0] for each in server.taken] == ["Resolved"]
    states = await rows_of(engine, select(delivery.c.state, delivery.c.last_error).order_by(delivery.c.id))
    assert [row["state"] for row in states] == ["refused", "sent"] and "looks like spam" in states[0]["last_error"]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and a certificate for localhost that nobody has signed."""
    path = tmp_path / "both.pem"
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem"
    subprocess.run(made.split(), cwd=tmp_path, check=True, capture_output=True)
    path.write_text((tmp_path / "key.pem").read_text() + (tmp_path / "cert.pem").read_text())
    return path


def trial() -> Trial:
    return Trial(str(uuid4()), datetime.now(UTC), "mail")


async def test_what_was_checked_is_what_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    async def resolved(host: str, port: int) -> str:
        asked.append((host, port))
        return "127.0.0.1"

    monkeypatch.setattr("monitor.deliver.mail.public_address", resolved)
    async with Mailserver() as server:
        outside = Mail("mail", "smtp.no-such-name.invalid", "rlvitals@example.org", ["ada@example.org"], port=server.port, tls="none", timeout_s=3.0)
        assert (await outside.send(trial())).status == 250
        assert asked == [("smtp.no-such-name.invalid", server.port)] and len(server.taken) == 1


async def test_a_name_that_leads_into_the_private_network_is_refused() -> None:
    async with Mailserver() as server:
        inside = Mail("mail", "127.1", "rlvitals@example.org", ["ada@example.org"], port=server.port, tls="none", timeout_s=3.0)
        with pytest.raises(TransportError, match="VITALS_ALLOW_PRIVATE_WEBHOOKS") as caught:
            await inside.send(trial())
        assert caught.value.permanent and not server.taken


async def test_tls_and_the_password(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    def guarded(server: Mailserver, password: str) -> Mail:
        more = {"port": server.port, "tls": "starttls", "username": "rlvitals", "password": password, "timeout_s": 3.0, "private": True}
        return Mail("mail", "localhost", "rlvitals@example.org", ["ada@example.org"], **more)  # type: ignore[arg-type]

    async with Mailserver(tls=context, password="HUSH") as server:
        with pytest.raises(TransportError, match="certificate of localhost is not trusted") as caught:
            await guarded(server, "HUSH").send(trial())
        assert caught.value.permanent
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with pytest.raises(TransportError, match="localhost answered 535") as caught:
            await guarded(server, "WRONG").send(trial())
        assert caught.value.permanent and "WRONG" not in str(caught.value)
        assert (await guarded(server, "HUSH").send(trial())).status == 250
        assert len(server.taken) == 1
    async with Mailserver() as server:
        with pytest.raises(TransportError, match="cannot do what the channel needs") as caught:
            await mail(server, tls="starttls").send(trial())
    assert caught.value.permanent
