"""Two ranks with FSDP2 make the update that one rank makes, with the metrics that one rank measures; and the command trains that way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

SCRIPT = Path(__file__).with_name("ranks.py")
ROOT = SCRIPT.parents[3]


def torchrun(*words: str, ranks: int = 2, cwd: Path = ROOT, **variables: str) -> str:
    """The output of a script under torchrun, which must succeed."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | variables
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", *words]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_two_ranks_equal_one(tmp_path: Path) -> None:
    torchrun(str(SCRIPT), str(tmp_path / "two.json"))
    torchrun(str(SCRIPT), str(tmp_path / "one.json"), ranks=1)
    one, two = (json.loads(tmp_path.joinpath(f"{name}.json").read_text()) for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, alone in one.items():
        shared = two[name]
        assert alone["values"].keys() == shared["values"].keys()
        for metric, value in alone["values"].items():
            if not metric.startswith("perf."):
                assert shared["values"][metric] == pytest.approx(value, rel=1e-4, abs=1e-4), (name, metric)
        for key, weights in alone["weights"].items():
            torch.testing.assert_close(torch.tensor(shared["weights"][key]), torch.tensor(weights), atol=1e-4, rtol=1e-3, msg=f"{name} {key}")


@pytest.mark.parametrize("policy", ["qwen2", "llama"])
def test_the_command_trains_on_two_ranks(tmp_path: Path, policy: str) -> None:
    settings = [f"policy={policy}", "sharded=true", "recompute=true", "sft_steps=3", "prompts=2", "samples=2", "max_length=60", "max_turns=3"]
    words = [word for setting in settings for word in ("--set", setting)]
    rows, state = tmp_path / "rows.jsonl", tmp_path / "state.pt"
    command = ["-m", "trainer", "--device", "cpu", "--quiet", "--jsonl", str(rows), "--checkpoint", str(state), "--checkpoint-every", "1", *words]
    torchrun(*command, "--steps", "2", VITALS_CACHE=str(tmp_path / "cache"))
    torchrun(*command, "--steps", "3", VITALS_CACHE=str(tmp_path / "cache"))
    steps = [json.loads(line) for line in rows.read_text().splitlines()[1:]]
    assert [row["step"] for row in steps] == [0, 1, 2]
    assert all(row["batch.sequences"] == 4 and row["batch.groups"] == 2 for row in steps)


def test_one_sentence_when_ranks_cannot_share(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=2",
        "-m",
        "trainer",
        "--device",
        "cpu",
        "--steps",
        "1",
    ]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and "several ranks need sharded=true" in done.stderr
