"""The collector as commands ask it over HTTP: one address, one token, one sentence for whatever goes wrong."""

from __future__ import annotations

import argparse
import json
import os
import urllib.error
from typing import Any

from monitor.cli import stack
from monitor.cli.errors import CommandError
from monitor.client.checks import read_url
from monitor.client.starting import DEFAULT_URL


def add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", metavar="ADDRESS", help=f"the collector (VITALS_URL; {DEFAULT_URL} if not given)")


class Collector:
    """The collector at ``given``, else where VITALS_URL says, else on this machine. Raises CommandError for what is no address."""

    def __init__(self, given: str | None) -> None:
        self.url = require_url(given or os.environ.get("VITALS_URL") or DEFAULT_URL)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer as JSON values. Raises CommandError with one sentence."""
        try:
            return stack.get_json(f"{self.url}/api/v1{path}", 15, os.environ.get("VITALS_TOKEN"), method, body)
        except urllib.error.HTTPError as error:
            if error.code == 401:
                problem = "does not accept the token in VITALS_TOKEN" if os.environ.get("VITALS_TOKEN") else "wants a token; set VITALS_TOKEN"
                raise CommandError(f"{self.url} {problem}") from None
            raise CommandError(_sentence(error, self.url)) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise CommandError(f"no collector answers at {self.url} ({reason}); start one with `vitals up` or name it with --url") from None


def require_url(text: str) -> str:
    """``text`` as the address of a collector. Raises CommandError."""
    if (address := read_url(text)) is None:
        raise CommandError(f"{text[:100]!r} is not an address such as {DEFAULT_URL}; name one with --url or VITALS_URL")
    return address


def _sentence(error: urllib.error.HTTPError, url: str) -> str:
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{url} answered {error.code}; is it an rlvitals collector?"
