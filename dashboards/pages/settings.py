"""``/settings``: who can be told and whether it works, what is silenced, the thresholds in force, and what others would have raised."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from dash import Dash, Input, Output, dcc, html

from dashboards import acts, rulebook
from dashboards.pages import House, Query, callback
from dashboards.tables import cards
from dashboards.words import attribute, moment
from monitor import settings as configured
from monitor.alerts.routing import MATCHABLE
from monitor.alerts.rules import Rules
from monitor.store import incidents, queries, receipts

HEALTH = {"ok": "takes messages", "resting": "rests after failures", "disabled": "takes nothing", "unused": "not used yet"}
HEADS = ("Channel", "Kind", "State", "Last taken", "Last error", "Waiting", "")
SECTIONS = {
    "channels": "Channels",
    "routes": "Routes",
    "acts": "Asked of runs",
    "silences": "Silences",
    "rules": "Thresholds",
    "backtest": "Back-test",
}


async def view(house: House, parts: list[str], query: Query) -> Any:
    """The page; only channels and silences change while it is open."""
    rules, problems = await asyncio.to_thread(_rules, house)
    async with house.engine.connect() as conn:
        stamp = await queries.alert_stamp(conn)
        used = await receipts.channels(conn)
        silences = await incidents.silences(conn)
        projects = await queries.projects(conn)
    return html.Div(
        [
            html.Div([html.H1("Settings"), html.P("Who is told, of what, and by which thresholds.", className="dim")], className="head"),
            html.Nav([html.A(text, href=f"#{name}") for name, text in SECTIONS.items()], className="jump on-page", **{"aria-label": "On this page"}),
            _section("channels", html.Div(await _channels(house, rules, used), id="settings-channels")),
            _section("routes", rulebook.routes_table(rules.routes)),
            _section("acts", rulebook.acts_table(rules.acts)),
            _section("silences", html.Div(id="settings-silences", **{"data-silences": _silences(silences)})),
            _section("rules", *_source(house, problems), *rulebook.rules_tables(rules)),
            _section(
                "backtest",
                html.Div(id="backtest-panel", **{"data-projects": attribute(projects), "data-rules": rulebook.written(rules)}),
            ),
            dcc.Store(id="settings-stamp"),
        ],
        className="view",
        **{"data-page": "settings", "data-stamp": stamp, "data-matchable": attribute(MATCHABLE)},
    )


def register(app: Dash, house: House) -> None:
    """Channels and silences are read again when a delivery was tried or somebody silenced something."""

    @callback(
        app,
        Output("settings-channels", "children"),
        Output("settings-silences", "data-silences"),
        Input("settings-stamp", "data"),
        prevent_initial_call=True,
    )
    async def changed(stamp: Any) -> Any:
        async with house.engine.connect() as conn:
            used, silences = await receipts.channels(conn), await incidents.silences(conn)
        rules, _ = await asyncio.to_thread(_rules, house)
        return await _channels(house, rules, used), _silences(silences)


def _section(name: str, *content: Any) -> Any:
    return html.Section([html.H2(SECTIONS[name]), *content], id=name, className="card part setting", **{"aria-label": SECTIONS[name]})


def _rules(house: House) -> tuple[Rules, list[str]]:
    """The rules file as it is now, and what is wrong with it."""
    if house.settings is None:
        return Rules(), []
    try:
        return configured.rules(house.settings), []
    except configured.SettingsError as error:
        return Rules(), str(error).splitlines()


def _source(house: House, problems: Sequence[str]) -> list[Any]:
    """Where the thresholds come from; a worker that runs already may have read an earlier state of the file."""
    path = None if house.settings is None else house.settings.rules
    if problems:
        told = html.Ul([html.Li(problem) for problem in problems])
        return [
            html.Div(
                [html.P("The rules file cannot be used; a worker that is running keeps those it began with."), told], className="failed", role="alert"
            )
        ]
    if path is None:
        command = html.Code("vitals rules show > vitals.toml")
        return [
            html.P(["No rules file is set: ", command, " writes one to start from, and ", html.Code("VITALS_RULES"), " names it."], className="dim")
        ]
    return [html.P(["From ", html.Code(str(path)), ", as it is now. Workers read it when they start."], className="dim")]


def _silences(silences: Sequence[Mapping[str, Any]]) -> str:
    return attribute([acts.silence(each) for each in silences])


async def _channels(house: House, rules: Rules, used: Sequence[Mapping[str, Any]]) -> Any:
    about, problems = await asyncio.to_thread(_built, house, rules)
    known = {} if house.settings is None else configured.declared(house.settings, rules)
    health = {each["name"]: each for each in used}
    if not known and not health:
        slack, hook, table = (html.Code(each) for each in ("VITALS_SLACK_WEBHOOK_URL", "VITALS_WEBHOOK_URL", "[channel.NAME]"))
        return html.P(["Nobody is told of anything: set ", slack, " or ", hook, ", or write a ", table, " table into the rules file."])
    rows = [_channel(house, name, known.get(name, ""), about.get(name), health.get(name)) for name in sorted({*known, *health})]
    wrong = [html.Div([html.P(problem) for problem in problems], className="failed", role="alert")] if problems else []
    return html.Div([*wrong, cards("Channels", HEADS, rows, wide=("Last error", ""))])


def _built(house: House, rules: Rules) -> tuple[dict[str, str], list[str]]:
    """Where each channel that can be built leads, without any secret, and what is wrong with the others."""
    if house.settings is None:
        return {}, []
    try:
        return {each.name: each.about for each in configured.channels(house.settings, rules)}, []
    except configured.SettingsError as error:
        return {}, str(error).splitlines()


def _channel(house: House, name: str, kind: str, about: str | None, health: Mapping[str, Any] | None) -> list[Any]:
    state = "unused" if health is None else health["state"]
    failing = health is not None and state == "ok" and health["failures"]
    word = f"failed {health['failures']} in a row" if failing and health is not None else HEALTH.get(state, state)
    test: list[Any] = []
    if about is not None:
        test = [html.Button("Send a test", className="button small", **{"data-test": name})]
    elif not kind:
        gone = "It was used, and the settings of this process do not name it; with its next attempt it is back."
        test = [html.Span("not set up here ", className="dim"), html.Button("Forget", className="button small", title=gone, **{"data-forget": name})]
    return [
        html.A(html.B(name), href=f"{house.base}deliveries?{urlencode({'channel': name})}"),
        [kind or "–", html.Div(about or "", className="dim")],
        html.Span(word, className=f"state channel-{'resting' if failing else state}"),
        _when(health, "last_ok_at"),
        [_when(health, "last_error_at"), html.Div((health or {}).get("last_error") or "", className="dim")],
        f"{health['waiting']:,}" if health is not None else "0",
        [*test, html.Span(className="tested", role="status", **{"data-said-of": name})],
    ]


def _when(health: Mapping[str, Any] | None, key: str) -> Any:
    at = None if health is None else health[key]
    return "never" if at is None else moment(at, age=True)
