"""The articles' ladder on one GPU: every mode of our server under load, beside `vllm serve`.

    make bench-server   on a GPU: the full shape, random weights, 512 in, 128 out
    python -m tests.benchmarks.server_ladder --stage hf|vllm --out DIR [--rehearse]

Each result is written as soon as it is there, so that a run that is cut short leaves what it had.
`--rehearse` is the same with the tiny model on a CPU, in a few seconds a mode.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from target.random_model import random_model
from target.tiny_model import tiny_model
from tests.benchmarks.ladder_bench import BEGAN, Bench, say, step
from tests.benchmarks.ladder_servers import ROOT, Server, at_once, ours, together
from tests.benchmarks.ladder_work import alone, batched, prompts, side_by_side, survival

VLLM_ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}
VLLM_PYTHON = os.environ.get("TAILGATE_VLLM_PYTHON", sys.executable)
ALONE = ("dynamic", "nocache", "static-compile")


def base(bench: Bench) -> list[str]:
    """Options of every server here."""
    if bench.rehearse:
        return ["--reasoning", "none", "--model", "tiny", "--warmup", "1"]
    return ["--reasoning", "none", "--weights", "random", "--warmup", "2", "--warmup-tokens", "440",
            "--warmup-answer", "64"]  # fmt: skip


def stage_hf(bench: Bench, until: float) -> None:
    """The modes of transformers."""
    later = vllm_servers(bench) if bench.prestart else {}
    hf = [*base(bench), "--engine", "hf", "--mode"]
    few = ["--max-queue", "8"]
    oom = ["--fault", "out-of-memory:share=0.2", "--seed", "3"]
    options = {
        "dynamic": [*hf, "dynamic", *few],
        "nocache": [*hf, "nocache", *few],
        "static-compile": [*hf, "static-compile", "--max-cache-len", "1024", *few],
        "batch": [*hf, "batch", "--max-batch", "16", "--warmup-batch", "16"],
        "continuous": [*hf, "continuous", "--max-batch", "256", "--warmup-batch", "16"],
        "survivor": [*hf, "batch", "--max-batch", "16", *oom, "--max-queue", "600"],
    }
    with running(bench, {n: ours(n, 8101 + k, bench.out, o)
                         for k, (n, o) in enumerate(options.items())}) as servers:  # fmt: skip
        for name in ("dynamic", "nocache", "static-compile", "batch"):
            measure(bench, servers, name, alone if name in ALONE else batched, until)
        for server in later.values():  # they outlive this program; these two rows are the least
            server.start(VLLM_ENV)
        measure(bench, servers, "continuous", batched, until)
        measure(bench, servers, "survivor", lambda b, s, f: survival(b, s, f, True), until)


def vllm_servers(bench: Bench) -> dict[str, Server]:
    """vLLM behind our server, and behind its own."""
    gpu = [] if bench.rehearse else ["--gpu-memory-utilization", "0.2", "--kv-cache-gib", "16"]
    vllm = [*base(bench), "--engine", "vllm", "--max-num-seqs", "256", *gpu,
            "--warmup-batch", "2" if bench.rehearse else "256", "--max-queue", "600"]  # fmt: skip
    servers = {
        name: ours(name, 8121 + k, bench.out, [*vllm, "--mode", name], VLLM_PYTHON)
        for k, name in enumerate(("vllm", "vllm-fp8kv", "vllm-w4"))
    }
    if bench.rehearse:  # two cores
        servers = {"vllm": servers["vllm"]}
    folder = str(tiny_model() if bench.rehearse else random_model())
    kv = [] if bench.rehearse else ["--kv-cache-memory-bytes", str(16 * 2**30)]
    command = [
        *(VLLM_PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", folder),
        *("--served-model-name", "plain", "--port", "8131", "--host", "127.0.0.1"),
        *("--load-format", "dummy", "--max-model-len", "2048", "--max-num-seqs", "256"),
        *("--no-enable-prefix-caching", "--dtype", "bfloat16"),
        *("--gpu-memory-utilization", "0.2", *kv),
    ]
    url = "http://127.0.0.1:8131"
    servers["vllm-serve"] = Server("vllm-serve", command, bench.out / "vllm-serve.log", url)
    return servers


def stage_vllm(bench: Bench, until: float) -> None:
    """vLLM's modes, and both front ends on the same load."""
    servers = vllm_servers(bench)
    with running(bench, servers) as up:
        if "vllm-serve" in up:
            with step(bench, "vllm-serve-warm") as found:
                for size in (1, 2) if bench.rehearse else (1, 4, 16, 64, 128, 256):
                    found[str(size)] = at_once(up["vllm-serve"].url, prompts(bench, size, 60),
                                               8, "plain")  # fmt: skip
        measure(bench, up, "vllm", batched, until)
        if {"vllm", "vllm-serve"} <= set(up):
            with step(bench, "side-by-side") as found:
                side_by_side(bench, up["vllm"], up["vllm-serve"], found)
        if "vllm" in up:
            with step(bench, "vllm-survival") as found:
                survival(bench, up["vllm"], found, False)
        for name in ("vllm-w4", "vllm-fp8kv"):
            measure(bench, up, name, batched, until)


