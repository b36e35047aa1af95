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
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtests.prompts import prompt
from target.random_model import random_model
from target.tiny_model import tiny_model
from tests.benchmarks.ladder_rows import row_of, stable
from tests.benchmarks.ladder_servers import ROOT, Reply, Server, ask, at_once, ours, together
from tests.benchmarks.ladder_storm import disconnect_storm

VLLM_ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}
VLLM_PYTHON = os.environ.get("TAILGATE_VLLM_PYTHON", sys.executable)
# Seconds of the judged windows.
LONG_S, SHORT_S, OVERLOAD_S = 20.0, 12.0, 24.0
# A first guess of each mode's capacity, in requests a second; the search starts above it.
GUESS = {"batch": 6.0, "continuous": 10.0, "vllm": 70.0, "vllm-fp8kv": 70.0, "vllm-w4": 70.0}
ALONE = ("dynamic", "nocache", "static-compile")


@dataclass(slots=True)
class Bench:
    """One run of this script: its settings and what it has found so far."""

    out: Path
    rehearse: bool
    input_class: str
    output: int
    prestart: bool
    stage: str
    attach: bool  # the servers of vLLM run already
    results: dict[str, Any] = field(default_factory=dict)
    runs: int = 0

    def save(self, name: str, value: Any) -> None:
        """Keep a result, on disk too."""
        self.results[name] = value
        path = self.out / f"results-{self.stage}.json"
        path.with_suffix(".new").write_text(json.dumps(self.results, indent=1, default=str))
        path.with_suffix(".new").replace(path)

    def window_s(self, seconds: float) -> float:
        """The length of a window: a rehearsal's is short."""
        return min(seconds, 4.0) if self.rehearse else seconds

    def load(
        self, server: Server, rate: float, seconds: float, label: str, max_in_flight: int = 256
    ) -> dict[str, Any]:
        """One run of the load engine at a rate; its row."""
        self.runs += 1
        directory = self.out / f"runs-{self.stage}" / f"{self.runs:02d}-{server.name}-{label}"
        window = self.window_s(seconds)
        warmup = 2.0 if self.rehearse else max(4.0, min(8.0, 3 / max(rate, 0.1)))
        workers = "1" if rate < 15 or self.rehearse else "4"
        command = [
            *(sys.executable, "-m", "locust", "-f", str(ROOT / "loadtests" / "locustfile.py")),
            *("--headless", "--host", server.url, "--out", str(directory), "--label", label),
            *("--rate", f"{rate:.4f}/s", "--duration", f"{window}s", "--warmup", f"{warmup}s"),
            *("--input-class", self.input_class, "--max-tokens", str(self.output)),
            *("--ignore-eos", "--temperature", "0.6", "--top-p", "0.95", "--seed", "7"),
            *("--timeout", "30s", "--reasoning", "none", "--max-in-flight", str(max_in_flight)),
            *(("--processes", workers) if workers != "1" else ()),
        ]
        end = subprocess.run(command, cwd=ROOT, capture_output=True, text=True,
                             timeout=window + 120)  # fmt: skip
        if not (directory / "run.json").exists():
            raise RuntimeError(f"locust: {end.stderr.strip()[-500:] or end.stdout[-500:]}")
        row = row_of(directory, rate, self.out / f"gpu-{self.stage}.jsonl")
        row["load_exit"] = end.returncode
        say(f"{server.name} {label} at {rate:.2f}/s: {brief(row)}")
        return row


def say(text: str) -> None:
    """A line of progress."""
    print(f"[{time.monotonic() - BEGAN:6.1f}] {text}", flush=True)


BEGAN = time.monotonic()


def brief(row: dict[str, Any]) -> str:
    """The part of a row that a person wants to see go by."""
    keys = ("due", "failed", "ended_per_s", "tokens_per_s", "ttft_p95_s", "e2e_p95_s",
            "tpot_p50_s", "util_gpu_pct", "dram_active_pct", "power_w")  # fmt: skip
    return ", ".join(f"{key} {row.get(key)}" for key in keys)


@contextmanager
def step(bench: Bench, name: str) -> Iterator[dict[str, Any]]:
    """One part of the work: what it puts into the dict is kept, also when it breaks."""
    found: dict[str, Any] = {}
    began = time.monotonic()
    try:
        yield found
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"[:600]
        traceback.print_exc()
    finally:
        found["took_s"] = round(time.monotonic() - began, 1)
        bench.save(name, found)


def prompts(bench: Bench, count: int, seed: int) -> list[str]:
    """Prompts of the load engine's own kind."""
    return [prompt(f"math-en-{bench.input_class}-{seed}-{n}").text for n in range(count)]


