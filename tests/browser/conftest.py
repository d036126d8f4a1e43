"""A real browser on real pages: Chromium, a collector with its pages, runs sent over HTTP and judged by a worker, alerts received over HTTP."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

pytest.importorskip("playwright")
