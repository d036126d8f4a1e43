"""``python -m trainer`` is the command ``vitals-train``."""

import sys

from trainer.cli import main

sys.exit(main())
