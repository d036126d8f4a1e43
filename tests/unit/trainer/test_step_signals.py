"""Values, step rewards, teachers and weights: the parts that turn one reward at the end into something finer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from trainer import correction, process_reward, teachers
from trainer.batch import at_end
from trainer.config import Config, changed
from trainer.curriculum import mix_at
from trainer.environment import Episode
from trainer.model import Shape, TinyGPT
from trainer.sources import draw_episodes
from trainer.tasks.repair import RUNNING_EXAMPLE
from trainer.training import Training
from trainer.values import Bins
from trainer.verifier import Verdict, Verifier
from trainer.vocab import SIZE, decode
from trainer.world import World


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    verifier = Verifier()
    yield verifier
    verifier.close()


def test_bins_spread_a_return_around_its_place() -> None:
    bins = Bins(8)
    returns = torch.linspace(-1.2, 1.2, 25)
    target = bins.target(returns)
    torch.testing.assert_close(target.sum(-1), torch.ones(25))
    torch.testing.assert_close(target @ bins.centres, returns, atol=0.01, rtol=0)
    assert bins.predict(torch.zeros(2, 3, 8), torch.zeros(2, 4)).abs().max() < 1e-6


def test_corrections() -> None:
    old, mu = torch.tensor([[0.0, -1.0, -3.0]]), torch.tensor([[-2.0, -1.0, -0.5]])
    mask = torch.tensor([[True, True, True]])
    weight, held = correction.truncated(old, mu, mask, 2.0)
    torch.testing.assert_close(weight, torch.tensor([[2.0, 1.0, 0.0821]]), atol=1e-4, rtol=0)
    assert held.tolist() == [[True, False, False]]
    weight, dropped = correction.masked(old, mu, mask, 0.5, 2.0)
    assert weight.tolist() == [[0.0, 1.0, 0.0]] and dropped.tolist() == [[True, False, True]]
    assert correction.masked(old, mu, mask & False, 0.5, 2.0)[1].any().item() is False


def test_reward_stands_at_the_last_trained_token() -> None:
    mask = torch.tensor([[False, True, True, False], [True, False, False, False]])
    assert at_end(mask, torch.tensor([2.0, 3.0])).tolist() == [[0, 0, 2, 0], [3, 0, 0, 0]]


def test_step_labels_follow_the_source(verifier: Verifier) -> None:
    episode = Episode(RUNNING_EXAMPLE, RUNNING_EXAMPLE.tests)
    for turn in ("read S", "edit S L2 return 3 if x is None else x", "think done", "edit S L2 return 3", "submit"):
        episode.act(turn.split())
    assert verifier.step_labels([episode]) == [[0, 1, 1, 0, 0]]


def test_step_rewards_telescope(verifier: Verifier) -> None:
    torch.manual_seed(0)
    network = TinyGPT(Shape(SIZE))
    torch.nn.init.normal_(network.value_head.weight)
    config = Config(prompts=3, samples=2)
    batch = teachers.demonstrated(config, 0, verifier, World())
    rewards, potential = process_reward.step_rewards(network, batch)
    ends = process_reward.turn_ends(batch.ids, batch.mask)
    assert not rewards[~ends].any()
    for row in range(len(batch.episodes)):
        last = int(ends[row].nonzero().max())
        assert float(rewards[row].sum()) == pytest.approx(float(potential[row, last]), abs=1e-5)
    label, known = process_reward.spread(verifier.step_labels(batch.episodes), batch.ids, batch.mask)
    assert known.sum() == sum(len(e.states) for e in batch.episodes) and set(label[known].tolist()) <= {0.0, 1.0}


def test_good_demonstrations_are_good_and_masked(verifier: Verifier) -> None:
    batch = teachers.demonstrated(Config(prompts=4, samples=2), 0, verifier, World())
    assert sum(v.task for v in batch.verdicts) >= 6
    for ids, mask, episode in zip(batch.ids.tolist(), batch.mask.tolist(), batch.episodes, strict=True):
        said = decode(token for token, own in zip(ids[1:], mask, strict=True) if own).split(" <end>")
        assert [turn.strip() for turn in said[:-1]] == [text for role, text in episode.turns if role == "agent"]


def test_informed_teacher_scores_the_same_tokens(verifier: Verifier) -> None:
    batch = teachers.demonstrated(Config(prompts=2, samples=2), 1, verifier, World())
    ids, mask = teachers.informed(batch)
    assert torch.equal(ids[:, 1:][mask], batch.ids[:, 1:][batch.mask])
    for row, episode in zip(ids.tolist(), batch.episodes, strict=True):
        assert " ".join(episode.task.fixed[episode.task.wrong_lines[0]].split()) in decode(row)
    short = teachers.trimmed(batch, 45)
    assert torch.equal(teachers.informed(short)[1][:, :44].sum(1), short.mask.sum(1)) and short.mask.sum() < batch.mask.sum()
    model = TinyGPT(Shape(SIZE))
    assert teachers.target("informed", model, short, 45).shape == (int(short.mask.sum()), SIZE)


@pytest.mark.parametrize("kind", ["forward_kl", "reverse_kl"])
def test_divergence(kind: str) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(2, 7, SIZE).log_softmax(-1)
    assert (teachers.divergence(kind, a, b) > 0).all()
    torch.testing.assert_close(teachers.divergence(kind, a, a), torch.zeros(7))
    torch.testing.assert_close(teachers.divergence("forward_kl", a, b), teachers.divergence("reverse_kl", b, a))


def test_curriculum_goes_from_easy_to_hard() -> None:
    config = Config(curriculum="ramp", steps=30, mix={"retry": 1.0, "between": 1.0, "pair": 1.0})
    joined = [set(mix_at(config, step)) for step in (0, 12, 29)]
    assert joined == [{"retry"}, {"retry", "between"}, {"retry", "between", "pair"}]
    assert mix_at(config, 29)["pair"] > 0.85


def test_ranks_share_prompts_without_overlap() -> None:
    config = Config(prompts=4, samples=2)
    whole = [e.task.key for e in draw_episodes(config, 3, 0, range(4))[0]]
    halves = [[e.task.key for e in draw_episodes(config, 3, 0, range(4)[rank::2])[0]] for rank in range(2)]
    assert halves[0] == whole[0:2] + whole[4:6] and halves[1] == whole[2:4] + whole[6:8]


def test_measuring_success_changes_nothing_and_closes_every_door(verifier: Verifier) -> None:
    """The same tasks at every step, and the run goes on as if nobody had asked."""
    settings = {"prompts": 2, "samples": 4, "max_length": 60, "verifier": "unreachable", "mix": {"retry": 1.0}}
    asked, left = (Training(changed(Config(), settings), TinyGPT(Shape(SIZE)), verifier) for _ in range(2))
    left.policy.load_state_dict(asked.policy.state_dict())
    left.reference.load_state_dict(asked.policy.state_dict())
    assert asked.success(3) == asked.success(3)
    rows = [training.advance().values for training in (asked, left)]
    plain = [{name: value for name, value in row.items() if not name.startswith("perf.")} for row in rows]
    assert plain[0] == plain[1]


def test_success_is_that_of_the_policy(verifier: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the held-out verdicts are right, whatever the configured verifier says."""
    config = changed(Config(), {"prompts": 2, "samples": 4, "max_length": 60, "verifier": "unreachable", "eval_every": 2})
    training = Training(config, TinyGPT(Shape(SIZE)), verifier)
    score = verifier.score

    def half(episodes: Sequence[Episode], wrong: frozenset[str], *rest: Any) -> list[Verdict]:
        return [replace(v, audit=float(i % 2 and not wrong)) for i, v in enumerate(score(episodes, wrong, *rest))]

    monkeypatch.setattr(verifier, "score", half)
    assert training.success(2) == 0.5
    assert [training.advance().values.get("eval.task.mean") for _ in range(3)] == [0.5, None, 0.5]
