"""A Slack bot (chat.postMessage): the first letter of an incident is a message, later ones are answers in its thread (critical
ones are shown in the room too), and the message itself says how things stand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from monitor import wire
from monitor.deliver import slack
from monitor.deliver.channel import MessageRefused, Receipt, TransportError
from monitor.deliver.letter import Letter
from monitor.deliver.post import TIMEOUT_S, Poster

API = "https://slack.com/api"

_LATER = frozenset(
    ("ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout", "message_limit_exceeded")
)
_AT_FAULT = frozenset(("invalid_blocks", "invalid_blocks_format", "msg_too_long", "msg_blocks_too_long", "no_text", "invalid_arguments"))
_NO_THREAD = frozenset(("thread_not_found", "message_not_found", "cannot_reply_to_message"))


class SlackBot:
    """Posts to ``room`` (a channel's name or id) with a bot's ``token`` (scope chat:write), which is a secret.

    Slack keeps no key for deduplication: a repetition shows twice. What it says of the first message of a story is the thread that the next
    letters bring back.
    """

    interval_s = 1.0  # https://docs.slack.dev/apis/web-api/rate-limits

    def __init__(self, name: str, token: str, room: str, *, api: str = API, private: bool = False, timeout_s: float = TIMEOUT_S) -> None:
        self.name = name
        self._room = room
        self._headers = {"authorization": f"Bearer {token}"}
        self._post, self._update = (
            Poster(f"{api.rstrip('/')}/{method}", private=private, timeout_s=timeout_s) for method in ("chat.postMessage", "chat.update")
        )

    def __repr__(self) -> str:
        return f"SlackBot({self.name!r}, host={self._post.host!r}, room={self._room!r})"

    @property
    def about(self) -> str:
        return f"Slack bot in {self._room} at {self._post.host}"

    async def send(self, letter: Letter) -> Receipt:
        thread = letter.thread
        if thread is None:
            return await self._begin(letter)
        answer = {**slack.payload(letter), "channel": thread["channel"], "thread_ts": thread["ts"], "reply_broadcast": letter.state == "critical"}
        try:
            receipt, _ = await self._ask(self._post, answer)
        except _Gone:
            return await self._begin(letter)
        return Receipt(receipt.status, receipt.latency_ms, await self._refresh(letter, thread))

    async def close(self) -> None:
        await self._post.close()
        await self._update.close()

    async def _begin(self, letter: Letter) -> Receipt:
        """A message of its own, with which a thread can begin."""
        said = slack.payload(letter)
        receipt, answer = await self._ask(self._post, {**said, "channel": self._room})
        place = {"channel": str(answer.get("channel") or self._room), "ts": str(answer.get("ts") or "")}
        sentence = letter.title.partition(": ")[2]  # without the state, which will change
        thread = {**place, "title": sentence, "blocks": said["blocks"]} if place["ts"] and letter.story else None
        return Receipt(receipt.status, receipt.latency_ms, thread=thread)

    async def _refresh(self, letter: Letter, thread: Mapping[str, Any]) -> str | None:
        """Makes the first message say how the story stands. The letter has arrived by then, so that a failure is only noted."""
        now = {**slack.standing(letter, thread["title"], thread["blocks"]), "channel": thread["channel"], "ts": thread["ts"]}
        try:
            await self._ask(self._update, now)
        except TransportError as error:
            return f"the first message of the thread stayed as it was: {error}"
        return None

    async def _ask(self, poster: Poster, body: Mapping[str, Any]) -> tuple[Receipt, Mapping[str, Any]]:
        receipt, raw = await poster.ask(wire.to_json(body), self._headers)
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise TransportError(f"{poster.host} did not answer as Slack does; set the channel's api right", permanent=True, status=receipt.status)
        if answer.get("ok") is not True:
            raise meaning(str(answer.get("error")), receipt.status)
        return receipt, answer


class _Gone(TransportError):
    """The message to answer is not there any more."""


def meaning(error: str, status: int | None = None) -> TransportError:
    """What Slack's error (https://docs.slack.dev/reference/methods/chat.postMessage#errors) means for this message and for the channel."""
    word = error if error.isidentifier() and len(error) <= 80 else "an unknown error"
    if error in _NO_THREAD:
        return _Gone(f"Slack answered {word}", status=status)
    if error in _AT_FAULT:
        return MessageRefused(f"Slack answered {word} and will not take this message", status)
    if error in _LATER:
        return TransportError(f"Slack answered {word}", status=status)
    return TransportError(f"Slack answered {word}; the channel's token, its scopes or its room need attention", permanent=True, status=status)
