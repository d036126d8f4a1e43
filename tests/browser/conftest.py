"""A real browser on real pages: Chromium, a collector with its pages, runs sent over HTTP and judged by a worker, alerts received over HTTP."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

CHROMIUM = os.environ.get("VITALS_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or ""
ARGUMENTS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium. Where CI is set its absence is a failure, elsewhere a reason to skip."""
    if not CHROMIUM:
        complaint = "no Chromium found; install the package chromium or set VITALS_TEST_CHROMIUM"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(complaint)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


def _make_database(postgres: str, template: str, name: str) -> str:
    from site_under_test import in_own_loop
    from sqlalchemy import text

    from monitor.store import database

    async def make() -> None:
        async with database.opened(postgres) as engine, engine.connect() as connection:
            await (await connection.execution_options(isolation_level="AUTOCOMMIT")).execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))

    in_own_loop(make)
    return database.read_url(postgres).set(database=name).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def site(postgres: str, template_database: str) -> Iterator[Any]:
    """Pages with every story of ``stories`` in them, judged, three alert channels: one works, one refuses messages, nobody answers the third."""
    from receiving import Receiver
    from site_under_test import Site
    from stories import tell_all, tell_sweep

    from monitor.deliver.webhook import Webhook

    with (
        Receiver() as receiver,
        Receiver(lambda _: 422) as strict,
        Site(_make_database(postgres, template_database, f"vitals_site_{os.getpid()}")) as site,
    ):
        tell_all(site)
        tell_sweep(site)
        channels = {"on-call": receiver.url, "strict": strict.url, "nobody": "http://127.0.0.1:9/hook"}
        site.judge([Webhook(name, url, private=True) for name, url in channels.items()])
        yield site


@pytest.fixture(scope="session")
def empty_site(postgres: str, template_database: str) -> Iterator[Any]:
    """Pages without a run."""
    from site_under_test import Site

    with Site(_make_database(postgres, template_database, f"vitals_nothing_{os.getpid()}")) as site:
        yield site


@dataclass(slots=True)
class Trouble:
    """What must not happen on any page."""

    host: str
    seen: list[str] = field(default_factory=list)

    def watch(self, page: Any) -> None:
        page.on("console", lambda message: self.seen.append(f"console: {message.text}") if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.seen.append(f"page error: {error}"))
        page.on("request", lambda request: self._request(request.url))

    def forgive(self, words: str) -> None:
        """Takes back what a test expected: a message that holds ``words``, which must have come."""
        kept = [each for each in self.seen if words not in each]
        assert len(kept) < len(self.seen), words
        self.seen[:] = kept

    def _request(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and parts.netloc != self.host:
            self.seen.append(f"request off the host: {url}")


Visit = Callable[..., Any]


@pytest.fixture
def visit(browser: Any) -> Iterator[Visit]:
    """``visit(site, path, theme="dark", width=1280)`` opens a page as a new visitor; the test fails for any error, warning or foreign request."""
    contexts: list[Any] = []
    troubles: list[Trouble] = []

    def open_page(site: Any, path: str, *, theme: str = "light", width: int = 1280, height: int = 900, zone: str = "Asia/Tokyo") -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme, timezone_id=zone)
        context.set_default_timeout(20_000)
        page = context.new_page()
        trouble = Trouble(urlsplit(site.url).netloc)
        trouble.watch(page)
        page.goto(site.url + path)
        page.wait_for_selector("h1")
        contexts.append(context)
        troubles.append(trouble)
        page.trouble = trouble
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [each for trouble in troubles for each in trouble.seen] == []


@contextmanager
def expected_failures(page: Any) -> Iterator[None]:
    """A stretch in which requests may fail (a server that is away) and the console may say so."""
    before = list(page.trouble.seen)
    yield
    page.trouble.seen[:] = before
