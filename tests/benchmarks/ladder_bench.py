"""One run of the ladder: its settings, its loads, and what it has found so far."""

import json
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.ladder_rows import row_of
from tests.benchmarks.ladder_servers import ROOT, Server

# Seconds of the judged windows.
LONG_S, SHORT_S, OVERLOAD_S = 20.0, 12.0, 24.0
BEGAN = time.monotonic()


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
