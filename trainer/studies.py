"""The commands that study many runs: ``table``, ``zoo``, ``audit``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainer import presets
from trainer.config import SettingError, one_of, read_assignment

COMMANDS = ("table", "zoo", "audit")


def main(words: Sequence[str]) -> int:
    """Run one study; 0 when done."""
    arguments = PARSERS[words[0]]().parse_args(list(words[1:]))
    import torch

    torch.set_num_threads(1)
    return {"table": _table, "zoo": _zoo, "audit": _audit}[words[0]](arguments)


def _parser(command: str, about: str, examples: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=f"vitals-train {command}", description=about, epilog=f"examples:\n{examples}", formatter_class=argparse.RawDescriptionHelpFormatter
    )


def table_parser() -> argparse.ArgumentParser:
    top = _parser(
        "table",
        "Train with every algorithm and print success before and after as a Markdown table.",
        "  vitals-train table\n  vitals-train table --only grpo,gspo --seeds 0 --steps 20\n  vitals-train table --out algorithms.md",
    )
    _common(top)
    top.add_argument("--out", type=Path, metavar="FILE", help="also write the table here")
    top.add_argument("--steps", type=int, metavar="N", help="updates per run (default: 40)")
    return top


def zoo_parser() -> argparse.ArgumentParser:
    top = _parser(
        "zoo",
        "Fork one healthy beginning per setting and seed into many faults, and write rows, labels and a table. What a folder already holds is not "
        "run again, so that the same command continues after an interruption. manifest.json says before the first run which runs there will be.",
        "  vitals-train zoo --out corpus\n"
        "  vitals-train zoo --out corpus --only goblin-bonus,lr-too-high --seeds 0,1\n"
        "  vitals-train zoo --out small --set prompts=4 --set fault.at_step=20     settings of every run, and of its fault\n"
        "  vitals-train zoo --out fresh --plan plan.toml                           each run with settings of its own",
    )
    _common(top)
    top.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting of every run; repeatable")
    top.add_argument(
        "--plan",
        type=Path,
        metavar="FILE",
        help="TOML with [[run]] tables (preset, seeds, name, set, resume) instead of every preset with every seed",
    )
    top.add_argument("--out", type=Path, default=Path("corpus"), metavar="FOLDER", help="rows, labels.json and table.md go here (default: corpus)")
    return top


def audit_parser() -> argparse.ArgumentParser:
    top = _parser(
        "audit",
        "Play right, wrong and cheating work against a verifier: which tasks can be solved, what is wrongly refused or accepted.",
        "  vitals-train audit\n  vitals-train audit --set verifier=unreachable\n  vitals-train audit --set verifier=flaky --tasks 500",
    )
    top.add_argument("--preset", default="healthy", metavar="NAME", help="the setting whose verifier is audited (default: healthy)")
    top.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting; repeatable")
    top.add_argument("--tasks", type=int, default=200, metavar="N", help="number of random tasks (default: 200)")
    return top


PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {"table": table_parser, "zoo": zoo_parser, "audit": audit_parser}


def _common(top: argparse.ArgumentParser) -> None:
    top.add_argument("--only", metavar="NAMES", help="comma-separated names (default: all)")
    top.add_argument("--seeds", default="0,1,2", metavar="LIST", help="comma-separated seeds (default: 0,1,2)")


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise SettingError(f"--seeds takes whole numbers with commas, for example 0,1,2, not {text!r}") from None


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    return dict(read_assignment(text) for text in arguments.set)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _finish(text: str, out: Path | None) -> int:
    print(text)
    if out is not None:
        out.write_text(text + "\n")
    return 0


def _table(arguments: argparse.Namespace) -> int:
    from trainer import table

    entries = list(table.ENTRIES)
    if arguments.only:
        known = {entry.name: entry for entry in entries}
        wanted = arguments.only.split(",")
        for name in wanted:
            one_of("algorithm", name, tuple(known))
        entries = [known[name] for name in wanted]
    return _finish(table.table(table.build(entries, _seeds(arguments.seeds), arguments.steps or table.STEPS, _say)), arguments.out)


def _zoo(arguments: argparse.Namespace) -> int:
    from trainer import plan, zoo

    names = arguments.only.split(",") if arguments.only else list(presets.names())
    for name in names:
        one_of("preset", name, presets.names())
    seeds, settings = _seeds(arguments.seeds), _settings(arguments)
    if arguments.plan and arguments.only:
        raise SettingError("--only picks presets; a plan names its own")
    specs = plan.read(arguments.plan, seeds, settings) if arguments.plan else plan.simple(names, seeds, settings)
    return _finish(zoo.table(zoo.build(specs, arguments.out, _say)), arguments.out / "table.md")


def _audit(arguments: argparse.Namespace) -> int:
    from trainer.audit import audit
    from trainer.verifier import Verifier

    if arguments.tasks < 1:
        raise SettingError(f"--tasks must be at least 1, not {arguments.tasks}")
    verifier = Verifier()
    try:
        print(audit(presets.load(arguments.preset, _settings(arguments)).config, arguments.tasks, verifier).text)
    finally:
        verifier.close()
    return 0
