"""The simulated GPU in real time: the scheduler's own steps, each ended when it is due."""

import argparse
import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from target.engines import Engine, EngineError, OutOfMemoryError, Params, Step, Timings
from target.faults import Faults
from target.physics import BLOCK, GPUS, W4_BYTES, WORKSPACE_BYTES, Setup, weight_memory
from target.scheduler import Job, Scheduler
from target.sim_text import Answers

CONTEXT = 32_768
THINK_TOKENS = 32
WEIGHTS = {"fp16": 2.0, "int8": 1.0, "w4": W4_BYTES}
KV_CACHES = {"fp16": 2.0, "int8": 1.0, "fp8": 1.0}


async def until(due_s: float) -> None:
    """Sleep until a moment of time.monotonic(), never less; a turn of the loop where it is past."""
    await asyncio.sleep(0)
    while (left_s := due_s - time.monotonic()) > 0:
        await asyncio.sleep(left_s + 0.0005)  # uvloop's timers round to a millisecond


@dataclass(slots=True)
class Player:
    """Plays a scheduler; each job has a queue of the moments at which it got a token."""

    scheduler: Scheduler
    faults: Faults
    born_s: float = field(default_factory=time.monotonic)
    began: int = 0
    queues: dict[Job, asyncio.Queue[float]] = field(default_factory=dict)
    started: dict[Job, float] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    def enter(self, job: Job) -> asyncio.Queue[float]:
        """Take a request in and see to it that steps are played."""
        self.scheduler.add(job)
        queue: asyncio.Queue[float] = asyncio.Queue()
        self.queues[job] = queue
        self.began += 1
        if self._task is None:
            self._task = asyncio.create_task(self._play())
        self._wake.set()
        return queue

    def leave(self, job: Job) -> None:
        """A request that ended, or whose client is gone."""
        self.scheduler.remove(job)
        del self.queues[job]
        self.started.pop(job, None)

    async def _play(self) -> None:
        due_s = time.monotonic()
        while True:
            plan = self.scheduler.plan()
            if plan is None:
                self._wake.clear()
                await self._wake.wait()
                due_s = time.monotonic()  # an idle machine does not catch up
                continue
            for job, _ in plan.chunks:
                self.started.setdefault(job, due_s)
            due_s = self.born_s + self.faults.lasting(due_s - self.born_s, plan.work_s)
            await until(due_s)
            now = time.monotonic()
            for job in self.scheduler.finish(plan):
                self.queues[job].put_nowait(now)

    def allocated(self) -> float:
        """Bytes in use on the GPU: weights, held KV, and what earlier requests left behind."""
        setup = self.scheduler.setup
        held = (setup.blocks - self.scheduler.free) * BLOCK * setup.kv_token_bytes
        return weight_memory(setup) + held + self.leaked()

    def leaked(self) -> float:
        """Bytes that ended requests left behind."""
        return self.faults.leaked_bytes(self.began - len(self.queues))

    def memory(self) -> tuple[int, int]:
        """Allocated and reserved bytes: the KV cache is reserved at the start, as in vLLM."""
        setup = self.scheduler.setup
        cache = setup.blocks * BLOCK * setup.kv_token_bytes
        reserved = weight_memory(setup) + WORKSPACE_BYTES + cache + self.leaked()
        return int(self.allocated()), int(min(reserved, setup.gpu.memory))

    def gauges(self) -> Mapping[str, float]:
        """What the scheduler counts about itself."""
        scheduler = self.scheduler
        return {
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
            "kv_cache_usage": scheduler.kv_usage,
            "preemptions": scheduler.preemptions,
        }


def setup_of(args: argparse.Namespace) -> Setup:
    """The server that the options describe; raises EngineError where its KV memory is none."""
    if (args.weights or "fp16") not in WEIGHTS:
        allowed = ", ".join(WEIGHTS)
        raise EngineError(f"--weights {args.weights}: allowed with --engine sim: {allowed}")
    setup = Setup(
        GPUS[args.gpu],
        max_num_seqs=args.max_num_seqs or 64,
        max_batched_tokens=args.max_num_batched_tokens or 2048,
        memory_utilization=args.gpu_memory_utilization or 0.9,
        host_s=args.host_ms / 1000,
        weight_bytes=WEIGHTS[args.weights or "fp16"],
        kv_bytes=KV_CACHES[args.kv_cache or "fp16"],
        kv_blocks=args.kv_blocks,
    )
    if setup.blocks < 1:
        asked = f"--gpu-memory-utilization {setup.memory_utilization}"
        raise EngineError(f"{asked}: leaves no KV memory on {setup.gpu.name}")
    return setup


def generating(
    player: Player, answers: Answers, seed: int
) -> Callable[[Sequence[int], Params], AsyncGenerator[Step | Timings, None]]:
    """The engine's function over a player."""

    async def generate(
        prompt: Sequence[int], params: Params
    ) -> AsyncGenerator[Step | Timings, None]:
        number = player.began
        if player.allocated() > player.scheduler.setup.gpu.memory:
            raise OutOfMemoryError("the simulated GPU has no memory left: earlier requests kept it")
        words = random.Random(f"{seed} words {number}" if params.seed is None else params.seed)
        wrong = player.faults.wrong(number, len(player.queues) + 1)
        tokens = list(answers.tokens(prompt, params, words, wrong))
        job = Job(max(1, len(prompt)), len(tokens))
        received = first = last = time.monotonic()
        queue = player.enter(job)
        try:
            for n, (token, finish) in enumerate(tokens):
                last = await queue.get()
                first = last if n == 0 else first
                yield Step((token,), last, finish)
            start = min(first, max(received, player.started[job]))
        finally:
            player.leave(job)
        yield Timings(queue_s=start - received, prefill_s=first - start, decode_s=last - first)

    return generate


def build_player(args: argparse.Namespace, faults: Faults, answers: Answers) -> Engine:
    """The engine as the options of `serve` describe it."""
    setup = setup_of(args)
    player = Player(Scheduler(setup), faults)
    return Engine(
        name="sim",
        model="sim" if args.model is None else args.model,
        mode="physics",
        dtype="none",
        device="none",
        context=min(CONTEXT, setup.blocks * BLOCK),
        slots=args.max_running or setup.max_num_seqs,
        generate=generating(player, answers, args.seed),
        vocabulary=answers.vocabulary(),
        think_tokens=THINK_TOKENS if args.think_tokens is None else args.think_tokens,
        flags={
            "simulated_gpu": setup.gpu.name,
            "max_num_seqs": setup.max_num_seqs,
            "max_num_batched_tokens": setup.max_batched_tokens,
            "gpu_memory_utilization": setup.memory_utilization,
            "kv_blocks": setup.blocks,
            "host_ms": args.host_ms,
            "weights": args.weights or "fp16",
            "kv_cache": args.kv_cache or "fp16",
            "seed": args.seed,
            "fault": args.fault,
        },
        queues=True,
        gauges=player.gauges,
        memory=player.memory,
    )
