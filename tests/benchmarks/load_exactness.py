"""How exact is the load engine, and what does it take? `make bench-load`.

A server in C that knows the truth (50 ms to the first token, 32 tokens 5 ms apart) has one core,
the client the other. The error is what the client reports of the time to the first token, counted
from when a request was due, minus the truth at the same percentile. QUICK=1 measures once and
short; RATES=25,400 chooses rates; REPEATS=n; PEERS=1 installs other load generators in .peers/ and
measures them in the same table (VLLM_PYTHON names an environment that has vLLM; TOKENIZER a
tokenizer folder, as they need one); PUBLISH=1 writes docs/measurements/load_exactness.json.
"""

import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import psutil

from tests.benchmarks.load_clients import (
    INSTALLABLE,
    PEERS,
    ROOT,
    Ask,
    Client,
    environment,
    ours,
    plain_locust,
    vllm_bench,
)
from tests.benchmarks.truth import on_core, truth_server

PUBLISHED = ROOT / "docs" / "measurements" / "load_exactness.json"
SERVER_CORE, CLIENT_CORE = 0, 1
LONGEST_S = 120.0
LEFT_BEHIND = 0.5  # a client that sends less of a rate is not asked for a higher one
# What is promised: P50 and P99 in ms by rate.
GOALS = {200: (0.4, 3.0), 400: (0.5, 5.0), 1000: (1.0, 10.0)}


@dataclass(frozen=True, slots=True)
class Line:
    """One client at one rate; of several runs the median of each."""

    client: str
    rate: int
    p50_ms: float  # error of the reported time to the first token
    p99_ms: float
    achieved: float  # share of the rate that reached the server
    core: float  # of one, while requests were under way
    rss_mib: float  # most, of all its processes
    runs: int


def main() -> int:
    quick = bool(os.environ.get("QUICK"))
    repeats = int(os.environ.get("REPEATS", 1 if quick else 3))
    seconds = 4 if quick else 10
    rates = [int(r) for r in os.environ.get("RATES", "25,50,100,200,400,1000").split(",")]
    clients = list(_clients())
    versions = {client.name: client.version for client in clients}
    busy = psutil.cpu_percent(1.0)
    print(f"other programs use {busy:.0f} % of this machine; {_machine()}", flush=True)
    lines: list[Line] = []
    for rate in rates:
        # In turns, so that a machine that changes changes for all.
        found: dict[str, list[Line]] = {}
        for _ in range(repeats):
            for client in clients:
                line = measured(client, rate, seconds)
                if line is not None:
                    found.setdefault(client.name, []).append(line)
        for name, several in found.items():
            lines.append(_median(several))
            print(_row(lines[-1], name), flush=True)
            if lines[-1].achieved < LEFT_BEHIND:
                print(f"{name} is not asked for more than {rate}/s", flush=True)
                clients = [client for client in clients if client.name != name]
    document = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["make", "bench-load", *_settings()]),
        "machine": _machine(),
        "others_cpu_percent": busy,
        "seconds": seconds,
        "versions": versions,
        "lines": [asdict(line) for line in lines],
    }
    if os.environ.get("PUBLISH"):
        PUBLISHED.parent.mkdir(exist_ok=True)
        PUBLISHED.write_text(json.dumps(document, indent=1) + "\n")
    _judge(lines)
    print(json.dumps(_short(lines)))
    return 0


def _clients() -> Iterator[Client]:
    yield ours()
    yield ours(clock="process")
    yield ours(workers=2)
    yield plain_locust()
    if vllm := os.environ.get("VLLM_PYTHON"):
        yield vllm_bench(Path(vllm))
    if os.environ.get("PEERS"):
        for name, (packages, least, client) in INSTALLABLE.items():
            if _installed(name, packages, least):
                yield client()


def _installed(name: str, packages: tuple[str, ...], least: str) -> bool:
    folder = PEERS / name
    if (folder / ".installed").exists():
        return True
    newer = [f"python3.{minor}" for minor in range(int(least.split(".")[1]), 15)]
    python = next(filter(shutil.which, newer), None)
    if python is None:
        print(f"{name} needs Python {least} or later, which is not here; left out", flush=True)
        return False
    print(f"installing {name} ...", flush=True)
    subprocess.run([python, "-m", "venv", folder], check=True)
    for package in packages:
        pip = [str(folder / "bin" / "pip"), "install", "-q", package]
        if subprocess.run(pip, check=False).returncode:
            print(f"{package} cannot be installed here; left out", flush=True)
            return False
    (folder / ".installed").touch()
    return True


