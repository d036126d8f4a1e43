"""What can be wrong with the set-up of a run, said in one sentence with the remedy before training begins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monitor import wire
from monitor.client import encode
from monitor.metrics import MAX_NAME_LENGTH, name_problem

MOST_LEVELS = 40


class SetupError(ValueError):
    """A run could not be set up; the message says what to change. Raised by ``monitor.client.start`` only."""


class Unusable(ValueError):
    """An argument after the start cannot be used; the message is one sentence that names it and says what to pass instead."""

    def __init__(self, argument: str, sentence: str) -> None:
        super().__init__(sentence)
        self.argument = argument


def use_step(step: Any) -> int:
    """``step`` as the collector takes it."""
    found = encode.whole(step)
    if found is None or not 0 <= found <= wire.MAX_STEP:
        raise Unusable(
            "step", f"step must be a whole number from 0 to 2**53, not {step!r:.60}; pass an int, or leave it out to count from the last one"
        )
    return found


def use_mapping(argument: str, value: Any, example: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise Unusable(argument, f"{argument} must be a mapping such as {example}, not {type(value).__name__}")
    return value


def use_kind(kind: Any) -> str:
    """``kind`` if it can name what happened."""
    if not isinstance(kind, str) or not 0 < len(kind) <= MAX_NAME_LENGTH:
        raise Unusable("kind", f"the kind of an event must be a word such as 'checkpoint', not {kind!r:.60}")
    return kind


def use_seconds(argument: str, value: Any, unit: str) -> float:
    """``value`` as a finite number of ``unit`` above 0."""
    try:
        found = math.nan if isinstance(value, str | bool) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        found = math.nan
    if not 0 < found < math.inf:
        raise Unusable(argument, f"{argument} must be a number of {unit} above 0, not {value!r:.60}")
    return found


def check_label(field: str, value: Any) -> str:
    """``value`` if it can name a project or a run."""
    if problem := name_problem(value):
        raise SetupError(f"{field} cannot be used: {problem.replace('a metric name', 'it').replace('the metric name', 'the one')}")
    return str(value)


def check_choice(field: str, value: Any, choices: Sequence[str]) -> str:
    if value not in choices:
        raise SetupError(f"{field} must be one of {', '.join(choices)}, not {value!r}")
    return str(value)


def check_names(field: str, values: Any) -> list[str]:
    """``values`` as a list of names; a single string is refused because it would be read letter by letter."""
    if isinstance(values, str):
        raise SetupError(f"{field} must be a list of names, not one string; write {field}=[{values!r}]")
    try:
        names = list(values)
    except TypeError:
        raise SetupError(f"{field} must be a list of names, not {type(values).__name__}") from None
    return [check_label(f"{field}[{i}]", name) for i, name in enumerate(names)]


def read_url(text: str) -> str | None:
    """``text`` as the address of a collector, None if it is none. ``http://`` is put before a host that is plainly one: ``localhost``, one with a
    port or a dot."""
    from urllib.parse import urlsplit

    text = text.strip()
    bare = "://" not in text
    try:
        parts = urlsplit(f"http://{text}" if bare else text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    usable = parts.scheme in ("http", "https") and host and port != 0 and text.isprintable() and " " not in text
    if not usable or (bare and port is None and "." not in host and host != "localhost"):
        return None
    return parts.geturl().rstrip("/")


def check_url(url: Any) -> str:
    address = read_url(url) if isinstance(url, str) else None
    if address is None:
        raise SetupError(f"url {str(url)[:100]!r} is not an address such as http://127.0.0.1:8900; pass url= or set VITALS_URL")
    return address


def check_token(token: str | None) -> str | None:
    if token is not None and not (isinstance(token, str) and token.isascii() and token.isprintable() and " " not in token):
        raise SetupError("the token holds characters that an HTTP header cannot carry; pass token= or set VITALS_TOKEN again")
    return token or None


def check_rank(rank: Any) -> int:
    found = encode.whole(rank)
    if found is None or found < 0:
        raise SetupError(f"rank must be a whole number from 0, not {rank!r:.60}")
    return found


def check_folder(folder: Any) -> Path:
    if not isinstance(folder, str | Path) or "\0" in str(folder):
        raise SetupError(f"spool_dir must be the path of a folder, not {folder!r:.60}")
    return Path(folder)


def check_requests(accepts: Any) -> list[str]:
    return [check_choice("accepts", request, wire.REQUESTS) for request in check_names("accepts", accepts)]


def check_config(config: Any) -> dict[str, Any]:
    """``config`` as JSON can carry it."""
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise SetupError(f"config must be a mapping such as a dict, not {type(config).__name__}")
    try:
        spelled = wire.spelled(dict(config))
    except RecursionError:
        raise SetupError("config contains itself or is nested too deeply; pass a plain tree of values") from None
    if _depth(spelled) > MOST_LEVELS:
        raise SetupError(f"config is nested more than {MOST_LEVELS} levels deep; pass a flatter one")
    return dict(spelled)


def _depth(tree: Any) -> int:
    if isinstance(tree, dict):
        return 1 + max(map(_depth, tree.values()), default=0)
    return 1 + max(map(_depth, tree), default=0) if isinstance(tree, list) else 0
