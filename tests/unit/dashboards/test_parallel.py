"""Parallel coordinates: every axis from 0 to 1 with its real values, what is missing below and not at zero."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from dashboards.parallel import RAIL, Axis, figure, number_or_word, place

VALUES = st.lists(st.none() | st.floats() | st.sampled_from(["adamw", "sgd", "true"]), min_size=1, max_size=8)


@given(VALUES)
def test_what_is_there_lies_on_its_axis_and_the_rest_on_the_rail(values: list[float | str | None]) -> None:
    placed = place(Axis("a", tuple(values)))
    for value, at in zip(values, placed.at, strict=True):
        there = isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))
        assert (0 <= at <= 1) if there else at == RAIL
    assert all(0 <= at <= 1 for at, _ in placed.ticks)
    drawn = figure([Axis("a", tuple(values))], [str(i) for i in range(len(values))], list(range(len(values))), ["/"] * len(values))
    json.dumps(drawn, allow_nan=False)
    assert len(drawn["data"]) == len(values)


def test_ticks_are_real_values_and_wide_ranges_are_logarithmic() -> None:
    rate = place(Axis("lr", (1e-5, 1e-3, 0.0, None)))
    assert [text for _, text in rate.ticks] == ["0", "0.0005", "0.001"] and rate.at[2] == 0.0 and rate.at[3] == RAIL
    rate = place(Axis("lr", (1e-6, 1e-4, 1e-2)))
    assert rate.at == (0.0, 0.5, 1.0)
    assert [text for _, text in rate.ticks] == ["1e-06", "1e-05", "0.0001", "0.001", "0.01"]


def test_a_single_value_stands_in_the_middle_and_words_keep_an_order() -> None:
    assert place(Axis("n", (4.0, 4.0))).at == (0.5, 0.5)
    words = place(Axis("optimizer", ("sgd", "adamw", 3.0)))
    assert words.at == (1.0, 0.5, 0.0) and [text for _, text in words.ticks] == ["3", "adamw", "sgd"]


def test_a_printed_setting_is_a_number_a_word_or_nothing() -> None:
    assert [number_or_word(text) for text in ("0.5", "true", "adamw", "null", None, "[1, 2]")] == [0.5, "true", "adamw", None, None, "[1, 2]"]


def test_titles_of_neighbours_stand_at_two_heights_and_are_told_whole() -> None:
    names = ["fault.for_step", "fault.patch.aux.word", "fault.patch.a.very.long.one"]
    drawn = figure([Axis(name, (1.0, 2.0)) for name in names], ["a", "b"], [0, 1], ["/", "/"])
    titles = [note for note in drawn["layout"]["annotations"] if "hovertext" in note]
    assert [note["hovertext"] for note in titles] == names and titles[2]["text"] == "fault.patch.a.very.lo…"
    assert titles[0]["y"] == titles[2]["y"] != titles[1]["y"]
