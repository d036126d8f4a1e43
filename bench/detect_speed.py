"""What judging costs: CPU per row, seconds for a long run, and whether memory stays bounded.

    python -m bench.detect_speed [--rows 100000] [--json]

Streams made-up healthy rows (24 judged metrics each) and the same run after a collapse, in which most detectors speak on every row, through
``monitor.detect.fold`` and ``monitor.alerts.lifecycle``, as the worker and ``vitals diagnose`` do. Making the rows is not counted. The unit of
comparison, measured in the same run, is one JSON parse of the row: what receiving it costs at the least.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Sequence

from monitor.alerts import lifecycle
from monitor.detect import examples, fold
from monitor.detect.contract import Context, Row

CYCLE = 500
ALLOWED_MS = 0.5
ALLOWED_S = 60.0


def collapsed(i: int) -> dict[str, float]:
    """Row ``i`` of a run whose parts leave their range one after the other and never come back."""
    example = examples.FIRES[("entropy_high", "kl_acceleration", "repetition", "length_runaway")[i % 4]]
    return {**examples.healthy(i), **example.change(i % 30, examples.healthy(i)), "reward.task.mean": 0.05}


def judge(rows: Sequence[dict[str, float]], count: int) -> tuple[float, int, int]:
    """``(CPU seconds, transitions, bytes of the final state)`` for ``count`` rows taken from ``rows`` in a cycle."""
    state, book, context, transitions = fold.initial(), lifecycle.Book("bench"), Context(), 0
    start = time.process_time()
    for i in range(count):
        row = Row(i, i, rows[i % len(rows)])
        state, findings = fold.observe(state, row, context)
        book, changed = lifecycle.advance(book, row, findings)
        transitions += len(changed)
    return time.process_time() - start, transitions, len(fold.dump(state))


def parse(rows: Sequence[dict[str, float]], count: int) -> float:
    """CPU seconds to parse as many rows from JSON."""
    texts = [json.dumps(row) for row in rows]
    start = time.process_time()
    for i in range(count):
        json.loads(texts[i % len(texts)])
    return time.process_time() - start


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m bench.detect_speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=100_000, help="rows of the long healthy run (default: 100000)")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = options.parse_args()
    healthy = [examples.healthy(i) for i in range(CYCLE)]
    broken = [collapsed(i) for i in range(CYCLE)]
    some = min(chosen.rows, 5000)
    ill_s, ill_changes, ill_bytes = judge(broken, some)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    long_s, changes, state_bytes = judge(healthy, chosen.rows)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    parsed = parse(healthy, some) / some
    figures = {
        "rows": chosen.rows,
        "healthy_ms_per_row": 1e3 * long_s / chosen.rows,
        "collapsed_ms_per_row": 1e3 * ill_s / some,
        "times_a_json_parse": long_s / chosen.rows / parsed,
        "seconds": long_s,
        "state_bytes": max(state_bytes, ill_bytes),
        "memory_growth_kib": grown,
        "transitions": [changes, ill_changes],
    }
    if chosen.json:
        print(json.dumps(figures))
    else:
        print(f"healthy    {figures['healthy_ms_per_row']:.3f} ms of CPU per row ({figures['times_a_json_parse']:.0f} times a JSON parse of it)")
        print(f"collapsed  {figures['collapsed_ms_per_row']:.3f} ms of CPU per row, with findings on every row")
        print(
            f"long run   {chosen.rows} rows in {long_s:.1f} s; state {figures['state_bytes'] / 1024:.0f} KiB; memory grew by {grown / 1024:.1f} MiB"
        )
        print(f"allowed    {ALLOWED_MS} ms per row, {ALLOWED_S:.0f} s per 100000 rows")
    slow = max(figures["healthy_ms_per_row"], figures["collapsed_ms_per_row"]) > ALLOWED_MS or long_s > ALLOWED_S * chosen.rows / 100_000
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
