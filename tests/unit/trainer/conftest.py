"""One thread: tensors of a few dozen numbers gain nothing from more."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
