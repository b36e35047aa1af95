"""The ladder's results as a Markdown table: python -m tests.benchmarks.ladder_table RESULTS.json"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COLUMNS = (
    ("offered /s", "offered_per_s", 2),
    ("n", "due", 0),
    ("failed", "failed", 0),
    ("tokens/s", "tokens_per_s", 0),
    ("TTFT P50 s", "ttft_p50_s", 3),
    ("TTFT P95 s", "ttft_p95_s", 3),
    ("E2E P50 s", "e2e_p50_s", 2),
    ("E2E P95 s", "e2e_p95_s", 2),
    ("TPOT P50 ms", "tpot_p50_s", 1),
    ("GPU-util %", "util_gpu_pct", 0),
    ("DRAM %", "dram_active_pct", 1),
    ("MBU %", "mbu_pct", 1),
    ("W", "power_w", 0),
    ("J/token", "joule_per_token", 2),
)
ROWS = ("at_80", "articles_3_per_s", "overload", "at_same_load")


def cell(row: Mapping[str, Any], key: str, digits: int) -> str:
    """One number, or a dash where it was not measured."""
    value = row.get(key)
    if value is None:
        return "-"
    return f"{value * (1000 if key == 'tpot_p50_s' else 1):.{digits}f}"


def table(results: Mapping[str, Any]) -> str:
    """One line for each load that a mode was under."""
    heads = ["mode", "load", *(name for name, _, _ in COLUMNS)]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for mode, found in results.items():
        if not isinstance(found, dict):
            continue
        for load in ROWS:
            rows = found.get(load)
            if isinstance(rows, dict) and "due" in rows:
                cells = [cell(rows, key, digits) for _, key, digits in COLUMNS]
                lines.append(f"| {mode} | {load.replace('_', ' ')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Print the table."""
    for path in sys.argv[1:]:
        print(table(json.loads(Path(path).read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