@contextmanager
def running(bench: Bench, servers: dict[str, Server]) -> Iterator[dict[str, Server]]:
    """Start all servers at the same time; those that became ready."""
    timeout_s = 240.0
    try:
        for server in servers.values():
            if not bench.attach:
                server.start(VLLM_ENV)
        together([threading.Thread(target=s.wait, args=(timeout_s,)) for s in servers.values()])
        up = {name: server for name, server in servers.items() if server.why is None}
        for name, server in servers.items():
            say(f"{name}: {server.why or 'ready'}")
        bench.save("started", {name: server.why or "ready" for name, server in servers.items()})
        bench.save("info", {n: json.loads(s.get("/info")) for n, s in up.items()
                            if n != "vllm-serve"})  # fmt: skip
        yield up
    finally:
        for server in servers.values():
            server.stop()


Work = Callable[[Bench, Server, dict[str, Any]], None]


def measure(bench: Bench, up: dict[str, Server], name: str, work: Work, until: float) -> None:
    """One mode, where it is there and time is left."""
    if name in up and time.monotonic() < until:
        with step(bench, name) as found:
            work(bench, up[name], found)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 when every step ended without an error."""
    parser = argparse.ArgumentParser(prog="server_ladder")
    parser.add_argument("--stage", choices=("hf", "vllm"), action="append")
    parser.add_argument("--out", type=Path, default=Path("runs/server-ladder"))
    parser.add_argument("--rehearse", action="store_true", help="tiny model, CPU, seconds")
    parser.add_argument("--prestart", action="store_true", help="hf: start vLLM's servers, too")
    parser.add_argument("--attach", action="store_true", help="vllm: they were started so")
    parser.add_argument("--input-class", default="512")
    parser.add_argument("--output", type=int, default=128)
    parser.add_argument(
        "--within", type=float, default=3600.0, help="seconds; starts no step after"
    )
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYTHONPATH", str(ROOT))
    bench = Bench(
        args.out,
        args.rehearse,
        args.input_class,
        args.output,
        args.prestart,
        "-".join(args.stage or ["all"]),
        args.attach,
    )
    bench.save("host", {"platform": platform.platform(), "cpus": os.cpu_count(),
                        "argv": sys.argv[1:], "prompt_class": args.input_class})  # fmt: skip
    until = BEGAN + args.within
    sidecar = [
        sys.executable,
        "-m",
        "target.nvml_sidecar",
        "--out",
        str(args.out / f"gpu-{bench.stage}.jsonl"),
    ]
    with subprocess.Popen([*sidecar, "--period", "0.5"], cwd=ROOT) as process:
        for stage in args.stage or ("hf", "vllm"):
            {"hf": stage_hf, "vllm": stage_vllm}[stage](bench, until)
        process.terminate()
    failed = [n for n, v in bench.results.items() if isinstance(v, dict) and "error" in v]
    say(f"done; failed: {failed or 'none'}; {args.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
