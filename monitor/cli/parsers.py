"""How every command introduces itself: one sentence, options with their defaults, examples that can be pasted."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

Run = Callable[[argparse.Namespace], int]


def command(commands: Any, name: str, sentence: str, examples: str, run: Run) -> argparse.ArgumentParser:
    """Add the command ``name`` to ``commands``; ``sentence`` says what it does and ``examples`` how it is used, line by line."""
    first, *_ = examples.strip().splitlines()
    indented = "\n".join(f"  {line}" for line in examples.strip().splitlines())
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=sentence[0].lower() + sentence[1:].rstrip("."),
        description=sentence,
        epilog=f"examples:\n{indented}",
        formatter_class=_Help,
    )
    parser.set_defaults(run=run)
    if isinstance(parser, Parser):
        parser.example = re.split(r"  +", first)[0]
    return parser


class Parser(argparse.ArgumentParser):
    """Says with what is wrong also how it is right."""

    example = ""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {message}\n{f'example: {self.example}' if self.example else f'see {self.prog} --help'}\n")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Keeps the examples' line breaks and shows each option's default where it has one."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=110)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help or ""
        shown = action.default not in (None, False, "", argparse.SUPPRESS) and "%(default)" not in text
        return f"{text} (default: %(default)s)" if shown and action.option_strings else text
