"""Which charts a run gets, and what their figures hold."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dashboards.charts import charts_for
from dashboards.figures import figure
from monitor.metrics import CATALOGUE, HISTOGRAMS, ORGANS

NAMES = st.lists(st.sampled_from([metric.name for metric in CATALOGUE]) | st.text("abc./", min_size=1, max_size=12), unique=True, max_size=80)


@given(NAMES)
def test_every_metric_has_a_chart_and_every_chart_a_metric(names: list[str]) -> None:
    charts = charts_for(names)
    shown = {line.metric for chart in charts for line in chart.lines}
    assert set(names) <= shown
    for chart in charts:
        assert any(line.metric in names for line in chart.lines)
    assert len({chart.id for chart in charts}) >= len({chart.title for chart in charts}) - len(names)


@given(NAMES)
def test_charts_follow_the_order_of_the_organs(names: list[str]) -> None:
    places = [ORGANS.index(chart.organ) for chart in charts_for(names)]
    assert places == sorted(places)


def test_the_task_reward_comes_first_and_what_only_helps_stands_beside_it() -> None:
    (chart,) = charts_for(["reward.aux.word.mean", "reward.total.mean", "reward.task.mean", "reward.audit.mean"])
    assert [(line.label, line.beside) for line in chart.lines] == [("task", False), ("audit", False), ("total", True), ("word", True)]
    assert chart.wide


def test_a_run_names_its_own_rewards() -> None:
    (chart,) = charts_for(["reward.fn.tests.mean", "reward.fn.style.mean"], task="reward.fn.tests.mean", aux=["reward.fn.style.mean"])
    assert [line.metric for line in chart.lines] == ["reward.fn.tests.mean", "reward.fn.style.mean"]


def test_group_shares_are_stacked_even_when_the_mixed_ones_are_not_logged() -> None:
    (chart,) = charts_for(["group.all_pass_frac", "group.all_fail_frac"])
    assert chart.kind == "stack" and [line.label for line in chart.lines] == ["all pass", "mixed", "all fail"]


def test_a_single_metric_of_a_group_keeps_its_own_title() -> None:
    (chart,) = charts_for(["iw.max"])
    assert chart.title == "Largest importance weight" and chart.log


def test_unknown_names_are_custom_and_histograms_are_heat_maps() -> None:
    charts = charts_for(["my own/metric"], [histogram.name for histogram in HISTOGRAMS])
    assert [chart.kind for chart in charts if chart.organ == "custom"] == ["lines"]
    assert sum(chart.kind == "heat" for chart in charts) == len(HISTOGRAMS)


def test_figures_are_plain_json_and_shares_have_percent_axes() -> None:
    for chart in charts_for([metric.name for metric in CATALOGUE], [histogram.name for histogram in HISTOGRAMS]):
        told = json.loads(json.dumps(figure(chart), allow_nan=False))
        assert [trace["meta"]["metric"] for trace in told["data"]] == [line.metric for line in chart.lines]
        assert all("x" not in trace for trace in told["data"])
        assert told["layout"]["yaxis"]["type"] == ("log" if chart.log else "linear")
    (clipped,) = charts_for(["len.truncated_frac"])
    assert figure(clipped)["layout"]["yaxis"]["tickformat"].endswith("%")


def test_the_share_of_the_signal_is_no_component_of_the_reward() -> None:
    names = ["reward.task.mean", "reward.aux.mean", "reward.aux.word.mean", "reward.aux.share"]
    found = {chart.id: [line.metric for line in chart.lines] for chart in charts_for(names)}
    assert found["reward-components"] == ["reward.task.mean", "reward.aux.mean", "reward.aux.word.mean"]
    assert ["reward.aux.share"] in found.values()
