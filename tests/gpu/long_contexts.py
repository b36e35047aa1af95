"""Records a run of long prefills, or of decoding over long contexts, with the sidecar beside it.

    python -m tests.gpu.long_contexts prefill OUT
    python -m tests.gpu.long_contexts decode OUT

No server: plain transformers over the full 1.5B shape with random weights, so that the GPU does
nothing but the one thing whose name the diagnosis is to find. The prompts of `decode` are
noise in the cache, put there before the run begins.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from slo.histograms import write_hlog
from slo.record import Arrival, Record
from slo.rundir import (
    GPU,
    REQUESTS,
    TARGET,
    Counts,
    Run,
    WorkerInfo,
    write_json,
    write_run,
    write_schedule,
)
from target.hf_load import random_network
from target.random_model import RANDOM_NAME, random_model

ROOM = 2048  # tokens of an answer at most


def network(options: argparse.Namespace) -> Any:
    kind = torch.float32 if options.device == "cpu" else torch.bfloat16
    place = random_model(options.layers)
    return random_network(place, options.device, kind, options.attention).eval()


def sync(options: argparse.Namespace) -> float:
    if options.device != "cpu":
        torch.cuda.synchronize()
    return time.monotonic()


def forward(model: Any, tokens: Any, cache: Any = None) -> tuple[Any, Any]:
    """The next token of each sequence, and the cache."""
    out = model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return out.logits[:, -1].argmax(-1, keepdim=True), out.past_key_values


def tokens(options: argparse.Namespace, batch: int) -> Any:
    return torch.randint(10, 1000, (batch, options.context), device=options.device)


def prefills(model: Any, options: argparse.Namespace) -> Iterator[tuple[float, float]]:
    """Begin and end of one batch of prompts after the other."""
    until = time.monotonic() + options.seconds
    while (begin := sync(options)) < until:
        forward(model, tokens(options, options.batch))
        yield begin, sync(options)


def filled_cache(model: Any, options: argparse.Namespace) -> Any:
    """The cache of a whole batch, with room for answers: its numbers are noise, its size is not.

    The library's own cache is copied whole at each step, and its memory grows by the step: then the
    allocator bounds the server.
    """
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    class Roomy(DynamicLayer):
        """Writes each token beside the others instead of copying all of them."""

        def update(self, keys: Any, values: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
            if not self.is_initialized:
                self.length = options.context
                size = (options.batch, keys.shape[1], options.context + ROOM, keys.shape[3])
                self.all_keys, self.all_values = (
                    torch.empty(size, dtype=keys.dtype, device=keys.device).normal_()
                    for _ in range(2)
                )
                self.is_initialized = True
            here = slice(self.length, self.length + keys.shape[-2])
            self.all_keys[:, :, here], self.all_values[:, :, here] = keys, values
            self.length = here.stop
            self.keys = self.all_keys[:, :, : self.length]
            self.values = self.all_values[:, :, : self.length]
            return self.keys, self.values

        def get_seq_length(self, *_: Any) -> int:
            return self.length if self.is_initialized else options.context

    cache = DynamicCache()
    cache.layers = [Roomy() for _ in range(model.config.num_hidden_layers)]
    return cache


def decoding(model: Any, cache: Any, options: argparse.Namespace) -> Callable[[], object]:
    """One decode step, as a CUDA graph if asked for: then no host stands between its kernels.

    A graph's step is frozen: it writes each token to the same place and reads the same context.
    """
    last = torch.full((options.batch, 1), 11, device=options.device)
    for _ in range(3):
        forward(model, last, cache)
    if not options.graph:
        return lambda: forward(model, last, cache)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        forward(model, last, cache)
    return graph.replay


def steps(step: Callable[[], object], seconds: float, options: argparse.Namespace) -> list[float]:
    """When each decode step ended."""
    times, until = [], time.monotonic() + seconds
    while not times or times[-1] < until:
        step()
        times.append(sync(options))
    return times


def cost(step: Callable[[], object], options: argparse.Namespace) -> dict[str, list[float]]:
    """P50 and P95 of a step in ms, in blocks without and with a sidecar: ABBA, twice."""
    told: dict[str, list[float]] = {"off p50": [], "off p95": [], "on p50": [], "on p95": []}
    for block, name in enumerate(("off", "on", "on", "off") * 2):
        where = options.out.with_name(f"cost-{block}.jsonl")
        argv = [sys.executable, "-m", "target.nvml_sidecar", "--out", str(where)]
        with sampled(argv, where) if name == "on" else nullcontext():
            times = steps(step, options.block, options)
        gaps = sorted(1e3 * (b - a) for a, b in pairwise(times))
        for rank in (50, 95):
            told[f"{name} p{rank}"].append(round(gaps[len(gaps) * rank // 100], 3))
    return told


@contextmanager
def sampled(argv: list[str], path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A sidecar for the block, once it has begun."""
    sidecar = subprocess.Popen(argv)
    while not path.exists() or not path.stat().st_size:
        time.sleep(0.05)
    try:
        yield sidecar
    finally:
        sidecar.terminate()
        sidecar.wait()


