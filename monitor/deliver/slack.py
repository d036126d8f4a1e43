"""Slack incoming webhooks: a message as Block Kit (https://docs.slack.dev/reference/block-kit/blocks), within Slack's limits."""

from __future__ import annotations

from typing import Any

from monitor import wire
from monitor.deliver.channel import Receipt
from monitor.deliver.message import Excerpt, Message
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

    def __init__(self, name: str, url: str, *, private: bool = False, timeout_s: float = TIMEOUT_S) -> None:
        self.name = name
        self._poster = Poster(url, private=private, timeout_s=timeout_s)

    def __repr__(self) -> str:
        return f"Slack({self.name!r}, host={self._poster.host!r})"

    async def send(self, message: Message) -> Receipt:
        return await self._poster.post(wire.to_json(payload(message)), {})

    async def close(self) -> None:
        await self._poster.close()


def payload(message: Message) -> dict[str, Any]:
    """What is posted: ``text`` is what notifications and screen readers show, ``blocks`` the message."""
    return {"text": clipped(escaped(message.summary), MAX_TEXT), "blocks": blocks(message), "unfurl_links": False, "unfurl_media": False}


def blocks(message: Message) -> list[dict[str, Any]]:
    """Header, verdict, numbers, paragraphs, rollouts, link and a line of small print; at most :data:`MAX_BLOCKS`."""
    out: list[dict[str, Any]] = [{"type": "header", "text": _plain(f"{mark(message.to_state)} {message.title}", MAX_HEADER)}]
    if message.verdict:
        out.append(_section(message.verdict))
    fields = [_labelled(label, value, MAX_FIELD) for label, value in message.numbers][:MAX_FIELDS]
    out.append({"type": "section", "fields": fields})
    out += [{"type": "section", "text": _labelled(label, text, MAX_SECTION)} for label, text in message.paragraphs]
    for excerpt in message.excerpts:
        out += _rollout(excerpt)
    small = [f"{message.project} / {message.run_name}", f"step {message.step}", f"{message.organ}: {message.detector}"]
    if message.onset != message.step:
        small.append(f"since step {message.onset}")
    if message.link and len(message.link) <= MAX_URL:
        out.append(_section_link(message.link))
    out.append({"type": "context", "elements": [{"type": "mrkdwn", "text": clipped(escaped(" · ".join(small)), MAX_FIELD)}]})
    return out[:MAX_BLOCKS]


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


def _section_link(url: str) -> dict[str, Any]:
    button = {"type": "button", "text": _plain("Open the run", 75), "url": url, "action_id": "open-run"}
    return {"type": "actions", "elements": [button]}


def _labelled(label: str, text: str, limit: int) -> dict[str, Any]:
    head = f"*{escaped(label)}*\n"
    return {"type": "mrkdwn", "text": head + clipped(escaped(text) or "-", limit - len(head))}


def _rollout(excerpt: Excerpt) -> list[dict[str, Any]]:
    """A decoded rollout as preformatted text, in which Slack reads no markup."""
    rewards = ", ".join(f"{name} {value:.3g}" for name, value in list(excerpt.rewards.items())[:6])
    label = f"The {excerpt.pick} rollout of step {excerpt.step}" + (f" ({rewards})" if rewards else "")
    text = excerpt.text[:MAX_SECTION] or "(empty)"
    quoted = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text}]}
    return [_section(label), {"type": "rich_text", "elements": [quoted]}]
