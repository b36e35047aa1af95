"""Our runs in the columns of the articles' tables, beside what the articles claim."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from slo.claims import Cell, Table, by_name, read_claims
from slo.compare import Comparison
from slo.compare_lines import Line
from slo.measurements import ALL

CLAIMS = Path(__file__).parent / "data" / "claims.json"
NOT_MEASURED = "not measured"
_KINDS = ("before_after", "ladder", "distribution", "comparison")

# An article's row -> our metric and scenario.
_ROWS: dict[str, tuple[str, str]] = {
    "p50_latency": ("e2e.p50", ALL),
    "p95_latency": ("e2e.p95", ALL),
    "mean_latency": ("e2e.mean", ALL),
    "latency": ("e2e.p50", ALL),
    "e2e_latency": ("e2e.mean", ALL),
    "jitter_high_concurrency": ("jitter.p95-p50", ALL),
    "memory_bw": ("gpu_dram_active.mean", ALL),
    "memory_bw_peak": ("gpu_dram_active.max", ALL),
    "memory_bw_peak_long": ("gpu_dram_active.max", ALL),
    "gpu_util": ("gpu_util.mean", ALL),
    "gpu_util_mean": ("gpu_util.mean", ALL),
    "gpu_util_mean_all": ("gpu_util.mean", ALL),
    "vllm_step_gpu_util": ("gpu_util.mean", ALL),
    "gpu_memory": ("gpu_memory.max", ALL),
    "memory_used_over_generate": ("gpu_memory.max", ALL),
    "memory_static_cache": ("gpu_memory.max", ALL),
    "error_rate": ("error_rate", ALL),
    "sustainable_qps": ("stable_qps", ALL),
    "qps": ("completed_per_s.mean", ALL),
    "cold_start": ("cold_start", ALL),
    "vllm_step_ttft": ("ttft.mean", ALL),
    "ttft_maths": ("ttft.p95", "math"),
    "ttft_500_chars_maths": ("ttft.mean", "math"),
    "p95_ttft_target": ("ttft.p95", ALL),
    "e2e_code": ("e2e.p95", "code"),
}
# The same for tables whose columns are metrics: the column's name less _before and _after.
_COLUMNS = {
    "gpu_util": "gpu_util.mean",
    "ttft": "ttft.mean",
    "qps": "completed_per_s.mean",
    "mem": "gpu_memory.max",
    "memory": "gpu_memory.max",
    "p95": "e2e.p95",
    "p95_latency": "e2e.p95",
    "quality": "accuracy",
}
_STATISTICS = {name: f"e2e.{name}" for name in ("mean", "p50", "p90", "p95", "max")}
# How many of an article's units one of ours is.
_PER = {"ms": 1e3, "s": 1.0, "%": 100.0, "GB": 2**20 / 1e9, "req/s": 1.0}


@dataclass(frozen=True, slots=True)
class LikeTable:
    """One table: the article's columns, then ours."""

    id: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def like(name: str, found: Comparison, claims: Path = CLAIMS) -> tuple[LikeTable, ...]:
    """The tables of an article (001_72f2d11827e83c58, or 001), or one table (001-t3).

    Raises:
        ValueError: no such table or article; says what is allowed.
    """
    tables = [table for table in read_claims(claims).tables if table.kind in _KINDS]
    wanted = [table for table in tables if name in (table.id, _article(table), table.id[:3])]
    if not wanted:
        allowed = dict.fromkeys(_article(table) for table in tables)
        one = ", ".join(table.id for table in tables)
        raise ValueError(f"{name!r} is no article; allowed: {', '.join(allowed)}; or {one}")
    by_key = {(line.metric, line.scenario): line for line in found.lines}
    return tuple(_like(table, found, by_key) for table in wanted)


def _article(table: Table) -> str:
    return str((table.model_extra or {}).get("seed_file", table.id)).removesuffix(".txt")


