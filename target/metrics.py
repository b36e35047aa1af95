"""What the server counts about itself, in a Prometheus registry of its own."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from target.admission import Admission, BusyError
from target.alert import RollingAlert
from target.engines import Engine, OutOfMemoryError, PromptError, Timings
from target.errors import ApiError
from target.memory_trend import MemoryTrend

# From 0.1 ms, each about 1.6 times the one before: a P95 read from them is right within a bucket,
# and a token of a small model on a fast GPU is not all in the lowest one.
TIME_BUCKETS = (
    *(0.0001, 0.00016, 0.00025, 0.0004, 0.00063, 0.001, 0.0016, 0.0025, 0.004, 0.0063),
    *(0.01, 0.016, 0.025, 0.04, 0.063, 0.1, 0.16, 0.25, 0.4, 0.63, 1.0, 1.6, 2.5, 4.0, 6.3),
    *(10.0, 16.0, 25.0, 40.0, 63.0),
)
STAGES = ("queue", "tokenize", "prefill", "decode", "detokenize")
OUTCOMES = ("ok", "cancelled", "rejected", "invalid", "out_of_memory", "error")
# What an engine may count about itself: its name there, the metric's, and what it is.
ENGINE_GAUGES = {
    "kv_cache_usage": ("kv_cache_usage_ratio", "Share of the KV cache that is held."),
    "max_batch": ("max_batch_size", "Requests that are computed together at most, now."),
    "batch": ("batch_size", "Requests that were computed together last."),
}
ENGINE_COUNTERS = {
    "preemptions": "Sequences that gave their KV memory back and were computed again.",
    "rebuilds": "Times that the engine's loop died and was built again.",
    "cached_prompt_tokens": "Prompt tokens that a prefix cache saved.",
}


class Metrics:
    """Counters, gauges and histograms of one server."""

    def __init__(
        self,
        admission: Admission,
        engine: Engine,
        memory: MemoryTrend,
        alert: RollingAlert | None = None,
    ) -> None:
        self.alert = alert
        self.out_of_memory_s: float | None = None  # when it happened last
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "tailgate_requests",
            "Requests that ended, by how: ok, cancelled (the client went away), rejected (503), "
            "invalid (4xx), out_of_memory (503) or error.",
            ["outcome"],
            registry=registry,
        )
        for outcome in OUTCOMES:
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
        self.stages = {
            stage: self._histogram(stage, f"The part of a request called {stage}.")
            for stage in STAGES
        }
        ProcessCollector(registry=registry)
        registry.register(Own(admission, engine, memory, alert))

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
        except OutOfMemoryError:
            outcome = "out_of_memory"
            self.out_of_memory_s = time.monotonic()
            raise
        finally:
            self.requests.labels(outcome).inc()

    def ended(self, timings: Timings, e2e_s: float) -> None:
        """Take in the stages of a request that was answered to its end."""
        self.e2e.observe(e2e_s)
        self.stages["queue"].observe(timings.queue_s)
        self.stages["tokenize"].observe(timings.tokenize_s)
        self.stages["prefill"].observe(timings.prefill_s)
        self.stages["decode"].observe(timings.decode_s)
        self.stages["detokenize"].observe(timings.detokenize_s)
        if self.alert is not None:
            self.alert.observe(time.monotonic(), e2e_s)

    def render(self) -> bytes:
        """The text that a Prometheus server reads."""
        return generate_latest(self.registry)


class Own(Collector):
    """What is read at the moment of a scrape: who is inside, memory, the engine's own counts."""

    def __init__(
        self,
        admission: Admission,
        engine: Engine,
        memory: MemoryTrend,
        alert: RollingAlert | None,
    ) -> None:
        self.admission = admission
        self.engine = engine
        self.memory = memory
        self.alert = alert

    def collect(self) -> Iterator[Metric]:
        """All of it, under our names."""
        told = self.engine.gauges()
        running = told.get("running", self.admission.running)
        yield gauge("requests_running", "Requests that the engine computes.", running)
        waiting = self.admission.held - running
        yield gauge("requests_waiting", "Requests that wait for the engine.", max(0.0, waiting))
        for key, (name, text) in ENGINE_GAUGES.items():
            if key in told:
                yield gauge(name, text, told[key])
        for name, text in ENGINE_COUNTERS.items():
            if name in told:
                yield CounterMetricFamily(f"tailgate_{name}", text, told[name])
        yield from self._memory()
        if self.alert is not None:
            value = self.alert.value(time.monotonic())
            if value is not None:
                yield gauge("rolling_e2e_seconds", "The percentile that the alert is on.", value)
            yield gauge("rolling_e2e_alert", "1 while it is over its limit.", self.alert.firing)

    def _memory(self) -> Iterator[Metric]:
        now, memory = self.memory.read(), self.memory
        for when, pair in (("", now), ("_before", memory.before), ("_after", memory.after)):
            if pair is not None:
                what = f"{when.removeprefix('_')} the last request" if when else "now"
                for kind, value in zip(("allocated", "reserved"), pair, strict=True):
                    name = f"gpu_memory_{kind}{when}_bytes"
                    yield gauge(name, f"GPU memory that is {kind}, {what}.", value)
        slope = memory.slope()
        if slope is not None:
            text = "Growth of allocated GPU memory from one request to the next."
            yield gauge("gpu_memory_trend_bytes_per_request", text, slope)


def gauge(name: str, text: str, value: float) -> Metric:
    """One gauge with one value."""
    return GaugeMetricFamily(f"tailgate_{name}", text, float(value))