def measured(client: Client, rate: int, seconds: int) -> Line | None:
    """Run a client once; None where it did not come to an end, which is said."""
    with tempfile.TemporaryDirectory(prefix="tailgate-bench-") as name:
        folder = Path(name)
        with truth_server(folder / "truth.log", core=SERVER_CORE) as truth:
            ask = Ask(truth.url, rate, seconds, folder, os.environ.get("TOKENIZER"))
            log = (folder / "client.log").open("wb")
            process = subprocess.Popen(
                [*on_core(CLIENT_CORE), *client.command(ask)],
                cwd=folder,
                env=environment(client),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            rss_mib, core = _watched(process, truth.log)
            log.close()
        try:
            said = client.read(ask)
            arrived_ns, ttft_ms = truth.seen(said.since_ns)
            if not said.since_ns:  # it tried the server out before
                arrived_ns, ttft_ms = arrived_ns[-ask.count :], ttft_ms[-ask.count :]
            p50, p99 = np.percentile(ttft_ms, (50, 99), method="inverted_cdf")
        except (OSError, LookupError, ValueError, TypeError) as error:
            tail = (folder / "client.log").read_text(errors="replace").splitlines()[-3:]
            print(f"{client.name} at {rate}/s: no result: {error!r}: {tail}", flush=True)
            return None
    took_s = (arrived_ns[-1] - arrived_ns[0]) / 1e9
    achieved = min(len(arrived_ns), ask.count) / ask.count
    if took_s > seconds:
        achieved *= seconds / took_s
    return Line(
        client.name,
        rate,
        round(said.p50_ms - float(p50), 3),
        round(said.p99_ms - float(p99), 3),
        round(achieved, 4),
        core,
        rss_mib,
        1,
    )


def _watched(process: "subprocess.Popen[bytes]", log: Path) -> tuple[float, float]:
    """Wait for a client's end; its most memory, and its share of a core while it sends."""
    most, by_s = 0.0, time.monotonic() + LONGEST_S
    marks: list[tuple[float, float]] = []
    while process.poll() is None and time.monotonic() < by_s:
        cpu_s = rss = 0.0
        for one in _family(process.pid):
            try:
                times = one.cpu_times()
                cpu_s += times.user + times.system
                rss += one.memory_info().rss / 2**20
            except psutil.Error:
                continue
        most = max(most, rss)
        if log.stat().st_size:
            marks.append((time.monotonic(), cpu_s))
        time.sleep(0.25)
    for one in _family(process.pid):
        one.kill()
    process.wait()
    # The middle half: neither the start, nor the reckoning at the end.
    middle = marks[len(marks) // 4 : len(marks) - len(marks) // 4]
    if len(middle) < 2:
        return round(most, 1), float("nan")
    (start_s, start_cpu), (end_s, end_cpu) = middle[0], middle[-1]
    return round(most, 1), round((end_cpu - start_cpu) / (end_s - start_s), 3)


def _family(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.Error:
        return []


def _median(several: list[Line]) -> Line:
    def middle(name: str) -> float:
        return round(statistics.median(getattr(line, name) for line in several), 4)

    first = several[0]
    numbers = ("p50_ms", "p99_ms", "achieved", "core", "rss_mib")
    return Line(first.client, first.rate, *map(middle, numbers), len(several))


def _row(line: Line, name: str) -> str:
    return (
        f"{line.rate:5d}/s  {name:40s} error P50 {line.p50_ms:8.2f}  P99 {line.p99_ms:8.2f} ms"
        f"   sent {line.achieved:6.1%}   core {line.core:5.2f}   {line.rss_mib:6.0f} MiB"
    )


def _judge(lines: list[Line]) -> None:
    for line in lines:
        if line.client == "ours" and line.rate in GOALS:
            p50, p99 = GOALS[line.rate]
            held = abs(line.p50_ms) <= p50 and abs(line.p99_ms) <= p99 and line.achieved >= 0.995
            held = held and (line.rate != 400 or line.rss_mib <= 150)
            word = "held" if held else "MISSED"
            print(f"goal at {line.rate}/s (P50 <= {p50} ms, P99 <= {p99} ms, 99.5 % sent): {word}")


def _short(lines: list[Line]) -> dict[str, dict[str, dict[str, float]]]:
    short: dict[str, dict[str, dict[str, float]]] = {}
    for line in lines:
        short.setdefault(line.client, {})[str(line.rate)] = {
            "p50_ms": line.p50_ms,
            "p99_ms": line.p99_ms,
            "achieved": line.achieved,
            "rss_mib": line.rss_mib,
            "core": line.core,
        }
    return short


def _settings() -> list[str]:
    names = ("QUICK", "RATES", "REPEATS", "PEERS")
    return [f"{name}={os.environ[name]}" for name in names if name in os.environ]


def _machine() -> str:
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {model}, {platform.system()} {platform.release()}"


if __name__ == "__main__":
    sys.exit(main())