def climb(bench: Bench, server: Server, guess: float, found: dict[str, Any]) -> float:
    """The highest stable rate: overload tells the throughput, then rates under it are tried."""
    rate, throughput = guess * 1.6, 0.0
    for _ in range(4):
        over = bench.load(server, rate, SHORT_S, "overload")
        found["overload"], throughput = over, over["ended_per_s"]
        if throughput == 0:  # nothing even ended in the window: by its tokens, then
            throughput = over["tokens_per_s"] / bench.output
        if throughput < 0.85 * rate:
            break
        rate *= 2  # it was no overload
    for share in (0.9, 0.7):
        row = bench.load(server, throughput * share, SHORT_S, f"try-{share}")
        found[f"try_{share}"] = row
        if stable(row):
            found["stable_per_s"] = row["offered_per_s"]
            return float(row["offered_per_s"])
    found["stable_per_s"] = throughput * 0.55
    return float(throughput * 0.55)


def alone(bench: Bench, server: Server, found: dict[str, Any]) -> None:
    """A mode that computes one request at a time: its capacity is 1 / its service time."""
    model = json.loads(server.get("/info"))["model"]
    replies = [ask(server.url, text, bench.output, model) for text in prompts(bench, 3, 11)]
    service_s = sorted(reply.seconds for reply in replies)[1]
    found["service_s"], found["capacity_per_s"] = service_s, 1 / service_s
    found["stable_per_s"] = 1 / service_s
    found["alone"] = [reply.tokens for reply in replies]
    # At 80 % of it, a queue of random arrivals is long; constant arrivals would show no queue.
    if server.name != "nocache":  # its queue stays full, so that it computes all the time
        seconds = OVERLOAD_S if server.name == "dynamic" else SHORT_S
        found["articles_3_per_s"] = bench.load(server, 3.0, seconds, "articles-3qps")
        found["after_overload"] = next_answer(bench, server, model)
    found["at_80"] = bench.load(server, 0.8 / service_s, LONG_S, "at-80")


def batched(bench: Bench, server: Server, found: dict[str, Any]) -> None:
    """A mode that computes many at once: search, then measure at 80 % of what was found."""
    model = json.loads(server.get("/info"))["model"]
    for size in (1, 16, 16):
        found[f"at_once_{size}"] = at_once(
            server.url, prompts(bench, size, 20 + size), bench.output, model
        )
    rate = climb(bench, server, 1.0 if bench.rehearse else GUESS[server.name], found)
    found["at_80"] = bench.load(server, 0.8 * rate, LONG_S, "at-80")


def next_answer(bench: Bench, server: Server, model: str) -> dict[str, Any]:
    """Whether the next request is answered, and how much memory is held."""
    deadline, reply = time.monotonic() + 60, Reply(0, 0, 0.0)
    while reply.status != 200 and time.monotonic() < deadline:
        reply = ask(server.url, prompts(bench, 1, 31)[0], bench.output, model)
    return {
        "status": reply.status,
        "tokens": reply.tokens,
        "seconds": round(reply.seconds, 3),
        "allocated_bytes": server.metric("tailgate_gpu_memory_allocated_bytes"),
        "running": server.metric("tailgate_requests_running"),
    }


def survival(bench: Bench, server: Server, found: dict[str, Any], oom: bool) -> None:
    """Clients that leave in mid-stream, and with `oom` a device without memory."""
    model = json.loads(server.get("/info"))["model"]
    found["before"] = next_answer(bench, server, model)
    clients = 60 if bench.rehearse else 500
    found["storm"] = disconnect_storm(server.url, model, prompts(bench, 1, 41)[0], clients)
    found["after_storm"] = next_answer(bench, server, model)
    if not oom:
        return
    statuses: dict[int, int] = {}
    for text in prompts(bench, 40, 51):
        status = ask(server.url, text, 8, model).status
        statuses[status] = statuses.get(status, 0) + 1
    found["injected_oom_statuses"] = statuses
    found["health"] = json.loads(server.get("/health"))
    found["after_oom"] = next_answer(bench, server, model)


def side_by_side(bench: Bench, mine: Server, theirs: Server, found: dict[str, Any]) -> None:
    """Our FastAPI layer and vLLM's own, on the same load: A B B A, then both overloaded."""
    rate = 0.8 * bench.results.get("vllm", {}).get("stable_per_s", 2.0)
    rows: dict[str, list[dict[str, Any]]] = {mine.name: [], theirs.name: []}
    for server in (mine, theirs, theirs, mine):
        rows[server.name].append(bench.load(server, rate, SHORT_S, "abba"))
        found["at_same_load"] = rows
    found[f"overload_{theirs.name}"] = bench.load(theirs, rate * 2, SHORT_S, "overload")
    found[f"overload_{mine.name}"] = bench.load(mine, rate * 2, SHORT_S, "overload")


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
