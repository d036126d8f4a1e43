"""What the instruments cost: batch health next to forward and backward, and chunked log-probabilities next to the naive ones.

    python -m bench.instruments                  # on the CPU: the project's own trainer, vocabulary 106; memory at vocabulary 32,000
    python -m bench.instruments --device cuda    # on a GPU: vocabulary 152,000, 16,384 tokens, bfloat16

On the CPU processor time is compared, so that other programs do not matter much. Prints JSON lines with ours, peer and ratio: ``peer`` is the same
work without the instrument.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bench.rig import REPOSITORY
from monitor.client.batch_health import BatchHealth
from monitor.client.logprob import chunked_logp_entropy

STEPS = 8


def trainer_cost() -> dict[str, Any]:
    """Batch health in the default training: its share of the forward and backward passes of the update."""
    from trainer import policies
    from trainer.presets import load
    from trainer.training import Training
    from trainer.verifier import Verifier
    from trainer.world import World

    torch.set_num_threads(1)
    verifier = Verifier()
    spent = {"instruments": 0.0, "forward and backward": 0.0}
    config = load("healthy").config
    training = Training(config, policies.build(config, verifier, World(device=torch.device("cpu")), None), verifier)
    training.advance()
    for name in ("observe", "observe_batch", "pack", "collect"):
        setattr(BatchHealth, name, _timed(getattr(BatchHealth, name), spent, "instruments"))
    training.policy.evaluate = _timed(training.policy.evaluate, spent, "forward and backward", torch.is_grad_enabled)
    torch.Tensor.backward = _timed(torch.Tensor.backward, spent, "forward and backward")  # type: ignore[method-assign]
    shares = []
    for _ in range(STEPS):
        spent.update(dict.fromkeys(spent, 0.0))
        training.advance()
        shares.append((spent["instruments"], spent["forward and backward"]))
    training.close()
    verifier.close()
    ours, peer = (median(column) * 1e3 for column in zip(*shares, strict=True))
    return {
        "bench": "instruments",
        "case": "batch health, default trainer, CPU",
        "ours": {"cpu_ms": round(ours, 2)},
        "peer": {"name": "forward and backward", "cpu_ms": round(peer, 1)},
        "ratio": round(median(one / other for one, other in shares), 4),
    }


def _timed(inner: Callable[..., Any], spent: dict[str, float], name: str, when: Callable[[], bool] = lambda: True) -> Callable[..., Any]:
    def outer(*args: Any, **kwargs: Any) -> Any:
        counts = when()
        began = time.process_time()
        try:
            return inner(*args, **kwargs)
        finally:
            if counts:
                spent[name] += time.process_time() - began

    return outer


def naive_logp_entropy(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    log_probs = torch.log_softmax((hidden @ weight.t()).float(), -1)
    return log_probs.gather(-1, targets[:, None]).squeeze(-1), -(log_probs.exp() * log_probs).sum(-1)


FORMS: dict[str, Callable[..., tuple[torch.Tensor, torch.Tensor]]] = {"naive": naive_logp_entropy, "chunked": chunked_logp_entropy}


def one_pass(form: str, tokens: int, width: int, vocabulary: int) -> tuple[float, float]:
    """Extra peak memory in MB and seconds of one forward and backward pass; on the CPU in a process that has done nothing else."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    hidden = torch.randn(tokens, width, requires_grad=True)
    weight = (torch.randn(vocabulary, width) * 0.05).requires_grad_()
    targets = torch.randint(0, vocabulary, (tokens,))
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    before = _resident("VmRSS")
    began = time.process_time()
    logp, entropy = FORMS[form](hidden, weight, targets)
    (logp.mean() + 0.01 * entropy.mean()).backward()
    return _resident("VmHWM") - before, time.process_time() - began


