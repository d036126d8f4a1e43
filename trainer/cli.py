"""The command ``vitals-train``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from monitor.client.checks import SetupError
from trainer import presets, studies
from trainer.config import SettingError, algorithm_table, read_assignment

EXAMPLES = """examples:
  vitals-train                                        learn code repair from a warm start, on the screen
  vitals-train --preset goblin-bonus                  the same, until a bonus for a word takes over at step 10
  vitals-train --preset healthy --set algorithm=gspo --set lr=1e-3
  vitals-train --preset goblin-bonus --set fault.at_step=20 --set fault.patch.aux.word=0.3
  vitals-train --seed 3 --steps 40 --jsonl rows.jsonl
  vitals-train --checkpoint run.pt --jsonl rows.jsonl     the same command again continues where the last one ended or was killed
  vitals-train --collector http://127.0.0.1:8900 --project code-repair --name first
  vitals-train --list                                 every preset and algorithm

studies (each has its own --help):
  vitals-train table                                  every algorithm, three seeds: success before and after, CPU seconds
  vitals-train zoo --out corpus                       a labelled corpus of healthy and faulty runs
  vitals-train audit --set verifier=flaky             which tasks a verifier lets pass, with intervals

The first run of a setting makes its warm start (about 15 s) and keeps it in the user's cache (VITALS_CACHE moves it).
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="vitals-train",
        description="Train a small code-repair policy with reinforcement learning, well or with a fault, and stream its health.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--preset", default="healthy", metavar="NAME", help="what to run (default: healthy); --list shows all")
    top.add_argument("--seed", type=int, metavar="N", help="seed of tasks and sampling (default: 0)")
    top.add_argument("--steps", type=int, metavar="N", help="number of updates (default: the preset's)")
    top.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting, for example lr=1e-3 or aux.word=0.5; repeatable"
    )
    top.add_argument("--list", action="store_true", help="list presets and algorithms and exit")
    top.add_argument("--collector", metavar="URL", help="stream rows, rollouts and events to this collector")
    top.add_argument("--project", default="code-repair", help="the run's project at the collector (default: code-repair)")
    top.add_argument("--name", help="the run's name at the collector (default: PRESET-seedN)")
    top.add_argument("--jsonl", type=Path, metavar="FILE", help="write one JSON object per step, for vitals diagnose")
    top.add_argument("--checkpoint", type=Path, metavar="FILE", help="keep the run's state here, and continue from it when it exists")
    top.add_argument("--checkpoint-every", type=int, default=10, metavar="N", help="steps between checkpoints (default: 10)")
    top.add_argument("--device", help="cpu, cuda ... (default: cuda when there is one)")
    top.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads (default: 1, the fastest for a policy this small)")
    top.add_argument("--quiet", action="store_true", help="no progress on the screen")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code: 0 done, 1 failed, 2 a request that cannot be carried out, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words and words[0] in studies.COMMANDS:
            return studies.main(words)
        arguments = parser().parse_args(words)
        if arguments.list:
            print(listing())
            return 0
        from trainer import running

        return running.run(arguments, _preset(arguments))
    except (SettingError, SetupError) as problem:
        print(f"vitals-train: {problem}", file=sys.stderr)
        return 2
    except OSError as problem:
        where = f"{problem.filename}: " if problem.filename else ""
        print(f"vitals-train: {where}{problem.strerror or problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _preset(arguments: argparse.Namespace) -> presets.Preset:
    settings: dict[str, Any] = {}
    for text in arguments.set:
        name, value = read_assignment(text)
        settings[name] = value
    settings |= {name: value for name in ("seed", "steps") if (value := getattr(arguments, name)) is not None}
    return presets.load(arguments.preset, settings)


def listing() -> str:
    """Every preset and algorithm, one line each."""
    lines = ["presets"]
    for name in presets.names():
        preset = presets.load(name)
        lines.append(f"  {name:28} {preset.kind:8} {preset.about}")
    return "\n".join([*lines, "", "algorithms (--set algorithm=NAME)", algorithm_table()])
