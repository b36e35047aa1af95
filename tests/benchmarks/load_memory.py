"""Does a long run need more memory than a short one? `make bench-load-memory`: a million requests.

REQUESTS=n and RATE=n choose others. Prints resident memory and the size of the requests file as the
run goes on; PUBLISH=1 writes docs/measurements/load_memory.json.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil

from tests.benchmarks.load_clients import ROOT
from tests.benchmarks.truth import truth_server

PUBLISHED = ROOT / "docs" / "measurements" / "load_memory.json"
POINTS = 20


def main() -> int:
    requests, rate = int(os.environ.get("REQUESTS", 10**6)), int(os.environ.get("RATE", 1000))
    rows = []
    with tempfile.TemporaryDirectory(prefix="tailgate-memory-") as name:
        out = Path(name) / "run"
        with truth_server(Path(name) / "log", "--tokens", "2") as truth:
            process = subprocess.Popen(
                [sys.executable, "-m", "locust", "-f", ROOT / "loadtests" / "locustfile.py",
                 "--headless", "--only-summary", "--host", truth.url, "--out", out,
                 f"--rate={rate}/s", f"--duration={requests / rate}s", "--warmup=0s",
                 "--arrival=constant", "--max-tokens=2", "--input-class=128", "--seed=1",
                 "--reasoning=none"],
                cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            began_s = time.monotonic()
            while process.poll() is None:
                file = out / "requests.jsonl"
                size = file.stat().st_size if file.exists() else 0
                try:
                    rss_mib = psutil.Process(process.pid).memory_info().rss / 2**20
                except psutil.Error:
                    break
                if size:
                    passed_s = round(time.monotonic() - began_s)
                    rows.append(
                        {"s": passed_s, "rss_mib": round(rss_mib, 1), "file_mb": size // 10**6}
                    )
                    print(
                        f"{passed_s:5d} s  {rss_mib:6.1f} MiB  file {size / 1e6:7.0f} MB",
                        flush=True,
                    )
                time.sleep(requests / rate / POINTS)
        run = json.loads((out / "run.json").read_text())
    document = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "requests": run["counts"]["completed"],
        "rate_per_s": rate,
        "finished": run["finished"],
        "peak_rss_mib": run["client"]["rss_mib"],
        "lateness": run["lateness"],
        "rows": rows,
    }
    if os.environ.get("PUBLISH"):
        PUBLISHED.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
