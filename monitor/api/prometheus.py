"""``/metrics``: what this process took in, and what the database says of judgement and deliveries, so that every worker counts."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.responses import Response

from monitor.store.census import Census, take
from monitor.store.database import DatabaseUnreachable, transaction
from monitor.wire import Ack


class Intake:
    """What this collector took in since it began."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._batches = Counter("vitals_batches", "Batches stored.", registry=self.registry)
        self._items = Counter("vitals_items", "Rows, rollouts and events of stored batches.", ["outcome"], registry=self.registry)
        self._refused = Counter("vitals_refused", "Items refused, by kind and wrong field.", ["kind", "field"], registry=self.registry)
        self._requests = Counter("vitals_refused_requests", "Requests refused as a whole, by status.", ["status"], registry=self.registry)
        for outcome in ("accepted", "duplicate", "refused"):
            self._items.labels(outcome)

    def count(self, ack: Ack) -> None:
        self._batches.inc()
        self._items.labels("accepted").inc(ack.accepted)
        self._items.labels("duplicate").inc(ack.duplicate)
        self._items.labels("refused").inc(len(ack.refused))
        for refusal in ack.refused:
            # The field without the part that users choose: labels must stay few.
            self._refused.labels(refusal.kind, refusal.field.partition(".")[0].partition("[")[0]).inc()

    def count_refused_request(self, status: int) -> None:
        self._requests.labels(str(status)).inc()


async def exposition(intake: Intake, engine: AsyncEngine) -> Response:
    """The text that Prometheus reads. Without a database it holds this process's counts and ``vitals_database_up 0``."""
    try:
        async with transaction(engine) as connection:
            census = await take(connection)
    except DatabaseUnreachable:
        census = None
    stored = CollectorRegistry()
    stored.register(_Stored(census))
    return Response(generate_latest(intake.registry) + generate_latest(stored), media_type=CONTENT_TYPE_PLAIN_0_0_4)


class _Stored(Collector):
    def __init__(self, census: Census | None) -> None:
        self._census = census

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("vitals_database_up", "Whether the database answers.", value=float(self._census is not None))
        if (census := self._census) is None:
            return
        runs = GaugeMetricFamily("vitals_runs", "Runs, by state.", labels=["state"])
        for state, count in census.runs.items():
            runs.add_metric([state], count)
        yield runs
        yield GaugeMetricFamily("vitals_evaluation_lag_rows", "Stored rows and events that no worker has judged yet.", value=census.unjudged)
        yield GaugeMetricFamily("vitals_rollup_lag_rows", "Stored rows and events that are in no rollup yet.", value=census.unrolled)
        yield CounterMetricFamily("vitals_evaluated_rows", "Rows judged.", value=census.judged)
        yield CounterMetricFamily("vitals_evaluation_seconds", "Time that judging took.", value=census.judging_seconds)
        yield GaugeMetricFamily("vitals_deliveries_waiting", "Deliveries not sent yet.", value=census.waiting)
        attempts = CounterMetricFamily("vitals_deliveries", "Attempts to deliver, by channel and outcome.", labels=["channel", "outcome"])
        for (channel, outcome), count in census.attempts.items():
            attempts.add_metric([channel, outcome], count)
        yield attempts
