"""The sampler and the trainer see the same policy, and what is measured of a batch is what a plain computation in double precision says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

import pytest
import torch

from monitor.client.batch_health import BatchHealth
from trainer.batch import Batch, joined, scored, with_advantages
from trainer.config import Config, changed
from trainer.environment import Episode
from trainer.learner import Learner
from trainer.model import Shape, TinyGPT
from trainer.rollout import Trajectories, rollout
from trainer.tasks import catalogue
from trainer.verifier import Verifier
from trainer.vocab import END_ID, OBS_ID, SIZE, TASK_ID

CONFIG = changed(Config(), {"prompts": 3, "samples": 4, "max_length": 60, "minibatches": 1})


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    verifier = Verifier()
    yield verifier
    verifier.close()


def policy(seed: int = 0) -> TinyGPT:
    torch.manual_seed(seed)
    return TinyGPT(Shape(SIZE))


def play(verifier: Verifier, model: TinyGPT, temperature: float = 1.0, seed: int = 0) -> Trajectories:
    tasks = [catalogue.draw(CONFIG.mix, Random(i)) for i in range(CONFIG.prompts)]
    episodes = [Episode(task, task.tests) for task in tasks for _ in range(CONFIG.samples)]
    how = {"max_length": 60, "device": torch.device("cpu"), "temperature": temperature}
    return rollout(model, episodes, verifier.judge, torch.Generator().manual_seed(seed), **how)


def batch_of(verifier: Verifier, model: TinyGPT) -> Batch:
    t = play(verifier, model)
    return scored(CONFIG, t, verifier.score(t.episodes), [i // CONFIG.samples for i in range(len(t.episodes))])


@pytest.mark.parametrize("temperature", [1.0, 1.5])
def test_sampler_equals_full_forward(verifier: Verifier, temperature: float) -> None:
    model = policy()
    t = play(verifier, model, temperature)
    logits = model.logits(model(t.ids[:, :-1])) / temperature
    full = torch.log_softmax(logits, -1).gather(-1, t.ids[:, 1:, None]).squeeze(-1)
    mask = t.mask[:, 1:]
    assert (full - t.logp[:, 1:])[mask].abs().max() < 1e-4
    assert not t.logp[:, 1:][~mask].any()


def test_masks_and_turns(verifier: Verifier) -> None:
    t = play(verifier, policy())
    for row, episode in enumerate(t.episodes):
        ids, mask = t.ids[row].tolist(), t.mask[row].tolist()
        assert ids[0] == TASK_ID and OBS_ID in ids[:12] and not any(mask[: ids.index(OBS_ID) + 1])
        assert sum(token == END_ID and sampled for token, sampled in zip(ids, mask, strict=True)) == episode.counts["turns"]
        assert len([1 for token in ids if token]) <= 60 and episode.stopped in ("submit", "turns", "length")


def test_rollouts_repeat_with_the_seed(verifier: Verifier) -> None:
    one, two, other = play(verifier, policy()), play(verifier, policy()), play(verifier, policy(), seed=1)
    assert torch.equal(one.ids, two.ids) and torch.equal(one.logp, two.logp)
    assert one.ids.shape != other.ids.shape or not torch.equal(one.ids, other.ids)


def test_first_minibatch_is_on_policy(verifier: Verifier) -> None:
    model = policy()
    learner = Learner(CONFIG, model, policy())
    batch = batch_of(verifier, model)
    before = learner.evaluate(batch)
    batch, _ = with_advantages(CONFIG, batch)
    health = BatchHealth(SIZE)
    measured = learner.update(CONFIG, batch, before, None, health, Random(0), 0)
    health.pack(0)
    reading = health.collect(wait=True)
    assert reading is not None
    assert measured["update.clip_frac"] == 0.0
    assert reading.values["iw.max"] == pytest.approx(1, abs=1e-4) and reading.values["iw.min"] == pytest.approx(1, abs=1e-4)
    assert reading.values["kl_ref.k3"] < 1e-9 and reading.values["mismatch.kl.k3"] < 1e-9


def test_packed_metrics_equal_a_plain_reference(verifier: Verifier) -> None:
    """A stale batch: sampled by one policy, trained by another."""
    model, other = policy(), policy(1)
    learner = Learner(changed(CONFIG, {"lr": 0.0}), model, policy(2))
    batch = joined(batch_of(verifier, other), batch_of(verifier, other).rows(range(4)))
    before = learner.evaluate(batch)
    batch, _ = with_advantages(CONFIG, batch)
    health = BatchHealth(SIZE)
    learner.update(changed(CONFIG, {"lr": 0.0, "minibatches": 3}), batch, before, None, health, Random(0), 0)
    health.observe_batch(rewards=batch.components, groups=batch.group, advantages=batch.advantages, mask=batch.mask)
    health.pack(0)
    reading = health.collect(wait=True)
    assert reading is not None
    with torch.no_grad():
        logits = model.logits(model(batch.ids[:, :-1])).double()
    logp_all = torch.log_softmax(logits, -1)
    m = batch.mask
    logp = logp_all.gather(-1, batch.ids[:, 1:, None]).squeeze(-1)
    gap = (logp - batch.behaviour.double())[m]
    to_ref = (logp - before.ref.double())[m]
    weight = gap.exp()
    per_row = torch.where(m, logp - batch.behaviour.double(), 0.0).sum(1)
    expected = {
        "iw.max": weight.max(),
        "iw.mean": weight.mean(),
        "iw.min": weight.min(),
        "iw.ess": weight.sum() ** 2 / (len(weight) * (weight**2).sum()),
        "iw.seq_max": (per_row / m.sum(1)).exp().max(),
        "iw.seq_log_absmax": per_row.abs().max(),
        "entropy.mean": -(logp_all.exp() * logp_all).sum(-1)[m].mean(),
        "kl_ref.k3": (torch.expm1(-to_ref) + to_ref).mean(),
        "mismatch.kl.k3": (torch.expm1(gap) - gap).mean(),
        "len.completion.mean": m.sum(1).double().mean(),
        "len.completion.max": m.sum(1).double().max(),
        "rep.adjacent_frac": ((batch.ids[:, 1:] == batch.ids[:, :-1]) & m).sum() / m.sum(),
        "adv.nonzero_frac": (batch.advantages.abs().amax(1) > 1e-8).double().mean(),
        "reward.total.mean": batch.total.double().mean(),
    }
    for name, value in expected.items():
        assert math.isclose(reading.values[name], float(value), rel_tol=1e-4, abs_tol=1e-6), name


def test_a_resumed_gate_remembers_what_is_usual(verifier: Verifier) -> None:
    config = changed(CONFIG, {"guard": True, "lr": 1e-4})
    model = policy()
    learner = Learner(config, model, policy())
    batch = batch_of(verifier, model)
    before = learner.evaluate(batch)
    batch, _ = with_advantages(config, batch)
    for step in range(6):
        assert learner.update(config, batch, before, None, BatchHealth(SIZE), Random(0), step)["opt.skipped"] == 0
    resumed = Learner(config, model, policy())
    resumed.restore(learner.state())
    weights = model.head.detach().clone()
    assert resumed.update(changed(config, {"lr": 1.0}), batch, before, None, BatchHealth(SIZE), Random(0), 6)["opt.skipped"] == 1
    assert torch.equal(model.head, weights)
