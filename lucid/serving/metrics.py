"""What a server has done, for Prometheus."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""The variable with the folder where the workers of a server put their figures together."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters of a server. Nothing of a request is in them but its route, its status and its sizes."""

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        self.requests = Counter("lucid_requests", "requests answered", ["route", "status"], registry=own)
        self.seconds = Histogram(
            "lucid_request_seconds", "time to the end of the answer", ["route"], buckets=_SECONDS, registry=own
        )
        self.open = Gauge("lucid_open_requests", "requests now", multiprocess_mode="livesum", registry=own)
        self.rows = Histogram("lucid_batch_rows", "rows computed together", buckets=_ROWS, registry=own)
        self.tokens = Counter("lucid_tokens", "tokens read and written", ["kind"], registry=own)

    def text(self) -> bytes:
        """All figures, of all workers."""
        if SHARED not in os.environ:
            return generate_latest(self._registry)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return generate_latest(shared)
