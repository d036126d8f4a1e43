"""rlvitals: training-health monitoring for reinforcement learning on language models."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - the sentence is for people who run from a source tree with an older interpreter
    sys.stderr.write("rlvitals needs Python 3.11 or newer; this is Python {}.{}. Make a new environment with it.\n".format(*sys.version_info[:2]))
    raise SystemExit(2)

__version__ = "0.1.0"
