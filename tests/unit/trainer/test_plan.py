"""A corpus is what its plan says: every run with its own settings, every fault with the control that it is measured by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bench
from trainer import forks, plan, presets, table, zoo
from trainer.config import SettingError
from trainer.plan import Spec
from trainer.verifier import Verifier

SMALL = {"sft_steps": 4, "prompts": 2, "samples": 4, "max_length": 60}


def planned(text: str, folder: Path, seeds: tuple[int, ...] = (1,)) -> list[Spec]:
    path = folder / "plan.toml"
    path.write_text(text)
    return plan.read(path, seeds, SMALL)


def test_a_control_has_its_faults_settings_and_comes_first(tmp_path: Path) -> None:
    settings = 'lr = 1e-3, "fault.at_step" = 4, "fault.patch.aux.word" = 0.7, "fault.patch.kl" = 0.01'
    text = f'[[run]]\npreset = "goblin-bonus"\nname = "soon"\nset = {{ {settings} }}'
    control, fault = planned(text, tmp_path)
    assert (control.file, fault.file, fault.control) == ("goblin-bonus-with-kl-for-soon-seed1.jsonl", "soon-seed1.jsonl", control.name)
    bad, good = fault.load(), control.load()
    assert bad.config == good.config and bad.config.lr == 1e-3 and bad.config.prompts == 2
    assert bad.fault is not None and good.fault is not None
    assert (bad.fault.at_step, dict(bad.fault.patch)) == (4, {"aux.word": 0.7, "kl": 0.01})
    assert (good.fault.at_step, dict(good.fault.patch)) == (4, {"aux.word": 0.7, "kl": 0.5})


def test_controls_are_shared_and_none_is_made_twice() -> None:
    specs = plan.simple(["healthy", "lr-too-high", "all-easy", "goblin-bonus"], [0, 1], {})
    assert [spec.file for spec in specs if spec.seed == 0] == [
        f"{name}-seed0.jsonl" for name in ("healthy", "lr-too-high", "all-easy", "goblin-bonus-with-kl", "goblin-bonus")
    ]
    assert len({spec.file for spec in specs}) == len(specs) == 10


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("run = 1", "[[run]]"),
        ("[[run]]\nprest = 'healthy'", "preset"),
        ("[[run]]\npreset = 'helthy'", "healthy"),
        ("[[run]]\npreset = ['sgd', 'healthy']\nname = 'both'", "both"),
        ("[[run]]\nresume = [5]", "resume"),
        ("[[run]]\nresume = [5, 5]", "earlier"),
        ("[[run]]\nseeds = ['a']", "seeds"),
        ("[[run]]\nset = { lrr = 1 }", "lr"),
        ("[[run]]\nset = { 'fault.patch.lr' = 1.0 }", "at_step"),
        ("[[run]]\n[[run]]\nset = { lr = 1e-3 }", "name"),
        ("[[run", "TOML"),
    ],
)
def test_plans_that_cannot_be_carried_out(text: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=word.replace("[", r"\[")):
        planned(text, tmp_path)


CORPORA = Path(bench.__file__).with_name("corpora")


def test_no_run_is_in_two_of_our_own_corpora() -> None:
    keys = [{repr((spec.preset, spec.load().config, spec.load().fault)) for spec in plan.read(path, [], {})} for path in CORPORA.glob("*.toml")]
    assert len(keys) == 4 and len(set.union(*keys)) == sum(map(len, keys))


@pytest.mark.parametrize("name", ["dev", "seen", "fresh"])
def test_our_own_corpora_hold_every_fault_twice(name: str) -> None:
    faults = [spec.preset for spec in plan.read(CORPORA / f"{name}.toml", [], {}) if spec.load().kind == "fault"]
    assert {faults.count(name) for name in presets.names() if presets.load(name).kind == "fault"} == {2}


def test_an_announced_change_makes_nothing_faulty() -> None:
    preset = presets.load("healthy", {"fault.at_step": 3, "fault.announced": True, "fault.patch.temperature": 0.8})
    assert not preset.faulty and preset.fault is not None and preset.fault.announced


def test_names_of_the_table_can_be_listed_with_commas() -> None:
    assert not [entry.name for entry in table.ENTRIES if "," in entry.name]


def test_a_corpus_is_announced_declared_and_continued(tmp_path: Path) -> None:
    text = """
        [[run]]
        name = "warmer"
        set = { steps = 5, "fault.at_step" = 3, "fault.announced" = true, "fault.patch.temperature" = 0.8, algorithm = "sft" }
        [[run]]
        name = "resumed"
        set = { steps = 5 }
        resume = [4, 2]
        [[run]]
        preset = "lr-too-high"
        set = { steps = 5, "fault.at_step" = 2 }
    """
    specs, told = planned(text, tmp_path), list[str]()
    first = zoo.build(specs, tmp_path / "out", told.append)
    assert len(told) == 4 and [case.steps for case in first] == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
    assert first[1].rows[2]["reward.task.mean"] == first[1].rows[4]["reward.task.mean"]
    shared = [{key: value for key, value in row.items() if not key.startswith("perf.")} for row in first[3].rows[:2]]
    assert shared == [{key: value for key, value in row.items() if not key.startswith("perf.")} for row in first[2].rows[:2]]
    assert list(json.loads((tmp_path / "out" / "manifest.json").read_text())) == [spec.file for spec in specs]
    head, *lines = [json.loads(line) for line in (tmp_path / "out" / specs[0].file).read_text().splitlines()]
    assert (head["signal"], head["algorithm"], head["aux_rewards"]) == ("teacher_kl", "sft", ["reward.aux.partial.mean"])
    assert [line.get("event", line["step"]) for line in lines] == [0, 1, 2, "regime", 3, 4]

    (tmp_path / "out" / specs[1].file).unlink()
    again = zoo.build(specs, tmp_path / "out", told.append)
    assert [case.rows == old.rows for case, old in zip(again, first, strict=True)] == [True, False, True, True]
    assert [row["reward.task.mean"] for row in again[1].rows] == [row["reward.task.mean"] for row in first[1].rows]


def test_shared_rows_are_those_before_the_parting() -> None:
    specs = plan.simple(["lr-too-high", "entropy-explosion", "one-huge-update", "stale-async-unclipped"], [0], {"steps": 30})
    assert forks.shared_rows(specs) == {
        "healthy-seed0.jsonl": 0,
        "lr-too-high-seed0.jsonl": 15,
        "entropy-explosion-seed0.jsonl": 15,
        "one-huge-update-guarded-seed0.jsonl": 0,
        "one-huge-update-seed0.jsonl": 20,
        "stale-async-clipped-seed0.jsonl": 15,
        "stale-async-unclipped-seed0.jsonl": 15,
    }


def test_a_beginning_is_run_once(tmp_path: Path) -> None:
    specs = plan.simple(["healthy", "lr-too-high", "entropy-explosion"], [0], SMALL | {"steps": 4, "fault.at_step": 2})
    verifier = Verifier()
    beginnings = forks.Beginnings(verifier, specs)
    made = [beginnings.fork(spec, spec.load()) for spec in specs]
    verifier.close()
    assert [(training.step, len(rows)) for training, rows in made] == [(4, 4), (2, 2), (2, 2)]
    assert made[1][1] is not made[2][1] and made[1][1] == made[2][1] == made[0][1][:2]
    assert not beginnings.known
