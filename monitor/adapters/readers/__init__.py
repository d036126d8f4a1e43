"""Readers of training logs: ``read(path)`` gives canonical rows, one per step, whatever trainer and tracker wrote them."""

from monitor.adapters.readers.log import Log, LogRow, read
from monitor.adapters.readers.source import ReadError

__all__ = ["Log", "LogRow", "ReadError", "read"]
