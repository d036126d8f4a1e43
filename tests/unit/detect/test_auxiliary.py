"""What the detectors of the auxiliary rewards say."""

from __future__ import annotations

from monitor.detect import examples
from tests.unit.detect.streams import first, walk


def test_the_auxiliary_reward_that_rose_is_named_though_nobody_declared_it() -> None:
    example = examples.FIRES["aux_share"]
    rows = [
        {**row, "reward.aux.partial.mean": 0.2, **({"reward.aux.word.mean": 0.02 * (i - example.at)} if i >= example.at else {})}
        for i, row in enumerate(example.rows())
    ]
    found = first(walk(rows, example.context), "aux_share")
    assert found is not None and "What rose most is auxiliary reward word, from 0.05 to 0.16." in found[1].evidence
    alone = first(walk(example.rows(), example.context), "aux_share")
    assert alone is not None and "rose most" not in alone[1].evidence
