"""``vitals.toml`` is read with its layers, and everything wrong with it is told by line, all at once."""

from __future__ import annotations

import math
import tomllib

import pytest

from monitor.alerts import rules
from monitor.alerts.rules import RulesError, parse
from monitor.detect.registry import DETECTORS

DETECTOR = next(detector for detector in DETECTORS if detector.parameters)
NAME = DETECTOR.parameters[0].name


def test_a_run_overrides_its_project_and_that_the_general_value() -> None:
    found = parse(
        f"""
        [detectors.{DETECTOR.id}]
        {NAME} = 1

        [project.math.detectors.{DETECTOR.id}]
        {NAME} = 2.5

        [run."seed 3".detectors.{DETECTOR.id}]
        {NAME} = 4
        """
    )
    assert found.limits() == {DETECTOR.id: {NAME: 1.0}}
    assert found.limits("math") == {DETECTOR.id: {NAME: 2.5}}
    assert found.limits("math", "seed 3") == {DETECTOR.id: {NAME: 4.0}}
    assert found.limits("other", "seed 4") == {DETECTOR.id: {NAME: 1.0}}


def test_the_examples_of_the_template_are_valid() -> None:
    found = parse("\n".join(line.removeprefix("#   ") for line in rules.template().splitlines() if line.startswith("#   ")))
    assert [each.name for each in found.receivers] == ["oncall"] and found.routes[0].channels == ("oncall",)


def test_an_empty_file_changes_nothing() -> None:
    assert parse("# nothing here\n").limits("a", "b") == {}


def test_every_problem_is_told_with_its_line() -> None:
    text = f"""[detectors.{DETECTOR.id}]
{NAME} = "high"
{NAME}s = 3

[detectors.{DETECTOR.id}x]
a = 1

[channelz]
slack = "x"
[project.math]
rules = 1
"""
    with pytest.raises(RulesError) as caught:
        parse(text)
    told = {problem.line: problem.sentence for problem in caught.value.problems}
    assert list(told) == [2, 3, 5, 8, 11]
    assert "finite number" in told[2]
    assert f"did you mean {NAME!r}?" in told[3]
    assert f"did you mean {DETECTOR.id!r}?" in told[5]
    assert "did you mean 'channel'?" in told[8]
    assert "'rules'" in told[11]


