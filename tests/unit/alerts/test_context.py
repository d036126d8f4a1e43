from __future__ import annotations

from monitor.alerts.judgement import AUXILIARY, context


def test_the_sum_of_auxiliary_rewards_is_watched_whatever_is_declared() -> None:
    assert context().aux == (AUXILIARY,)
    assert context(aux=["reward.aux.partial.mean"]).aux == ("reward.aux.partial.mean", AUXILIARY)
    assert context(aux=[AUXILIARY]).aux == (AUXILIARY,)
