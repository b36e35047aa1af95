"""transformers' continuous batching, with the names that it had from release 5.10 to 5.24.

Its loop runs in a thread that does not survive an exception: every request fails, and requests that
come later are dropped with a log line. So the loop is watched, and built again when it died.
"""

import argparse
import asyncio
import dataclasses
import gc
import threading
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from target.engines import EngineError, OutOfMemoryError, Params, Step, Timings
from target.faults import Faults
from target.hf_decode import Model
from target.hf_parts import Parts
from target.hf_worker import exhaust

MAX_BATCH = 256
PAGE = 256
CPU_PAGE, CPU_PAGES, CPU_BATCH_TOKENS = 16, 512, 512
GPU_BATCH_TOKENS = 8192
GPU_CACHE_GIB = 8.0
MOST_REBUILDS = 5  # within a minute; then the process ends


@dataclass(slots=True)
class Manager:
    """The running manager of transformers, and how to get another."""

    model: Model
    max_batch: int
    cache_gib: float = GPU_CACHE_GIB
    faults: Faults = field(default_factory=Faults)
    current: Any = None
    rebuilt_s: list[float] = field(default_factory=list)
    running: int = 0
    began: int = 0
    dead: str | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Build a manager and start its thread."""
        import torch
        from transformers import ContinuousBatchingConfig

        network = self.model.network
        known = {item.name for item in dataclasses.fields(ContinuousBatchingConfig)}
        page = "page_size" if "page_size" in known else "block_size"  # renamed in 5.17
        wanted: dict[str, Any] = {
            page: CPU_PAGE if self.model.device == "cpu" else PAGE,
            "max_requests_per_batch": self.max_batch,
            "allow_block_sharing": False,  # no prefix caching
            "per_request_processors": True,
            "auto_switch_to_flash": False,
        }
        if self.model.device == "cpu":
            wanted |= {"num_blocks": CPU_PAGES, "max_batch_tokens": CPU_BATCH_TOKENS}
        else:  # it would take most of the free memory of the card
            wanted |= {"num_blocks": self.pages(), "max_batch_tokens": GPU_BATCH_TOKENS}
        settings = {name: value for name, value in wanted.items() if name in known}
        generation = network.generation_config
        # Per-request values need processors that exist: a neutral one is left out.
        generation.do_sample = True
        generation.temperature, generation.top_p = 0.6, 0.95
        with torch.inference_mode():
            self.current = network.init_continuous_batching(
                generation_config=generation,
                continuous_batching_config=ContinuousBatchingConfig(**settings),
            )
            self.current.start()

    def pages(self) -> int:
        """Pages of the KV cache that its memory holds."""
        config = self.model.network.config
        size = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
        token = 2 * config.num_hidden_layers * config.num_key_value_heads * size * 2
        return int(self.cache_gib * 2**30 / (PAGE * token))

    def alive(self) -> bool:
        """Whether the loop takes requests."""
        status = getattr(self.current, "background_thread_status", None)
        accepts = getattr(status, "can_accept_new_requests", lambda: None)  # says why not
        failed = getattr(status, "fatal_error", None) or getattr(self.current, "fatal_error", None)
        return failed is None and accepts() is None and bool(self.current.is_running())

    def revive(self) -> None:
        """Build the loop again where it died; gives up when it dies again and again."""
        with self.lock:
            if self.alive():
                return
            now = time.monotonic()
            self.rebuilt_s.append(now)
            if sum(now - at < 60 for at in self.rebuilt_s) > MOST_REBUILDS:
                self.dead = "the batching loop died again and again"
                return
            import torch

            old, self.current = self.current, None
            old.stop(block=True, timeout=10)
            del old
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self.start()

    def arm(self, faults: Faults) -> None:
        """From now on, requests meet these faults."""
        self.faults = faults

    def close(self) -> None:
        """Stop the thread."""
        if self.current is not None:
            self.current.stop(block=False)

    def gauges(self) -> Mapping[str, float]:
        """What it counts about itself."""
        return {"running": self.running, "rebuilds": len(self.rebuilt_s)}


def asked(params: Params, eos: Sequence[int]) -> dict[str, Any]:
    """Keywords of add_request for these parameters."""
    greedy = params.temperature == 0
    return {
        "max_new_tokens": params.max_tokens,
        "streaming": True,
        "eos_token_id": -1 if params.ignore_eos else list(eos) or -1,
        # As good as greedy, since the processors of a batch are the same for all its requests.
        "temperature": 1e-4 if greedy else params.temperature,
        "top_p": min(params.top_p, 1.0),
    }


def build_continuous(args: argparse.Namespace, model: Model) -> Parts:
    """The mode `continuous`; raises EngineError where this release of transformers has none."""
    if not hasattr(model.network, "init_continuous_batching"):
        raise EngineError("--mode continuous: pip install 'transformers>=5.10.4'")
    bounds = [bound for bound in (args.max_running, args.max_batch) if bound is not None]
    slots = min(bounds, default=MAX_BATCH)
    manager = Manager(model, slots, args.kv_cache_gib or GPU_CACHE_GIB)
    manager.start()

    async def generate(
        prompt: Sequence[int], params: Params
    ) -> AsyncGenerator[Step | Timings, None]:
        received = first = last = time.monotonic()
        number, manager.began = manager.began, manager.began + 1
        if not manager.alive():
            await asyncio.to_thread(manager.revive)
        if manager.faults.hits("out-of-memory", number):
            while manager.current.batch_processor is None:  # its thread makes it
                await asyncio.sleep(0.01)
            manager.current.batch_processor._generation_step = failing(model.device)
        current, name = manager.current, f"request-{number}"
        outputs = submitted(current, name, prompt, asked(params, model.eos))
        manager.running += 1
        told, ended = 0, False
        try:
            while not ended:
                output = await outputs.get()
                if output.error is not None:
                    ended = True
                    await asyncio.to_thread(manager.revive)
                    raise failure(str(output.error))
                tokens = tuple(output.generated_tokens[told:])
                told += len(tokens)
                ended = output.is_finished()
                if not tokens:
                    continue
                last = time.monotonic()
                first = last if told == len(tokens) else first
                stopped = tokens[-1] in model.eos and not params.ignore_eos
                yield Step(tokens, last, ("stop" if stopped else "length") if ended else None)
            yield Timings(prefill_s=first - received, decode_s=last - first)
        finally:
            manager.running -= 1
            if not ended:  # it gives no final output for a request that was cancelled
                current.cancel_request(name)
                current.output_router.result_handlers.pop(name, None)

    return Parts(
        generate,
        slots=slots,
        queues=True,
        flags={"max_batch": slots},
        unsupported=frozenset({"seed", "min_tokens"}),
        gauges=manager.gauges,
        trouble=lambda: manager.dead,
        close=manager.close,
        arm=manager.arm,
    )


def submitted(
    current: Any, name: str, prompt: Sequence[int], keywords: Mapping[str, Any]
) -> "asyncio.Queue[Any]":
    """Hand a request to the loop; its outputs come in the queue."""
    outputs: asyncio.Queue[Any] = asyncio.Queue()
    current.register_result_handler(name, outputs.put_nowait)
    if current.add_request(list(prompt), request_id=name, **keywords) is None:
        raise RuntimeError("the batching loop takes no requests")
    return outputs


def failure(text: str) -> Exception:
    """The exception for a request that failed with this text."""
    if "out of memory" in text.lower() or "an injected fault" in text:
        return OutOfMemoryError(f"the device has no memory for this request: {text[:200]}")
    return RuntimeError(text[:500])


def failing(device: str) -> Any:
    """A step that runs out of memory."""

    def step(*unused: Any) -> None:
        exhaust(device)

    return step
