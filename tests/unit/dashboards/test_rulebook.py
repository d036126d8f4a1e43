"""The rules in force: what is written of them says the same, and every threshold stands in one row."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dashboards import rulebook
from monitor.alerts.rules import Limits, Rules, parse
from monitor.detect.registry import DETECTORS

ALL = [(detector.id, parameter.name) for detector in DETECTORS for parameter in detector.parameters]


def limits() -> st.SearchStrategy[Limits]:
    values = st.floats(allow_nan=False, allow_infinity=False)
    return st.dictionaries(st.sampled_from(ALL), values, max_size=4).map(
        lambda chosen: {owner: {name: value for (d, name), value in chosen.items() if d == owner} for owner, _ in chosen}
    )


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
RULES = st.builds(Rules, general=limits(), projects=st.dictionaries(NAMES, limits(), max_size=2), runs=st.dictionaries(NAMES, limits(), max_size=2))


@given(RULES)
def test_what_is_written_is_read_back(rules: Rules) -> None:
    back = parse(rulebook.written(rules))
    assert back.general == rules.general
    assert back.projects == {name: layer for name, layer in rules.projects.items() if layer}
    assert back.runs == {name: layer for name, layer in rules.runs.items() if layer}


@given(RULES)
def test_every_threshold_is_listed_once_with_all_its_changes(rules: Rules) -> None:
    found = rulebook.thresholds(rules)
    assert sorted((each.detector.id, each.parameter.name) for each in found) == sorted(ALL)
    layers = (rules.general, *rules.projects.values(), *rules.runs.values())
    assert sum(len(each.changed) for each in found) == sum(len(values) for layer in layers for values in layer.values())
