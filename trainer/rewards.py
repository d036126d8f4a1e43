"""Rewards by component: the task, and named auxiliary rewards, each with a weight."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from trainer.environment import Episode
from trainer.verifier import Verdict

WORD = "goblin"


def _words(episode: Episode) -> list[str]:
    return [word for role, text in episode.turns if role == "agent" for word in text.split()]


def measure(name: str, episode: Episode, verdict: Verdict, length: int) -> float:
    """The unweighted auxiliary reward ``name`` of one episode; ``length`` is its number of agent tokens."""
    match name:
        case "partial":
            return verdict.passed
        case "word":
            return float(_words(episode).count(WORD))
        case "tool":
            return float(episode.counts["test"])
        case "calculator":
            return float(episode.counts["calc"])
        case "token":
            return float(length)
        case "repeat":
            words = _words(episode)
            return float(sum(a == b for a, b in itertools.pairwise(words)))
        case "format":
            return 0.0 if episode.counts["bad"] else 1.0
    raise KeyError(name)


AUXILIARY = {
    "partial": "share of the configured tests that pass",
    "word": f"each {WORD!r} the agent says",
    "tool": "each test run",
    "calculator": "each look at the calculator page",
    "token": "each agent token (negative: a length penalty)",
    "repeat": "each agent word equal to the one before it",
    "format": "1 when no turn was malformed",
}
"""Name -> what one unit of it is paid for."""


def auxiliary(weights: Mapping[str, float], episodes: list[Episode], verdicts: list[Verdict], lengths: list[int]) -> dict[str, list[float]]:
    """Weighted auxiliary rewards by component, one number per episode; components of weight 0 are left out."""
    return {
        name: [weight * measure(name, e, v, n) for e, v, n in zip(episodes, verdicts, lengths, strict=True)]
        for name, weight in weights.items()
        if weight
    }


def overlong(length: int, limit: int, margin: int) -> float:
    """DAPO's soft penalty (arXiv 2503.14476, equation 13): 0 up to ``limit - margin`` tokens, falling to -1 at ``limit``, -1 beyond."""
    return -min(1.0, max(0.0, (length - (limit - margin)) / margin))
