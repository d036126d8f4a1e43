"""Slack incoming webhooks: a message as Block Kit (https://docs.slack.dev/reference/block-kit/blocks), within Slack's limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monitor import wire
from monitor.deliver.channel import Receipt
from monitor.deliver.letter import Letter
from monitor.deliver.post import TIMEOUT_S, Poster

MAX_HEADER = 150
MAX_SECTION = 3000
MAX_FIELD = 2000
MAX_FIELDS = 10
MAX_URL = 3000
MAX_TEXT = 4000
MAX_BLOCKS = 50

_MARKS = {"critical": "\N{LARGE RED CIRCLE}", "warning": "\N{LARGE ORANGE CIRCLE}", "watch": "\N{LARGE YELLOW CIRCLE}"}
_OVER, _NOTE = "\N{LARGE GREEN CIRCLE}", "\N{LARGE BLUE CIRCLE}"


class Slack:
    """Posts to an incoming webhook's ``url``, which is a secret. Slack keeps no key for deduplication: a repetition shows twice."""

    interval_s = 1.0  # https://docs.slack.dev/apis/web-api/rate-limits

    def __init__(self, name: str, url: str, *, private: bool = False, timeout_s: float = TIMEOUT_S) -> None:
        self.name = name
        self._poster = Poster(url, private=private, timeout_s=timeout_s)

    def __repr__(self) -> str:
        return f"Slack({self.name!r}, host={self._poster.host!r})"

    @property
    def about(self) -> str:
        return f"Slack at {self._poster.host}"

    async def send(self, letter: Letter) -> Receipt:
        return await self._poster.post(wire.to_json(payload(letter)), {})

    async def close(self) -> None:
        await self._poster.close()


def payload(letter: Letter) -> dict[str, Any]:
    """What is posted: ``text`` is what notifications and screen readers show, ``blocks`` the letter."""
    return {"text": clipped(escaped(letter.summary), MAX_TEXT), "blocks": blocks(letter), "unfurl_links": False, "unfurl_media": False}


def blocks(letter: Letter) -> list[dict[str, Any]]:
    """Header, verdict, numbers, curve, paragraphs, rollouts, link and a line of small print; at most :data:`MAX_BLOCKS`."""
    out: list[dict[str, Any]] = [{"type": "header", "text": _plain(f"{mark(letter.state)} {letter.title}", MAX_HEADER)}]
    if letter.verdict:
        out.append(_section(letter.verdict))
    if letter.numbers:
        out.append({"type": "section", "fields": [_labelled(label, value, MAX_FIELD) for label, value in letter.numbers][:MAX_FIELDS]})
    if letter.curve:
        out.append(_preformatted(letter.curve))
    out += [{"type": "section", "text": _labelled(label, text, MAX_SECTION)} for label, text in letter.paragraphs]
    for excerpt in letter.excerpts:
        out += [_section(excerpt.label), _preformatted(excerpt.text)]
    tail: list[dict[str, Any]] = []
    if ways := [(words, address) for words, address in letter.links if len(address) <= MAX_URL]:
        tail.append(_buttons(ways))
    tail.append({"type": "context", "elements": [{"type": "mrkdwn", "text": clipped(escaped(" · ".join(letter.small)), MAX_FIELD)}]})
    return out[: MAX_BLOCKS - len(tail)] + tail


def standing(letter: Letter, title: str, begun: list[dict[str, Any]]) -> dict[str, Any]:
    """What the first message of a story says after ``letter``: the ``blocks`` that it began with, under how the story stands."""
    state = letter.standing
    head = f"{mark(state)} {'Over' if state == 'resolved' else 'Now ' + state}: {title}"
    latest = clipped(escaped(f"Latest: {letter.summary}"), MAX_FIELD)
    now = [{"type": "header", "text": _plain(head, MAX_HEADER)}, {"type": "context", "elements": [{"type": "mrkdwn", "text": latest}]}]
    return {"text": clipped(escaped(head), MAX_TEXT), "blocks": [*now, *begun[1:]][:MAX_BLOCKS]}


def mark(state: str) -> str:
    return _MARKS.get(state, _OVER if state in ("resolved", "ok") else _NOTE)


def escaped(text: str) -> str:
    """``text`` with the three characters that Slack reads as control replaced, so that nothing in it can mention, link or break out."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def clipped(text: str, limit: int) -> str:
    """Escaped ``text`` in at most ``limit`` characters, never ending inside an entity."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    start = cut.rfind("&")
    if start >= 0 and ";" not in cut[start:]:
        cut = cut[:start]
    return cut + "…"


def _plain(text: str, limit: int) -> dict[str, Any]:
    text = " ".join(text.split()) or "-"
    return {"type": "plain_text", "text": text if len(text) <= limit else text[: limit - 1] + "…", "emoji": False}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": clipped(escaped(text), MAX_SECTION)}}


def _buttons(ways: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The first way stands out."""
    buttons: list[dict[str, Any]] = [
        {"type": "button", "text": _plain(words, 75), "url": address, "action_id": f"open-{number}"} for number, (words, address) in enumerate(ways)
    ]
    buttons[0]["style"] = "primary"
    return {"type": "actions", "elements": buttons}


def _labelled(label: str, text: str, limit: int) -> dict[str, Any]:
    head = f"*{escaped(label)}*\n"
    return {"type": "mrkdwn", "text": head + clipped(escaped(text) or "-", limit - len(head))}


def _preformatted(text: str) -> dict[str, Any]:
    """Text in which Slack reads no markup."""
    quoted = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text[:MAX_SECTION] or "(empty)"}]}
    return {"type": "rich_text", "elements": [quoted]}
