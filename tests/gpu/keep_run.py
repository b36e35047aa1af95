"""Copies the evidence of a recorded run, without what names a machine.

python -m tests.gpu.keep_run RUN tests/recorded_runs/WORD
"""

import json
import sys
from pathlib import Path
from typing import Any

KEPT = ("gpu.jsonl", "server.jsonl", "requests.jsonl")
# Names of hosts, of GPUs and of what else ran there.
SCRUBBED: dict[str, Any] = {
    "host": "h200",
    "uuid": "GPU-00000000-0000-0000-0000-000000000000",
    "pci_bus_id": "00000000:01:00.0",
    "pid": 1,
    "processes": [],
    "url": "http://127.0.0.1:8000/metrics",
    "target_url": "http://127.0.0.1:8000",
    "git_sha": None,
}


def scrubbed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _scrub(key, inner) for key, inner in value.items()}
    return [scrubbed(inner) for inner in value] if isinstance(value, list) else value


def _scrub(key: str, value: Any) -> Any:
    if key == "host" and isinstance(value, dict):
        return {"cpus": value["cpus"]} if "cpus" in value else {}
    if key == "itl_ms":
        return []  # megabytes, and no rule looks at them
    if key == "workers":
        return [{**worker, "name": "local"} for worker in value]
    return SCRUBBED[key] if key in SCRUBBED else scrubbed(value)


def main() -> None:
    source, out = map(Path, sys.argv[1:3])
    out.mkdir(parents=True)
    for name in ("run.json", "target.json"):
        document = scrubbed(json.loads((source / name).read_text()))
        (out / name).write_text(json.dumps(document, indent=1) + "\n")
    for name in KEPT:
        if (source / name).exists():
            lines = (json.loads(line) for line in (source / name).read_text().splitlines())
            text = "".join(f"{json.dumps(scrubbed(line))}\n" for line in lines)
            (out / name).write_text(text)


if __name__ == "__main__":
    main()
