"""When to try again. Pure: the caller brings the dice.

Each delivery waits exponentially longer after each failure, with equal jitter (half of the wait is random), so that messages that failed
together do not return together. A channel that fails several times in a row rests as a whole and is then tried with a single message.
There is no last attempt: a message waits until it is taken or refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.deliver.channel import TransportError


@dataclass(frozen=True, slots=True)
class Policy:
    """Seconds, but for ``trip``: the number of failures in a row after which a channel rests. ``disabled_s`` is how long a channel that
    needs attention is left alone between tries, ``asked_cap_s`` the most that a receiver may ask us to wait."""

    base_s: float = 1.0
    cap_s: float = 300.0
    trip: int = 3
    rest_s: float = 5.0
    rest_cap_s: float = 600.0
    disabled_s: float = 600.0
    asked_cap_s: float = 3600.0

    def wait(self, attempt: int, error: TransportError, dice: float) -> float:
        """Seconds until the next attempt of a delivery after its ``attempt``-th failed with ``error``; ``dice`` in [0, 1)."""
        whole = min(self.cap_s, self.base_s * 2.0 ** min(attempt - 1, 60))
        return max(whole / 2 * (1 + dice), self._asked(error))

    def rest(self, failures: int, error: TransportError) -> float:
        """Seconds that the channel rests after ``failures`` in a row, the last one being ``error``."""
        if error.permanent:
            return self.disabled_s
        rest = min(self.rest_cap_s, self.rest_s * 2.0 ** min(failures - self.trip, 60)) if failures >= self.trip else 0.0
        return max(rest, self._asked(error))

    def _asked(self, error: TransportError) -> float:
        return min(error.retry_after or 0.0, self.asked_cap_s)
