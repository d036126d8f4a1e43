"""The callback inside a real GRPOTrainer with a random policy."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest.importorskip("trl")

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from monitor.adapters.trl import VitalsCallback
from monitor.client import SetupError
from monitor.client.guard import Guard, Policy
from monitor.metrics import describe
from tests.unit.client.receiver import Receiver, receiving

pytestmark = pytest.mark.filterwarnings("ignore")
torch.set_num_threads(1)
WORDS = ["<pad>", "<eos>", *"abcdefghijklmnopqrstuvwxyz"]


def solved(completions: list[str], **_: Any) -> list[float]:
    return [float("a" in completion) for completion in completions]


def style(completions: list[str], **_: Any) -> list[float]:
    return [0.1 * len(completion) for completion in completions]


@pytest.fixture
def collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("VITALS_SPOOL_DIR", str(tmp_path / "spool"))
    with receiving() as receiver:
        monkeypatch.setenv("VITALS_URL", receiver.url)
        yield receiver


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", padding_side="left")


def trainer(folder: Path, callback: VitalsCallback, **options: Any) -> GRPOTrainer:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    settings = {
        "output_dir": str(folder / "out"),
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 8,
        "max_steps": 3,
        "logging_steps": 1,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "seed": 3,
    }
    return GRPOTrainer(
        model=str(folder / "model"),
        reward_funcs=[solved, style],
        args=GRPOConfig(**(settings | options)),
        train_dataset=Dataset.from_dict({"prompt": ["a b c", "d e f", "g h", "i j k"] * 4}),
        processing_class=tokenizer(),
        callbacks=[callback],
    )


def test_every_line_of_a_training_arrives_with_what_trl_does_not_log(tmp_path: Path, collector: Receiver) -> None:
    callback = VitalsCallback("p", "n", task_reward="solved")
    model = trainer(tmp_path, callback, beta=0.02, num_iterations=2, max_steps=4)
    callback.watch(model)
    model.train()
    (start,) = collector.starts
    assert start["config"]["num_iterations"] == 2 and start["algorithm"] == "dapo" and start["task_reward"] == "reward.fn.solved.mean"
    rows = collector.rows()
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    first, second = (row["values"] for row in rows[:2])
    expected = {
        "opt.loss",
        "opt.grad_norm",
        "opt.lr",
        "entropy.mean",
        "kl_ref.k3",
        "iw.max",
        "iw.ess",
        "ratio.max",
        "update.clip_frac",
        "rep.ngram_frac",
    }
    assert expected <= first.keys() and expected - {"rep.ngram_frac"} <= second.keys()
    generation = {"reward.task.mean", "reward.aux.style.mean", "adv.nonzero_frac", "group.all_fail_frac", "reward.total.mean", "len.completion.mean"}
    assert generation <= first.keys()
    assert not generation & second.keys(), "a line about a reused generation measures no rewards"
    assert first["reward.task.mean"] == pytest.approx(first["reward.fn.solved.mean"])
    assert first["iw.max"] == pytest.approx(1.0, abs=1e-4) and second["iw.max"] != 1.0
    for name, value in first.items():
        assert not (describe(name).organ != "custom" and isinstance(value, float) and math.isfinite(value)) or describe(name).contains(value), name
    samples = collector.records("rollouts")
    assert {sample["pick"] for sample in samples} == {"best", "worst", "random"} and samples[0]["turns"][0]["role"] == "prompt"
    assert collector.ends[0]["state"] == "finished"


def test_without_watching_trl_s_own_keys_are_sent(tmp_path: Path, collector: Receiver) -> None:
    model = trainer(tmp_path, VitalsCallback("p", "n"), max_steps=2)
    model.train()
    rows = collector.rows()
    assert len(rows) == 2 and {"reward.total.mean", "entropy.mean", "len.truncated_frac"} <= rows[0]["values"].keys()
    assert "iw.max" not in rows[0]["values"]


def test_a_refused_update_changes_no_weight_and_is_noted(tmp_path: Path, collector: Receiver) -> None:
    callback = VitalsCallback("p", "n", guard=Guard(policy=Policy(max_update_norm=1e-12, halt_after=2)))
    model = trainer(tmp_path, callback, max_steps=4)
    callback.watch(model)
    before = [parameter.detach().clone() for parameter in model.model.parameters()]
    model.train()
    assert all(torch.equal(one, other) for one, other in zip(before, model.model.parameters(), strict=True))
    assert [row["values"]["opt.skipped"] for row in collector.rows()] == [1, 1]


def test_a_request_to_stop_ends_the_training(tmp_path: Path, collector: Receiver) -> None:
    collector.requests = ["stop"]
    model = trainer(tmp_path, VitalsCallback("p", "n", accepts=["stop"]), max_steps=500)
    model.train()
    assert model.state.global_step < 500 and collector.ends[0]["state"] == "stopped"


def test_a_callback_needs_a_run_or_a_name() -> None:
    with pytest.raises(SetupError, match="needs a project and a name"):
        VitalsCallback()