@pytest.mark.parametrize("value", ["nan", "inf", "true", "[1]", "{a = 1}"])
def test_thresholds_are_finite_numbers(value: str) -> None:
    with pytest.raises(RulesError, match=r"line 2: .* finite number"):
        parse(f"[detectors.{DETECTOR.id}]\n{NAME} = {value}\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [("a = \n", 1), ("\n\n[detectors\n", 3), ("[detectors]\n[detectors]\n", 2), ("x = 1\nx = 2\n", 2), ("detectors = 1\n", 1), ('a = "open\n', 1)],
)
def test_broken_toml_is_told_with_its_line(text: str, line: int) -> None:
    with pytest.raises(RulesError) as caught:
        parse(text)
    assert caught.value.problems[0].line == line


def test_the_template_holds_every_threshold_and_is_valid() -> None:
    text = rules.template()
    assert parse(text).limits() == {}
    uncommented = "\n".join(line.removeprefix("# ") if "  # " in line else line for line in text.splitlines())
    assert {name: set(values) for name, values in tomllib.loads(uncommented)["detectors"].items()} == {
        detector.id: {parameter.name for parameter in detector.parameters} for detector in DETECTORS if detector.parameters
    }
    assert parse(uncommented).limits() == {
        detector.id: {parameter.name: float(parameter.default) for parameter in detector.parameters} for detector in DETECTORS if detector.parameters
    }


def test_routes_are_read() -> None:
    found = parse(
        """
        [[route]]
        channels = ["slack", "webhook"]
        severity = "critical"
        match = {project = "math*", detector = "no_signal"}
        days = ["mon", "fri"]
        hours = "22:00-06:30"
        zone = "Europe/Berlin"

        [[route]]
        channels = ["webhook"]
        """
    ).routes
    first, second = found
    assert (first.channels, first.severity, first.matcher) == (("slack", "webhook"), "critical", {"project": "math*", "detector": "no_signal"})
    assert (first.days, str(first.begin), str(first.end), str(first.zone)) == (("mon", "fri"), "22:00:00", "06:30:00", "Europe/Berlin")
    assert (second.channels, second.severity, second.matcher, second.begin) == (("webhook",), "warning", {}, None)


def test_digests_and_repetitions_of_routes() -> None:
    daily, urgent = parse(
        """
        [[route]]
        channels = ["slack"]
        severity = "watch"
        digest = "1d"

        [[route]]
        channels = ["slack"]
        severity = "critical"
        repeat = "4h"
        """
    ).routes
    assert (daily.severity, daily.digest_s, daily.repeat_s) == ("watch", 86400.0, None)
    assert (urgent.severity, urgent.digest_s, urgent.repeat_s) == ("critical", None, 14400.0)
    with pytest.raises(RulesError) as caught:
        parse(
            """[[route]]
channels = ["slack"]
severity = "watch"
[[route]]
channels = ["slack"]
digest = "daily"
[[route]]
channels = ["slack"]
digest = "1h"
repeat = "1h"
"""
        )
    told = {problem.line: problem.sentence for problem in caught.value.problems}
    assert list(told) == [3, 6, 10] and "with a digest" in told[3] and '"4h"' in told[6] and "not both" in told[10]


def test_problems_of_routes_are_told_with_their_line() -> None:
    text = """[[route]]
channels = ["slack"]
severity = "information"

[[route]]
match = {step = "1"}
days = ["monday"]
hours = "nine to five"
zone = "Mars/Olympus"
colour = "red"
"""
    with pytest.raises(RulesError) as caught:
        parse(text)
    told = {problem.line: problem.sentence for problem in caught.value.problems}
    assert list(told) == [3, 5, 6, 7, 8, 9, 10]
    assert "needs channels" in told[5]


def test_routes_that_are_no_tables_are_told() -> None:
    with pytest.raises(RulesError, match=r"line 1: routes are tables"):
        parse("route = 1\n")


def test_acts_are_read_and_do_nothing_unless_told_to() -> None:
    careful, bold = parse(
        """
        [[act]]
        request = "checkpoint"
        severity = "warning"
        match = {project = "math*", organ = "policy"}

        [[act]]
        request = "stop"
        match = {detector = "non_finite"}
        dry_run = false
        """
    ).acts
    assert (careful.request, careful.severity, careful.dry_run) == ("checkpoint", "warning", True)
    assert careful.matcher == {"project": "math*", "organ": "policy"}
    assert (bold.request, bold.severity, bold.matcher, bold.dry_run) == ("stop", "critical", {"detector": "non_finite"}, False)


def test_problems_of_acts_are_told_with_their_line() -> None:
    text = """[[act]]
request = "resume"
severity = "watch"
dry_run = "no"
match = {detector = "non_finit"}
when = "now"

[[act]]
match = {step = "1"}
"""
    with pytest.raises(RulesError) as caught:
        parse(text)
    told = {problem.line: problem.sentence for problem in caught.value.problems}
    assert list(told) == [2, 3, 4, 5, 6, 8, 9]
    assert "stop, checkpoint, pause, not 'resume'" in told[2] and "did you mean 'non_finite'?" in told[5] and "needs a request" in told[8]
    with pytest.raises(RulesError, match=r"line 1: acts are tables"):
        parse("act = 1\n")


def test_a_route_for_a_detector_that_is_not_there_is_told() -> None:
    with pytest.raises(RulesError, match=r"line 3: there is no detector 'no_signall'; did you mean 'no_signal'\?"):
        parse('[[route]]\nchannels = ["slack"]\nmatch = {detector = "no_signall"}\n')
    assert parse('[[route]]\nchannels = ["slack"]\nmatch = {detector = "los?"}\n').routes[0].matcher == {"detector": "los?"}


@pytest.mark.parametrize(("text", "seconds"), [("", 3600.0), ('[late]\nafter = "2d"\n', 172_800.0), ('[late]\nafter = "never"\n', math.inf)])
def test_when_rows_are_late(text: str, seconds: float) -> None:
    assert parse(text).late_s == seconds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[late]\nafter = "soon"\n', r"line 2: a length of time"),
        ("[late]\nafter = 5\n", r"line 2: a length of time"),
        ('[late]\nbefore = "1h"\n', r"line 2: late has no 'before'; it has: after"),
        ("late = 1\n", r"line 1: late must be a table"),
    ],
)
def test_problems_of_late_are_told_with_their_line(text: str, says: str) -> None:
    with pytest.raises(RulesError, match=says):
        parse(text)
