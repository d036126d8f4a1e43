"""Causal language models from transformers as policies: built from a configuration or loaded from disk, speaking the environment's words.

A model from disk keeps its network; its embedding and output matrices are replaced by one row per word of the vocabulary, the mean of the rows of
the word's own tokens, so that ``def`` still means ``def`` at the start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainer import vocab
from trainer.config import SettingError
from trainer.model import Evaluated, Shape, evaluated

ARCHITECTURES = ("qwen2", "llama", "qwen3")


class HFCache:
    """A transformers cache that knows how to drop rows."""

    def __init__(self, config: Any) -> None:
        from transformers import DynamicCache

        self.memory = DynamicCache(config=config)

    def keep(self, rows: Tensor) -> None:
        self.memory.batch_select_indices(rows)


class HFPolicy(nn.Module):
    """The methods of :class:`trainer.model.TinyGPT` around a transformers model."""

    def __init__(self, model: Any, length: int) -> None:
        super().__init__()
        self.model = model
        config = model.config
        self.shape = Shape(vocab.SIZE, config.hidden_size, config.num_hidden_layers, config.num_attention_heads, length)
        self._recompute = False
        self.value_head = nn.Linear(config.hidden_size, 1)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)

    @property
    def blocks(self) -> Any:
        """The decoder's layers, the units of sharding."""
        return self.model.model.layers

    @property
    def recompute(self) -> bool:
        return self._recompute

    @recompute.setter
    def recompute(self, wanted: bool) -> None:
        if wanted and not self._recompute:
            self.model.activation_checkpointing_enable({"use_reentrant": False})
        if self._recompute and not wanted:
            self.model.activation_checkpointing_disable()
        self._recompute = wanted

    @property
    def head(self) -> Tensor:
        return self.model.lm_head.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.model.model(input_ids=ids, use_cache=False).last_hidden_state

    def evaluate(self, ids: Tensor, mask: Tensor) -> Evaluated:
        return evaluated(self(ids[:, :-1]), self.head, ids, mask)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.head)

    def value(self, hidden: Tensor) -> Tensor:
        return self.value_head(hidden).squeeze(-1)

    def new_cache(self, rows: int) -> HFCache:
        return HFCache(self.model.config)

    def step(self, ids: Tensor, cache: HFCache) -> Tensor:
        out = self.model.model(input_ids=ids[:, None], cache=cache.memory, use_cache=True)
        return self.logits(out.last_hidden_state[:, 0])


def build(name: str, length: int, seed: int = 0) -> HFPolicy:
    """``qwen2``, ``llama`` or ``qwen3`` with random weights at a size that a CPU trains, or the model in the folder ``name``.

    Raises SettingError when transformers is missing or the folder holds no causal model.
    """
    try:
        import transformers
    except ImportError:
        raise SettingError("this policy needs transformers; install it with: pip install 'rlvitals[huggingface]'") from None
    if name not in ARCHITECTURES:
        return _from_disk(name, length)
    kind = {"qwen2": transformers.Qwen2Config, "llama": transformers.LlamaConfig, "qwen3": transformers.Qwen3Config}[name]
    size = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    if name == "qwen3":
        size["head_dim"] = 16
    config = kind(vocab_size=vocab.SIZE, max_position_embeddings=length, tie_word_embeddings=True, pad_token_id=vocab.PAD_ID, **size)
    torch.manual_seed(seed)
    return HFPolicy(transformers.AutoModelForCausalLM.from_config(config), length)


def _from_disk(folder: str, length: int) -> HFPolicy:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not Path(folder).is_dir():
        raise SettingError(f"policy {folder!r} is neither tiny, {', '.join(ARCHITECTURES)} nor a folder with a model")
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as problem:
        raise SettingError(f"policy {folder!r} cannot be loaded: {str(problem).splitlines()[0]}") from None
    rows = torch.stack([_meaning(model, tokenizer, word) for word in vocab.TOKENS])
    model.resize_token_embeddings(vocab.SIZE, mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(rows[:, 0])
        if not model.config.tie_word_embeddings:
            model.get_output_embeddings().weight.copy_(rows[:, 1])
    return HFPolicy(model, length)


@torch.no_grad()
def _meaning(model: Any, tokenizer: Any, word: str) -> Tensor:
    """Input and output row [2, width] of a word: the mean over its own tokens."""
    pieces = tokenizer.encode(" " + word, add_special_tokens=False) or tokenizer.encode(word, add_special_tokens=False) or [0]
    source, sink = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    return torch.stack([source[pieces].mean(0), sink[pieces].mean(0)])
