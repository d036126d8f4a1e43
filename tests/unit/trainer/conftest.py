"""Small examples and one thread: tensors of a few dozen numbers gain nothing from more."""

from __future__ import annotations

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("trainer", max_examples=25, deadline=None)
settings.load_profile("trainer")
