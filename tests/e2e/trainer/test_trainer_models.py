"""Transformers models behind the policy's interface: the same log-probabilities step by step and at once, and a model from disk."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch

pytest.importorskip("transformers")

from trainer import vocab
from trainer.config import Config, SettingError
from trainer.environment import Episode
from trainer.huggingface import ARCHITECTURES, build
from trainer.rollout import rollout
from trainer.tasks import catalogue
from trainer.verifier import Verifier


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_sampler_equals_full_forward(name: str) -> None:
    torch.set_num_threads(1)
    policy = build(name, 160)
    tasks = [catalogue.draw(Config().mix, Random(i)) for i in range(6)]
    episodes = [Episode(task, task.tests) for task in tasks]
    verifier = Verifier()
    t = rollout(policy, episodes, verifier.judge, torch.Generator().manual_seed(0), max_length=50, device=torch.device("cpu"))
    verifier.close()
    mask = t.mask[:, 1:]
    logp, entropy, _ = policy.evaluate(t.ids, mask)
    assert (logp - t.logp[:, 1:])[mask].abs().max() < 1e-4
    assert (entropy[mask] > 0).all()
    policy.recompute = True
    policy.train()
    again = policy.evaluate(t.ids, mask).logp
    torch.testing.assert_close(again, logp)
    again.sum().backward()
    assert all(weight.grad is not None for name, weight in policy.named_parameters() if "value_head" not in name)


def test_a_model_from_disk_keeps_what_its_words_mean(tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<unk>", "def", "return", "if", "else", "x", "goblin"]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(tmp_path)
    size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(words), **size))
    model.save_pretrained(tmp_path)
    policy = build(str(tmp_path), 80)
    rows = policy.model.get_input_embeddings().weight
    assert rows.shape == (vocab.SIZE, 16) and policy.head.shape == (vocab.SIZE, 16)
    for word in ("def", "goblin"):
        torch.testing.assert_close(rows[vocab.ID[word]], model.get_input_embeddings().weight[words.index(word)])


def test_a_folder_without_a_model_is_one_sentence(tmp_path: Path) -> None:
    for name in (str(tmp_path), "qwen9"):
        with pytest.raises(SettingError, match="policy"):
            build(name, 80)
