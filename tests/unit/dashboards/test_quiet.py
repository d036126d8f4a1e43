"""What stands beside the state of a run whose silence says nothing."""

from __future__ import annotations

from datetime import timedelta

from views import T0, text_of

from dashboards import quiet
from dashboards.quiet import Past
from monitor.store.presence import Announced, Blind


def told(past: Past) -> list[str]:
    return [" ".join(text_of(part).split()) for part in quiet.told(past, T0)]


def test_an_announcement_says_until_when_and_why() -> None:
    assert told(Past(announced=Announced("r", "r", "p", "evaluation", T0))) == ["silence announced until (evaluation)"]
    assert told(Past(announced=Announced("r", "r", "p", "", None))) == ["silence announced until its next row"]
    assert told(Past()) == []


def test_only_the_newest_spell_of_the_last_day_is_told_and_the_others_counted() -> None:
    spells = tuple(Blind("collector", T0 - timedelta(hours=hours + 1), T0 - timedelta(hours=hours)) for hours in (1, 5, 30))
    assert told(Past(spells=spells)) == ["the collector was down from to , and 1 more time in the last day"]
    assert told(Past(spells=spells[:1])) == ["the collector was down from to"]
    assert told(Past(spells=spells[2:])) == []
