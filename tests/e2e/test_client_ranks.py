"""Two processes with half of a batch each read the same metrics as one process with the whole, and the gate decides alike on both."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from monitor.client.batch_health import BatchHealth
from monitor.wire import read_number

RANK = """
import json, sys
import torch
import torch.distributed as dist
from monitor.client.batch_health import BatchHealth
from monitor.client.guard import Guard, Policy
from monitor.wire import spelled
from tests.e2e.test_client_ranks import batch, observe

torch.set_num_threads(1)
rank, size, meeting = int(sys.argv[1]), 2, sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
health = BatchHealth(50)
observe(health, slice(rank * 8, rank * 8 + 8))
health.reduce()
health.pack()
reading = health.collect(wait=True)
nan = BatchHealth()
nan.observe(torch.full((1, 1), float("nan") if rank else 0.5), torch.zeros(1, 1), torch.ones(1, 1))
nan.reduce()
nan.pack()
gate = Guard(policy=Policy(max_weight=2.0))
decision = gate.check(log_weights=torch.full((1, 1), 3.0 * rank), mask=torch.ones(1, 1), group=dist.group.WORLD)
odd = gate.check(loss=float("nan") if rank == 0 else 1.0, group=dist.group.WORLD)
out = {"values": reading.values, "hists": reading.hists, "nan": nan.collect().values["iw.max"], "verdicts": [decision.verdict, odd.verdict]}
print(json.dumps(spelled(out | {"weight": decision.evidence["log_weight"]})), flush=True)
dist.destroy_process_group()
"""


def batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    logp = -torch.rand(16, 12, generator=generator)
    return {
        "logp": logp,
        "behaviour_logp": logp + 0.3 * torch.randn(16, 12, generator=generator),
        "mask": torch.rand(16, 12, generator=generator) > 0.3,
        "old_logp": logp + 0.1 * torch.randn(16, 12, generator=generator),
        "advantages": torch.randn(16, generator=generator),
        "token_ids": torch.randint(0, 50, (16, 12), generator=generator),
    }


def observe(health: BatchHealth, rows: slice) -> None:
    part = {name: tensor[rows] for name, tensor in batch().items()}
    health.observe(**part)
    task = (part["advantages"] > 0).float()
    groups = [i // 4 for i in range(rows.start, rows.stop)]
    lengths = part["mask"].sum(1) * torch.arange(rows.start, rows.stop)
    health.observe_batch({"task": task, "style": part["advantages"]}, groups, advantages=part["advantages"], lengths=lengths, staleness=task)


def test_two_ranks_read_what_one_process_reads(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RANK]
    ranks = [subprocess.Popen([*command, str(rank), str(tmp_path / "meeting")], stdout=subprocess.PIPE, text=True) for rank in range(2)]
    found: list[dict[str, Any]] = [json.loads(process.communicate(timeout=120)[0].splitlines()[-1]) for process in ranks]
    assert found[0] == found[1]
    whole = BatchHealth(50)
    observe(whole, slice(0, 16))
    whole.pack()
    expected = whole.collect()
    assert expected is not None
    assert found[0]["hists"] == expected.hists and found[0]["values"].keys() == expected.values.keys()
    for name, value in expected.values.items():
        assert read_number(found[0]["values"][name]) == pytest.approx(value, rel=1e-12), name
    assert math.isnan(read_number(found[0]["nan"]) or 0.0), "NaN on one rank is NaN on all"
    assert found[0]["verdicts"] == ["skip", "skip"] and found[0]["weight"] == 3.0
