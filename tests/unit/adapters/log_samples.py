"""One small run written in every format the readers know. Values are made up; each writer follows the format's own spelling."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from monitor.adapters.readers.tensorboard import masked_crc

REWARDS = (0.125, 0.25, 0.5, 0.625, 0.75, 0.875)
STEPS = len(REWARDS)


@dataclass(frozen=True, slots=True)
class Sample:
    """``text`` written to ``name`` must read as ``framework`` with these rewards under ``reward`` at these ``steps``."""

    id: str
    name: str
    content: bytes
    framework: str
    reward: str
    steps: tuple[int, ...]


def trl_row(i: int, reward: float) -> dict[str, float]:
    return {
        "loss": 0.0123 * i,
        "grad_norm": 0.5 + i,
        "learning_rate": 1e-6 * (STEPS - i),
        "completions/mean_length": 200.0 + i,
        "completions/clipped_ratio": 0.0625,
        "rewards/correctness/mean": reward,
        "rewards/format/mean": 0.5,
        "reward": reward + 0.5,
        "reward_std": 0.25,
        "frac_reward_zero_std": 0.5,
        "entropy": 0.4,
        "epoch": 0.01 * (i + 1),
    }


def _trl_console() -> str:
    lines = ["Loading checkpoint shards: 100%|####| 2/2 [00:01<00:00,  1.00it/s]", "Updated tokens: {'bos_token_id': None, 'pad_token_id': 1}"]
    for i, reward in enumerate(REWARDS):
        done = 5 * (i + 1)
        lines.append(f"\r 50%|#    | {done}/30 [00:10<00:10,  2.00s/it]\r          \r{trl_row(i, reward)}")
    lines.append("{'train_runtime': 12.5, 'train_loss': 0.01, 'epoch': 0.06}")
    return "\n".join(lines) + "\n"


def _trl_strings() -> str:
    lines = ["*** training ***"]
    for i, reward in enumerate(REWARDS):
        row = {
            k: v
            for k, v in trl_row(i, reward).items()
            if not k.startswith(("completions/", "rewards/")) and k not in ("entropy", "frac_reward_zero_std")
        }
        row |= {"completion_length": 90.0, "rewards/correctness": reward, "kl": math.nan if i == 2 else 0.01}
        lines.append(str({k: f"{v:.4g}" for k, v in row.items()}))
    return "\n".join(lines) + "\n"


def _state() -> str:
    history: list[dict[str, object]] = [{**trl_row(i, reward), "step": i + 1} for i, reward in enumerate(REWARDS)]
    history.insert(3, {"eval_loss": 0.5, "eval_reward": 0.7, "epoch": 0.03, "step": 3})
    history.append({"train_runtime": 12.5, "step": STEPS, "epoch": 0.06})
    history[1]["grad_norm"] = math.inf
    return json.dumps(
        {"best_metric": None, "epoch": 0.06, "global_step": STEPS, "log_history": history, "logging_steps": 1}, indent=2, sort_keys=True
    )


def _notebook() -> str:
    heads = [
        "Step",
        "Training Loss",
        "reward",
        "reward_std",
        "completions / mean_length",
        "completions / clipped_ratio",
        "rewards / correctness / mean",
    ]
    rows = [[i + 1, 0.01, reward + 0.5, 0.25, 200 + i, 0.0625, reward] for i, reward in enumerate(REWARDS)]
    cells = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    table = f"<table><thead><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr></thead><tbody>{cells}</tbody></table>"
    warm = "<table><tr><th>Step</th><th>Training Loss</th></tr><tr><td>5</td><td>0.9</td></tr></table>"
    outputs = [[{"output_type": "display_data", "data": {"text/html": [html]}}] for html in (warm, table)]
    return json.dumps({"nbformat": 4, "metadata": {}, "cells": [{"cell_type": "code", "outputs": output} for output in outputs]}, indent=1)


def _verl(prefix: str, spell: Callable[[float], str]) -> str:
    lines = ["Using LocalLogger", "{'actor': {'optim': {'lr': 1e-06}}}", f"{prefix}step:0 - val-core/math/acc/mean@1:{spell(0.25)}"]
    for i, reward in enumerate(REWARDS):
        metrics = {
            "actor/entropy": 0.5 - 0.01 * i,
            "actor/ppo_kl": 0.0 if i else 0.25,
            "actor/pg_clipfrac": 0.125,
            "actor/grad_norm": 0.5,
            "critic/score/mean": reward,
            "critic/advantages/max": 1.5,
            "critic/advantages/min": -2.0,
            "response_length/mean": 100.0,
            "response_length/clip_ratio": 0.0625,
        }
        lines.append(f"[Model Response] step 3 of the proof: a = {i}")
        lines.append(f"{prefix}step:{i + 1} - " + " - ".join(f"{key}:{spell(value)}" for key, value in metrics.items()))
    return "\n".join(lines) + "\n"


def _verl_csv() -> str:
    lines = ["step,critic/score/mean,actor/pg_loss,perf/throughput,timing_s/testing"]
    return "\n".join([*lines, *(f"{i + 1},{reward},0.001,{1000 + i}," for i, reward in enumerate(REWARDS))]) + "\n"


def tinker_row(i: int, reward: float) -> dict[str, float]:
    return {
        "step": i,
        "progress/batch": i,
        "optim/lr": 1e-4,
        "optim/kl_sample_train_v1": math.nan if i == 1 else 0.001,
        "env/all/reward/total": reward,
        "env/all/correct": reward,
        "env/all/format": 0.9,
        "env/all/total_turns": 400,
        "env/all/by_group/frac_all_good": 0.25,
        "env/all/by_group/frac_all_bad": 0.25,
    }


def _tinker() -> str:
    rows = [json.dumps(tinker_row(i, reward)) for i, reward in enumerate(REWARDS)]
    rows.insert(2, json.dumps({"time/save_checkpoint": 2.5}))
    return "\n".join(rows) + "\n"


def _verl_file() -> str:
    return "".join(json.dumps({"step": i, "data": {"critic/score/mean": reward, "actor/ppo_kl": None}}) + "\n" for i, reward in enumerate(REWARDS))


def _own() -> str:
    head = {"run": "r1", "algorithm": "grpo", "task_reward": "reward.task.mean", "aux_rewards": ["reward.aux.mean"], "config": {"lr": 1e-6}}
    rows = [
        {"step": i, "at": 1.7e9 + i, "values": {"reward.task.mean": reward, "reward.aux.mean": 0.1, "opt.loss": "NaN", "entropy.mean": 0.5}}
        for i, reward in enumerate(REWARDS)
    ]
    return "".join(json.dumps(row) + "\n" for row in (head, *rows))


def _pairs() -> str:
    lines = ["[gsm] 800 examples, model=small seed=1"]
    lines += [f"[gsm]   {i + 1}/6 | loss={0.1 * i:.4f} | reward={reward:.3f} | acc={100 * reward:.1f}%" for i, reward in enumerate(REWARDS)]
    return "\n".join([*lines, "[gsm]   -> ckpt s6", "[gsm] DONE | last10=0.264", "Zero-loss steps: 3/6 (50%)"]) + "\n"


def _array() -> str:
    return json.dumps([{"step": i + 1, "reward_mean": reward, "grad_norm": 0.5, "is_collapsed": False} for i, reward in enumerate(REWARDS)], indent=2)


def _wandb_csv() -> str:
    lines = ['"Step","run-7 - reward","run-7 - reward__MIN","run-7 - reward__MAX","run-7 - entropy"']
    return "\n".join([*lines, *(f'{i},{reward},{reward},{reward},"NaN"' for i, reward in enumerate(REWARDS))]) + "\n"


def _field(number: int, kind: int, payload: bytes) -> bytes:
    body = payload if kind != 2 else _varint(len(payload)) + payload
    return _varint(number << 3 | kind) + body


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def frame(payload: bytes) -> bytes:
    """A TFRecord frame around ``payload``."""
    size = struct.pack("<Q", len(payload))
    return size + struct.pack("<I", masked_crc(size)) + payload + struct.pack("<I", masked_crc(payload))


def event(step: int, scalars: Mapping[str, float], tensor: bool = False) -> bytes:
    """An event with scalars, as ``simple_value`` or as a float tensor."""
    body = b""
    for tag, value in scalars.items():
        raw = struct.pack("<f", value)
        held = _field(8, 2, _field(1, 0, _varint(1)) + _field(5, 5, raw)) if tensor else _field(2, 5, raw)
        body += _field(1, 2, _field(1, 2, tag.encode()) + held)
    return frame(_field(1, 1, struct.pack("<d", 1.7e9)) + _field(2, 0, _varint(step)) + _field(5, 2, body))


def _events() -> bytes:
    out = frame(_field(1, 1, struct.pack("<d", 1.7e9)) + _field(3, 2, b"brain.Event:2"))
    for i, reward in enumerate(REWARDS):
        out += event(i, {"train/reward": reward + 0.5, "train/reward_std": 0.25})
        out += event(i, {"train/completions/mean_length": 100.0, "train/rewards/correctness/mean": reward}, tensor=True)
    return out


COUNTED, FROM_ONE = tuple(range(STEPS)), tuple(range(1, STEPS + 1))
RAY = "\x1b[36m(TaskRunner pid=12)\x1b[0m "
FN = "reward.fn.correctness.mean"

SAMPLES = (
    Sample("trl console", "train.log", _trl_console().encode(), "trl", FN, tuple(5 * step for step in FROM_ONE)),
    Sample("trl strings", "train.log", _trl_strings().encode(), "trl-0.16", FN, FROM_ONE),
    Sample("trainer_state", "trainer_state.json", _state().encode(), "trl", FN, FROM_ONE),
    Sample("notebook", "run.ipynb", _notebook().encode(), "trl", FN, FROM_ONE),
    Sample("verl console", "verl.log", _verl(RAY, lambda x: f"np.float64({x!r})").encode(), "verl", "reward.total.mean", FROM_ONE),
    Sample("verl rounded", "verl.log", _verl("", lambda x: f"{x:.3f}").encode(), "verl", "reward.total.mean", FROM_ONE),
    Sample("verl csv", "verl.csv", _verl_csv().encode(), "verl", "reward.total.mean", FROM_ONE),
    Sample("verl file", "exp.jsonl", _verl_file().encode(), "verl", "reward.total.mean", COUNTED),
    Sample("tinker", "metrics.jsonl", _tinker().encode(), "tinker", "reward.fn.correct.mean", COUNTED),
    Sample("own rows", "run.jsonl", _own().encode(), "rlvitals", "reward.task.mean", COUNTED),
    Sample("pairs", "train.log", _pairs().encode(), "plain", "reward.total.mean", FROM_ONE),
    Sample("array", "logs.json", _array().encode(), "plain", "reward.total.mean", FROM_ONE),
    Sample("wandb csv", "export.csv", _wandb_csv().encode(), "plain", "reward.total.mean", COUNTED),
    Sample("events", "events.out.tfevents.1.host", _events(), "trl", FN, COUNTED),
)


def write(sample: Sample, folder: Path) -> Path:
    path = folder / sample.name
    path.write_bytes(sample.content)
    return path