def _resident(field: str) -> float:
    """MB of memory that Linux counts for this process under ``field``."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return float(line.split()[1]) / 1024


def chunked_memory(tokens: int = 2048, width: int = 256, vocabulary: int = 32_000) -> dict[str, Any]:
    """Peak memory beyond the inputs, the gradient of the head (the same for both) included."""
    found = {}
    for form in FORMS:
        program = f"from bench.instruments import one_pass; print(*one_pass({form!r}, {tokens}, {width}, {vocabulary}))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
        found[form] = [float(value) for value in done.stdout.split()]
    shown = {form: {"peak_mb": round(memory, 1), "cpu_s": round(seconds, 2)} for form, (memory, seconds) in found.items()}
    return {
        "bench": "instruments",
        "case": f"chunked log-probability and entropy, vocabulary {vocabulary}, {tokens} tokens, CPU",
        "ours": shown["chunked"],
        "peer": {"name": "naive", **shown["naive"]},
        "ratio": round(found["chunked"][0] / found["naive"][0], 3),
        "time_ratio": round(found["chunked"][1] / found["naive"][1], 3),
    }


def on_gpu(device: torch.device, sequences: int = 8, length: int = 2048, width: int = 3584, vocabulary: int = 152_000) -> Iterator[dict[str, Any]]:
    """Batch health and chunked log-probabilities at the shapes of a 7B model, against that model's forward and backward (6 FLOP per weight)."""
    torch.manual_seed(0)
    tokens = sequences * length
    logp = -torch.rand(sequences, length, device=device)
    batch = {name: logp + 0.1 * torch.randn_like(logp) for name in ("behaviour_logp", "old_logp", "ref_logp")}
    mask = torch.rand_like(logp) > 0.1
    ids = torch.randint(0, vocabulary, (sequences, length), device=device)
    advantages = torch.randn(sequences, device=device)
    health = BatchHealth(vocabulary)

    def observe() -> None:
        health.observe(logp, mask=mask, entropy=-logp, advantages=advantages, token_ids=ids, **batch)
        health.pack()
        health.collect()

    hidden = torch.randn(tokens, width, device=device, dtype=torch.bfloat16, requires_grad=True)
    weight = (torch.randn(vocabulary, width, device=device) * 0.02).bfloat16().requires_grad_()
    layer = torch.nn.Linear(width, 4 * width, bias=False, device=device, dtype=torch.bfloat16)

    def project(form: str) -> None:
        one, other = FORMS[form](hidden, weight, ids.flatten())
        (one.mean() + 0.01 * other.mean()).backward()
        hidden.grad = weight.grad = None

    def dense() -> None:
        layer(hidden.detach()).float().mean().backward()

    per_weight = _gpu_seconds(dense) / layer.weight.numel()
    model = per_weight * 7.6e9
    ours = _gpu_seconds(observe)
    shape = f"vocabulary {vocabulary}, {tokens} tokens, {torch.cuda.get_device_name(device)}"
    yield {
        "bench": "instruments",
        "case": f"batch health, {shape}",
        "ours": {"s": ours},
        "peer": {"name": "7.6e9 weights", "s": model},
        "ratio": ours / model,
    }
    found = {}
    for form in FORMS:
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        seconds = _gpu_seconds(lambda form=form: project(form), rounds=3)  # type: ignore[misc]
        found[form] = {"s": seconds, "peak_mb": (torch.cuda.max_memory_allocated(device) - held) / 2**20}
    memory = found["chunked"]["peak_mb"] / found["naive"]["peak_mb"]
    yield {
        "bench": "instruments",
        "case": f"chunked, {shape}",
        "ours": found["chunked"],
        "peer": {"name": "naive", **found["naive"]},
        "ratio": memory,
    }


def _gpu_seconds(work: Callable[[], None], rounds: int = 10) -> float:
    work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(rounds):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.instruments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    device = torch.device(parser.parse_args().device)
    lines = on_gpu(device) if device.type == "cuda" else (work() for work in (trainer_cost, chunked_memory))
    for line in lines:
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
