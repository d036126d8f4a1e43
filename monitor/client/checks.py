"""What can be wrong with the set-up of a run, said in one sentence with the remedy before training begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monitor import wire
from monitor.metrics import name_problem

MOST_LEVELS = 40


class SetupError(ValueError):
    """A run could not be set up; the message says what to change. Raised by ``monitor.client.start`` only."""


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


def check_url(url: Any) -> str:
    from urllib.parse import urlsplit

    text = url if isinstance(url, str) else repr(url)
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise SetupError(f"url {text[:100]!r} is not an address such as http://127.0.0.1:8900; pass url= or set VITALS_URL")
    return text.rstrip("/")


def check_token(token: str | None) -> str | None:
    if token is not None and not (isinstance(token, str) and token.isascii() and token.isprintable() and " " not in token):
        raise SetupError("the token holds characters that an HTTP header cannot carry; pass token= or set VITALS_TOKEN again")
    return token or None


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
