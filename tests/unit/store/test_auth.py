"""Who may come in, with a token and without."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from monitor.api.auth import COOKIE, SESSION_S, Guard, is_session, local_path, session
from monitor.settings import load

TOKEN = "correct-horse-battery"
PATHS = ("/", "/run/x", "/healthz", "/metrics", "/assets/a.js", "/_dash-layout", "/api/v1/runs")


def client(cookies: dict[str, str] | None = None, **settings: Any) -> httpx.AsyncClient:
    async def answer(request: object) -> PlainTextResponse:
        return PlainTextResponse("in")

    app = Starlette(routes=[Route(path, answer, methods=["GET", "POST"]) for path in PATHS])
    guarded = Guard(app, load(**settings))
    return httpx.AsyncClient(transport=httpx.ASGITransport(guarded), base_url="http://localhost:8900", cookies=cookies)


async def test_with_a_token_only_health_and_static_files_are_open() -> None:
    async with client(token=TOKEN) as browser:
        for path in PATHS:
            open_to_all = path in ("/healthz", "/assets/a.js")
            answer = await browser.get(path)
            assert answer.status_code == (200 if open_to_all else 401), path
        refused = await browser.post("/api/v1/runs")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert "VITALS_TOKEN" in refused.json()["error"]


@pytest.mark.parametrize("header", ["Bearer wrong", f"Basic {TOKEN}", TOKEN, "", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer \xff"])
async def test_a_wrong_token_is_no_token(header: str) -> None:
    async with client(token=TOKEN) as program:
        assert (await program.get("/", headers={"Authorization": header.encode("latin-1")})).status_code == 401  # type: ignore[dict-item]


async def test_the_right_token_opens_everything_whatever_the_host() -> None:
    async with client(token=TOKEN) as program:
        for path in PATHS:
            answer = await program.post(path, headers={"Authorization": f"bearer {TOKEN}", "Host": "gpu-7:8900"})
            assert answer.status_code == 200


async def test_a_browser_logs_in_and_out() -> None:
    async with client(token=TOKEN) as browser:
        sent = await browser.get("/run/x", headers={"Accept": "text/html,*/*"})
        assert (sent.status_code, sent.headers["location"]) == (303, "/login?next=/run/x")
        page = await browser.get(sent.headers["location"])
        assert 'action="/login?next=/run/x"' in page.text
        wrong = await browser.post(sent.headers["location"], data={"token": "guess"})
        assert (wrong.status_code, COOKIE in wrong.cookies) == (401, False)
        right = await browser.post(sent.headers["location"], data={"token": f" {TOKEN}\n"})
        assert (right.status_code, right.headers["location"]) == (303, "/run/x")
        cookie = right.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert TOKEN not in cookie
        assert (await browser.get("/run/x")).status_code == 200
        assert (await browser.get("/logout")).status_code == 303
        browser.cookies.clear()
        assert (await browser.get("/run/x")).status_code == 401


async def test_another_site_cannot_use_a_browsers_session() -> None:
    async with client(token=TOKEN, cookies={COOKIE: session(TOKEN)}) as browser:
        assert (await browser.post("/api/v1/runs", headers={"Origin": "http://localhost:8900"})).status_code == 200
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
            assert (await browser.post("/api/v1/runs", headers=headers)).status_code == 403


@pytest.mark.parametrize("host", ["localhost:8900", "127.0.0.1", "[::1]:8900", "LOCALHOST", "127.1.2.3:1"])
async def test_without_a_token_this_machine_is_let_in(host: str) -> None:
    async with client() as program:
        assert (await program.post("/api/v1/runs", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "192.168.0.2:8900", "", "127.0.0.1.evil.example", "[", "a:b:c"])
async def test_without_a_token_other_names_are_turned_away(host: str) -> None:
    async with client() as program:
        assert (await program.get("/", headers={"Host": host})).status_code == 403


async def test_the_public_address_is_a_name_of_ours() -> None:
    async with client(public_url="https://vitals.example") as program:
        assert (await program.get("/", headers={"Host": "vitals.example"})).status_code == 200


async def test_without_a_token_no_foreign_page_may_write() -> None:
    async with client() as browser:
        assert (await browser.post("/", headers={"Origin": "http://localhost:8900", "Sec-Fetch-Site": "same-origin"})).status_code == 200
        assert (await browser.post("/", headers={"Origin": "https://evil.example"})).status_code == 403
        assert (await browser.post("/", headers={"Origin": "http://localhost:9999"})).status_code == 403


@pytest.mark.parametrize(("headers", "accepted"), [({}, True), ({"origin": "https://evil.example"}, False), ({"host": "evil.example"}, False)])
async def test_websockets_are_guarded_too(headers: dict[str, str], accepted: bool) -> None:
    reached: list[str] = []
    sent: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["type"])

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(key.encode(), value.encode()) for key, value in ({"host": "localhost"} | headers).items()]
    await Guard(inner, load())({"type": "websocket", "path": "/_ws", "headers": raw, "query_string": b""}, None, send)  # type: ignore[arg-type]
    assert reached == (["websocket"] if accepted else [])
    assert [one["type"] for one in sent] == ([] if accepted else ["websocket.close"])


def test_a_session_ends_and_belongs_to_its_token() -> None:
    value = session(TOKEN, now=1000)
    assert is_session(value, TOKEN, now=1000 + SESSION_S - 1)
    assert not is_session(value, TOKEN, now=1000 + SESSION_S)
    assert not is_session(value, TOKEN + "x", now=1000)
    longer = f"{9 * 10**9}.{value.partition('.')[2]}"
    assert not is_session(longer, TOKEN, now=1000)


@given(st.text())
def test_no_made_up_session_is_one(value: str) -> None:
    assert not is_session(value, TOKEN)


@pytest.mark.parametrize("target", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "", "/a\r\nb", "evil"])
def test_a_login_leads_nowhere_else(target: str) -> None:
    assert local_path(target) == "/"
    assert local_path("/run/x?tab=policy") == "/run/x?tab=policy"