Lines = dict[tuple[str, str], Line]


def _like(table: Table, found: Comparison, lines: Lines) -> LikeTable:
    names = [column.name for column in table.columns]
    make: Callable[[Table, Comparison, Lines], Iterator[tuple[str, ...]]]
    if "metric" in names:
        names = [name for name in names if name != "better"]
        names += ["our before", "our after", "our change"]
        make = _by_metric
    elif table.kind == "distribution":
        names, make = [*names, "our before", "our after"], _by_statistic
    else:
        names, make = ["whose", *names], _by_column
    notes = (table.model_extra or {}).get("notes", ())
    return LikeTable(
        table.id,
        table.title,
        tuple(names),
        tuple(make(table, found, lines)),
        tuple(map(str, notes)),
    )


def _by_metric(table: Table, found: Comparison, lines: Lines) -> Iterator[tuple[str, ...]]:
    for row in by_name(table):
        unit = str(row["unit"] or "")
        line = lines.get(_ROWS.get(str(row["metric"]), ("", "")))
        told = [_cell(row[name]) for name in row if name != "better"]
        ours = [_in_unit(line, side, unit) for side in ("before", "after")]
        yield (*told, *ours, _change(line))


def _by_statistic(table: Table, found: Comparison, lines: Lines) -> Iterator[tuple[str, ...]]:
    for row in by_name(table):
        line = lines.get((_STATISTICS.get(str(row["statistic"]), ""), ALL))
        unit = str(row["unit"] or "")
        yield (
            *map(_cell, row.values()),
            *(_in_unit(line, side, unit) for side in ("before", "after")),
        )


def _by_column(table: Table, found: Comparison, lines: Lines) -> Iterator[tuple[str, ...]]:
    """The article's rows, then ours: one with both sides, or one a side."""
    for row in by_name(table):
        yield ("article", *map(_cell, row.values()))
    names = [column.name for column in table.columns]
    units = {column.name: column.unit or _unit_like(table, column.name) for column in table.columns}
    if any(name.endswith("_after") for name in names):
        yield ("ours", *(_column(lines, name, units[name], found) for name in names))
        return
    for side, label in zip(("before", "after"), found.labels, strict=True):
        cells = [
            _in_unit(lines.get((_COLUMNS[name], ALL)), side, units[name])
            if name in _COLUMNS
            else label
            if name == names[0]
            else "-"
            for name in names
        ]
        yield ("ours", *cells)


def _column(lines: Lines, name: str, unit: str, found: Comparison) -> str:
    stem = re.fullmatch(r"(\w+)_(before|after)(_pm)?", name)
    if name == "gpu":
        return next((t.before for t in found.contract if t.name == "gpu"), "see the contract")
    if name == "step":
        return " -> ".join(found.labels)
    if name == "claimed_change_pct":
        return _change(lines.get(("e2e.p95", ALL)))
    if stem is None or stem[1] not in _COLUMNS or stem[3]:
        return "-"
    return _in_unit(lines.get((_COLUMNS[stem[1]], ALL)), stem[2], unit)


def _unit_like(table: Table, name: str) -> str:
    """Where a column has no unit of its own, what the articles mean by it."""
    return "s" if "p95" in name else "GB" if "mem" in name else "%"


def _in_unit(line: Line | None, side: str, unit: str) -> str:
    if line is None:
        return NOT_MEASURED
    value = getattr(line, side)
    scale = next((per for known, per in _PER.items() if unit.split(" ")[0] == known), 1.0)
    if value is None:
        return ">timeout"
    return f"{value * scale:.0f}" if value * scale >= 100 else f"{value * scale:.3g}"


def _change(line: Line | None) -> str:
    if line is None or line.change is None:
        return "-"
    shown = f"{100 * line.change:+.0f} {'%' if line.relative else 'points'}"
    return f"{shown} (~)" if line.outcome == "~" else shown


def _cell(value: Cell) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
