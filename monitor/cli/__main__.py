"""``python -m monitor.cli`` is the ``vitals`` command."""

import sys

from monitor.cli import main

sys.exit(main())
