"""What the server counts about itself, in a Prometheus registry of its own."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from target.admission import Admission, BusyError
from target.engines import PromptError
from target.errors import ApiError

# From 1 ms, each about 1.6 times the one before: a P95 read from them is right within a bucket.
TIME_BUCKETS = (
    *(0.001, 0.0016, 0.0025, 0.004, 0.0063, 0.01, 0.016, 0.025, 0.04, 0.063, 0.1),
    *(0.16, 0.25, 0.4, 0.63, 1.0, 1.6, 2.5, 4.0, 6.3, 10.0, 16.0, 25.0, 40.0, 63.0),
)


class Metrics:
    """Counters, gauges and histograms of one server."""

    def __init__(self, admission: Admission) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "tailgate_requests",
            "Requests that ended, by how: ok, cancelled (the client went away), rejected (503), "
            "invalid (4xx) or error.",
            ["outcome"],
            registry=registry,
        )
        for outcome in ("ok", "cancelled", "rejected", "invalid", "error"):
            self.requests.labels(outcome)
        self.prompt_tokens = Counter(
            "tailgate_prompt_tokens",
            "Tokens of the prompts that the engine took.",
            registry=registry,
        )
        self.output_tokens = Counter(
            "tailgate_output_tokens", "Tokens that the engine gave.", registry=registry
        )
        self.ttft = self._histogram("ttft", "From the request to its first token.")
        self.itl = self._histogram("itl", "From one step that gave tokens to the next.")
        self.e2e = self._histogram("e2e", "From the request to its last token.")
        for name, text, read in (
            ("running", "Requests that the engine computes.", lambda: admission.running),
            ("waiting", "Requests that wait for the engine.", lambda: admission.waiting),
        ):
            Gauge(f"tailgate_{name}", text, registry=registry).set_function(read)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(
            f"tailgate_{name}_seconds", text, buckets=TIME_BUCKETS, registry=self.registry
        )

    @contextmanager
    def outcome(self) -> Iterator[None]:
        """Count the request in this block by how the block ends."""
        outcome = "error"
        try:
            yield
            outcome = "ok"
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "cancelled"
            raise
        except BusyError:
            outcome = "rejected"
            raise
        except (ApiError, PromptError):
            outcome = "invalid"
            raise
        finally:
            self.requests.labels(outcome).inc()

    def render(self) -> bytes:
        """The text that a Prometheus server reads."""
        return generate_latest(self.registry)
