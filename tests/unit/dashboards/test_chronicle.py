"""What happened to an incident, in words."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from sqlalchemy.ext.asyncio import create_async_engine
from views import T0, an_alert, text_of

from dashboards import chronicle
from dashboards.pages import House
from monitor.store.incidents import Note
from monitor.store.queries import Change, Told

HOUSE = House(create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:9/none"), "/")


def test_the_history_is_told_newest_first_with_what_was_asked_of_the_run() -> None:
    asked = Change(33, T0, "warning", "critical", "rose", None, "The run was asked to stop.")
    alert = dataclasses.replace(an_alert(1, "aux", since=32), changes=(Change(32, T0, "ok", "warning", "opened"), asked))
    notes = [Note(T0 + timedelta(hours=1), "ada", "acknowledge", "on it"), Note(T0 - timedelta(hours=1), "bob", "comment", "hm")]
    words = text_of(chronicle.log([alert], notes))
    order = [words.index(each) for each in ("ada", "The run was asked to stop.", "the condition holds for the first time", "bob")]
    assert order == sorted(order)


def test_who_was_told_says_what_arrived_and_how_many_were_held() -> None:
    cause = an_alert(1, "aux", since=32)
    sent = Told("on-call", "sent", 1, T0, None, "critical", 33)
    late = Told("mail", "pending", 3, None, "no answer", "critical", 33)
    symptoms = [an_alert(number, f"s{number}", since=34, held_by="aux") for number in (2, 3)]
    words = text_of(chronicle.told(HOUSE, [dataclasses.replace(cause, told=(sent, late)), *symptoms]))
    assert "on-call" in words and "arrived" in words and "critical at step 33: aux" in words
    assert "has not arrived yet" in words and "3 attempts, last: no answer" in words
    assert "Of 2 more alerts nobody was told: another explains them." in words
    words = text_of(chronicle.told(HOUSE, [dataclasses.replace(cause, told=(sent, dataclasses.replace(late, attempts=1))), symptoms[0]]))
    assert "Of 1 more alert nobody was told: another explains it." in words and "1 attempt, last: no answer" in words


def test_where_nobody_was_told_the_reason_is_given() -> None:
    muted = dataclasses.replace(an_alert(1, "aux", since=32), changes=(Change(33, T0, "ok", "critical", "opened", "no route fits"),))
    assert "Nobody: no route fits." in text_of(chronicle.told(HOUSE, [muted]))
