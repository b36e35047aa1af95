"""What is measured of a mode: its capacity, its latencies under it, and what it survives."""

import json
import time
from typing import Any

from loadtests.prompts import prompt
from tests.benchmarks.ladder_bench import LONG_S, OVERLOAD_S, SHORT_S, Bench
from tests.benchmarks.ladder_rows import stable
from tests.benchmarks.ladder_servers import Reply, Server, ask, at_once
from tests.benchmarks.ladder_storm import disconnect_storm

# A first guess of each mode's capacity, in requests a second; the search starts above it.
GUESS = {"batch": 6.0, "continuous": 10.0, "vllm": 70.0, "vllm-fp8kv": 70.0, "vllm-w4": 70.0}


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
