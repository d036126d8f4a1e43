from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from monitor.client import encode
from monitor.wire import Rollout, Turn, read_number


def values_of(values: dict[Any, Any]) -> dict[str, Any]:
    line = encode.row_line(3, 1.5, values, {})
    assert line.startswith(encode.ROW) and b"\n" not in line
    row = json.loads(line[1:])
    assert (row["step"], row["at"], row["hists"]) == (3, 1.5, {})
    return row["values"]


@given(st.dictionaries(st.text(), st.one_of(st.floats(), st.integers(), st.none()), max_size=8))
def test_every_number_survives(values: dict[str, float | int | None]) -> None:
    read = {name: value if value is None or isinstance(value, int) else read_number(value) for name, value in values_of(values).items()}
    assert read.keys() == values.keys()
    for name, value in values.items():
        assert read[name] == value or (isinstance(value, float) and math.isnan(value) and math.isnan(read[name]))


def test_numbers_of_other_libraries_are_read() -> None:
    found = values_of(
        {"a": np.float32(0.5), "b": np.int64(3), "c": torch.tensor(2.0), "d": np.float64("nan"), "e": True, "f": torch.tensor(math.inf)}
    )
    assert found == {"a": 0.5, "b": 3.0, "c": 2.0, "d": "NaN", "e": 1, "f": "Infinity"}


def test_what_is_no_number_travels_for_the_collector_to_name() -> None:
    found = values_of({"text": "abc", "list": [1, 2], "vector": torch.ones(2), 7: 1.0})
    assert found["text"] == "abc" and found["list"] == "[1, 2]" and found["vector"].startswith("tensor(") and found["7"] == 1.0


def test_histograms_of_other_libraries_are_read() -> None:
    row = json.loads(encode.row_line(0, 0.0, {}, {"h": np.array([1, 2]), "bad": ["x"]})[1:])
    assert row["hists"] == {"h": [1, 2], "bad": [-1]}


def rollout_of(given: Any) -> dict[str, Any]:
    line = encode.rollout_line(4, 2, given)
    assert line.startswith(encode.ROLLOUT) and b"\n" not in line
    return json.loads(line[1:])


def test_rollouts_may_be_objects_or_mappings() -> None:
    as_object = Rollout(0, 9, "best", [Turn("agent", "hi\nthere")], {"task": math.nan}, advantage=1.5, group="g", truncated=True)
    assert rollout_of(as_object) == {
        "step": 4,
        "ordinal": 9,
        "pick": "best",
        "turns": [{"role": "agent", "text": "hi\nthere"}],
        "rewards": {"task": "NaN"},
        "advantage": 1.5,
        "group": "g",
        "truncated": True,
    }
    as_mapping = rollout_of({"turns": [("prompt", "p"), {"role": "agent", "text": "a"}], "rewards": {"task": torch.tensor(1.0)}, "group": 3})
    assert as_mapping["ordinal"] == 2 and as_mapping["group"] == "3" and as_mapping["rewards"] == {"task": 1.0}
    assert as_mapping["turns"] == [{"role": "prompt", "text": "p"}, {"role": "agent", "text": "a"}]


def test_a_long_rollout_loses_its_middle() -> None:
    found = rollout_of({"turns": [("prompt", "short"), ("agent", "A" * 10 + "m" * 2_000_000 + "Z" * 10)]})
    text = found["turns"][1]["text"]
    assert found["turns"][0]["text"] == "short"
    assert text.startswith("AAAAAAAAAA") and text.endswith("ZZZZZZZZZZ") and "characters left out" in text and len(text) < 300_000
    many = rollout_of({"turns": [("agent", f"turn {i}") for i in range(5000)]})["turns"]
    assert len(many) <= encode.MOST_TURNS and many[0]["text"] == "turn 0" and many[-1]["text"] == "turn 4999"
    assert any("turns left out" in turn["text"] for turn in many)


def test_events_carry_what_json_can_and_the_rest_as_text() -> None:
    event = json.loads(encode.event_line(1.0, "regime", 5, {"lr": math.inf, "what": object, "deep": {"a": (1, 2)}})[1:])
    assert event["detail"]["lr"] == "Infinity" and event["detail"]["deep"] == {"a": [1, 2]} and "object" in event["detail"]["what"]


@pytest.mark.parametrize(
    ("rollout", "sentence"),
    [
        ({"turns": "hello"}, r"the turns of a rollout are a list of \(role, text\) pairs, not 'hello'"),
        ({"turns": 5}, "the turns of a rollout are a list"),
        ({"turns": ["hello"]}, r"a turn is a \(role, text\) pair, a mapping or a Turn, not 'hello'"),
        ({"turns": [("agent", "hi", "there")]}, "a turn is a"),
        ({"turns": [("agent", "hi")], "rewards": [1.0]}, r"the rewards of a rollout are a mapping of names to numbers, not \[1.0\]"),
        ({"turns": [("agent", "hi")], "ordinal": 1.5}, "the ordinal of a rollout is a whole number, not 1.5"),
    ],
)
def test_a_rollout_that_cannot_be_sent_says_what_to_pass(rollout: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        encode.rollout_line(0, 0, rollout)
