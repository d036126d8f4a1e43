"""``python -m trainer`` is the ``vitals-train`` command."""

import sys

from trainer.cli import main

sys.exit(main())