def record(seq: int, options: argparse.Namespace, times: list[float], sent: float) -> Record:
    plan = asdict(arrival(seq, options, sent))
    return Record(
        **plan,
        worker=0,
        sent_s=sent,
        first_event_s=times[0],
        first_token_s=times[0],
        first_answer_token_s=times[0],
        last_token_s=times[-1],
        ended_s=times[-1],
        prompt_tokens=options.context,
        cached_tokens=options.context if options.case == "decode" else None,
        output_tokens=len(times),
        tokens_from="tokenizer",
        chunks=len(times),
        first_chunk_tokens=1,
        itl_ms=tuple(round(1e3 * (b - a), 3) for a, b in pairwise(times)),
        finish_reason="length",
        status=200,
    )


def arrival(seq: int, options: argparse.Namespace, due: float) -> Arrival:
    return Arrival(
        seq, due, "measured", options.case, "en", str(options.context), f"random-{seq}", ROOM, seq
    )


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write(
    out: Path, options: argparse.Namespace, records: list[Record], t0: tuple[int, int]
) -> None:
    """The run directory, but for gpu.jsonl, which the sidecar writes."""
    about = torch.cuda.get_device_name() if options.device != "cpu" else None
    info = {"model": RANDOM_NAME, "engine": "transformers", "mode": options.case}
    info |= {
        "dtype": "bfloat16",
        "flags": {"layers": options.layers},
        "gpu": about and {"name": about},
    }
    info |= {"versions": {"torch": torch.__version__}}
    write_json(out / TARGET, {"start": info, "end": info, "models": [RANDOM_NAME]})
    count = len(records)
    run = Run(
        id=out.name, label=options.case, seed=0, arrival="closed",
        rate_per_s=count / options.seconds, duration_s=options.seconds, warmup_s=0.0,
        mix={options.case: 1.0}, target_url="in-process", api_path="", model=RANDOM_NAME,
        timeout_s=600.0, max_in_flight=options.batch, sampling={}, reasoning="none",
        versions={"torch": torch.__version__}, git_sha=None, host={},
        workers=(WorkerInfo(0, "local", 0, 0, records=count),),
        started_at=datetime.now(UTC).isoformat(), t0_wall_ns=t0[0], t0_mono_ns=t0[1],
        counts=Counts(scheduled=count, sent=count, completed=count), finished=True,
    )  # fmt: skip
    write_run(out, run)
    write_schedule(out, [arrival(one.seq, options, one.due_s) for one in records])
    lines = (json.dumps(asdict(one)) + "\n" for one in records)
    (out / REQUESTS).write_text("".join(lines))
    write_hlog(out)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=("prefill", "decode"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--context", type=int)
    parser.add_argument("--attention")
    parser.add_argument("--graph", action="store_true", help="decode as a CUDA graph")
    parser.add_argument("--block", type=float, default=0.0, help="also ABBA blocks of so many s")
    parser.add_argument("--seconds", type=float, default=14.0)
    options = parser.parse_args()
    options.batch = options.batch or {"prefill": 8, "decode": 128}[options.case]
    options.context = options.context or {"prefill": 8192, "decode": 24_576}[options.case]
    options.out.mkdir(parents=True)
    with torch.inference_mode():
        model = network(options)
        cache = filled_cache(model, options) if options.case == "decode" else None
        if cache is None:
            forward(model, tokens(options, options.batch))
        step = None if cache is None else decoding(model, cache, options)
        argv = [sys.executable, "-m", "target.nvml_sidecar", "--out", str(options.out / GPU)]
        with sampled(argv, options.out / GPU) as sidecar:
            t0, mono = (time.time_ns(), time.monotonic_ns()), time.monotonic()
            used = cpu_s(sidecar.pid)
            if step is None:
                done = [(b - mono, e - mono) for b, e in prefills(model, options)]
            else:
                times = [at - mono for at in steps(step, options.seconds, options)]
            share = (cpu_s(sidecar.pid) - used) / (time.monotonic() - mono)
        if step is None:
            records = [
                record(n * options.batch + i, options, [end], begin)
                for n, (begin, end) in enumerate(done)
                for i in range(options.batch)
            ]
        else:
            records = [record(seq, options, times, 0.0) for seq in range(options.batch)]
        if step and options.block:
            print(json.dumps({"step_ms": cost(step, options)}))
    write(options.out, options, records, t0)
    print(json.dumps({"case": options.case, "records": len(records), "sidecar_cpu_share": share}))


if __name__ == "__main__":
    main()
