"""What vLLM counts, kept for our own /metrics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Counts:
    """The newest state of vLLM's scheduler, and its sums."""

    active: int = 0  # requests that are in our hands
    running: int = 0
    waiting: int = 0
    kv_cache_usage: float = 0.0
    preemptions: int = 0
    cached_prompt_tokens: int = 0

    def gauges(self) -> Mapping[str, float]:
        """As target.metrics takes them; vLLM counts at steps alone, and idle it makes none."""
        idle = self.active == 0
        return {
            "running": 0 if idle else self.running,
            "waiting": 0 if idle else self.waiting,
            "kv_cache_usage": 0.0 if idle else self.kv_cache_usage,
            "preemptions": self.preemptions,
            "cached_prompt_tokens": self.cached_prompt_tokens,
        }


def counting(counts: Counts) -> Callable[..., Any]:
    """A stat logger for vLLM that only remembers; its values have no stable form, so we look."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class Remember(StatLoggerBase):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            pass

        def record(
            self, scheduler_stats: Any, iteration_stats: Any, *more: Any, **also: Any
        ) -> None:
            if scheduler_stats is not None:
                counts.running = scheduler_stats.num_running_reqs
                counts.waiting = scheduler_stats.num_waiting_reqs
                counts.kv_cache_usage = scheduler_stats.kv_cache_usage
                prefix = getattr(scheduler_stats, "prefix_cache_stats", None)
                counts.cached_prompt_tokens += getattr(prefix, "hits", 0) or 0
            if iteration_stats is not None:
                counts.preemptions += getattr(iteration_stats, "num_preempted_reqs", 0)

        def log_engine_initialized(self) -> None:
            pass

    return Remember
