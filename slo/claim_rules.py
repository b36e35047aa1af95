"""What cannot be true in a table of claims: physics, arithmetic and order, one rule a function."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from slo.claims import Cell, Claims, Table, by_name, units
from slo.hardware import WEIGHT_BYTES, Peak, Shape, peak_of, shape_of
from slo.roofline import Machine, ceiling_tokens_per_s, floor_step_s, memory_bytes

Level = Literal["broken", "doubtful", "note"]
CONTEXT = 512  # tokens, where a table does not say
ROUNDING = 1.0  # percent points; "23.5" is written as 23 or 24
LITTLE = 0.25
GIB = 1024**3  # a "GB" of memory may be one
_PERCENTILES = ("min", "p50", "p90", "p95", "p99", "max")
_SECONDS = {"ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: `broken` cannot be true, `doubtful` is hardly so."""

    level: Level
    where: str
    what: str


Rule = Callable[[Table, Shape | None], Iterator[Finding]]


def lint(claims: Claims) -> list[Finding]:
    """All that the rules find."""
    shape = shape_of(claims.model)
    return [found for table in claims.tables for rule in RULES for found in rule(table, shape)]


def changes(table: Table, shape: Shape | None) -> Iterator[Finding]:
    """A claimed change in percent must follow from before and after."""
    for where, row in _rows(table):
        claimed = _number(row.get("claimed_change_pct"))
        before, after = _claimed_pair(row)
        if claimed is None or not before or after is None:
            continue
        real = 100 * (after / before - 1)
        if abs(real - claimed) > ROUNDING:
            what = f"{before:g} to {after:g} is {real:+.1f} %, claimed is {claimed:+g} %"
            yield Finding("broken", where, what)


def order(table: Table, shape: Shape | None) -> Iterator[Finding]:
    """Percentiles rise: P50 <= P90 <= P95 <= P99 <= max."""
    columns: dict[tuple[str, str], dict[str, float]] = {}
    for _, row in _rows(table):
        name = str(row.get("statistic") or row.get("metric") or "").lower()
        rank, _, rest = name.partition("_")
        for column in ("value", "before", "after"):
            value = _number(row.get(column))
            if rank in _PERCENTILES and value is not None:
                columns.setdefault((rest, column), {})[rank] = value
    for (_, column), found in columns.items():
        ranks = [rank for rank in _PERCENTILES if rank in found]
        for low, high in pairwise(ranks):
            if found[low] > found[high]:
                where = f"{table.id} {column}"
                what = f"{low.upper()} {found[low]:g} is above {high.upper()} {found[high]:g}"
                yield Finding("broken", where, what)


def shares(table: Table, shape: Shape | None) -> Iterator[Finding]:
    """A utilisation or an error rate lies between 0 and 100 %."""
    told = units(table)
    for where, row in _rows(table):
        is_share = re.search("util|error_rate|_bw", str(row.get("metric", "")))
        for name, cell in row.items():
            value = _number(cell)
            by_row = is_share and row.get("unit") == "%" and name in ("before", "after", "value")
            if value is not None and (told.get(name) == "%" or by_row) and not 0 <= value <= 100:
                yield Finding("broken", where, f"{name} is {value:g} %, outside 0 to 100 %")


def spans(table: Table, shape: Shape | None) -> Iterator[Finding]:
    """A range's low end is not above its high end."""
    for where, row in _rows(table):
        low, high = _number(row.get("low")), _number(row.get("high"))
        if low is not None and high is not None and low > high:
            yield Finding("broken", where, f"low {low:g} is above high {high:g}")


def throughput(table: Table, shape: Shape | None) -> Iterator[Finding]:
    """Requests a second times tokens a request stay under the roofline of that batch."""
    environment = table.environment
    for where, row in _rows(table):
        for name, side in (("qps_before", "before"), ("qps_after", "after"), ("qps", "")):
            rate, tokens = _number(row.get(name)), _tokens(row, table)
            peak = _peak(row, table)
            if rate is None or tokens is None or peak is None or shape is None:
                continue
            engine = str(environment.get(f"engine_{side}") or environment.get("engine") or "")
            batch = _batch(engine, row, table)
            if batch is None:
                continue
            machine = Machine(shape, peak, _weight_bytes(f"{engine} {row.get('scheme') or ''}"))
            context = _context(table)
            ceiling = ceiling_tokens_per_s(machine, batch, context)
            share = rate * tokens / ceiling
            what = (
                f"{name} {rate:g}/s x {tokens:g} tokens is {share:.0%} of what memory bandwidth "
                f"allows at batch {batch:g}, context {context:g}: {ceiling:,.0f} tokens/s"
            )
            if share > 1:
                yield Finding("broken", where, what)
            elif share > 0.8:
                yield Finding("doubtful", where, what)


def latency(table: Table, shape: Shape | None) -> Iterator[Finding]:
    """An answer of n tokens takes n decode steps; where n is not told, how many there can be."""
    told = units(table)
    for where, row in _rows(table):
        peak = _peak(row, table)
        if shape is None or peak is None:
            continue
        metric = str(row.get("metric", ""))
        named = re.fullmatch(r"e2e_(\d+)_tokens", metric)
        for column in ("before", "after", "mean_latency"):
            unit = str(row.get("unit") or told.get(column) or "")
            value = _number(row.get(column))
            if value is None or unit not in _SECONDS or not (named or column == "mean_latency"):
                continue
            engine = str(table.environment.get(f"engine_{column}") or "")
            step = floor_step_s(Machine(shape, peak, _weight_bytes(engine)), 1, CONTEXT)
            most = value * _SECONDS[unit] / step
            tokens = float(named[1]) if named else _tokens(row, table)
            if tokens is None:
                yield Finding("note", where, f"{value:g} {unit} allow at most {most:.0f} tokens")
            elif tokens > most:
                what = f"{tokens:g} tokens in {value:g} {unit}: at most {most:.0f} fit"
                yield Finding("broken", where, what)


def memory(table: Table, shape: Shape | None) -> Iterator[Finding]:
    """The memory in use holds the weights at least."""
    told = units(table)
    for where, row in _rows(table):
        if shape is None:
            continue
        metric, unit = str(row.get("metric", "")), str(row.get("unit") or "")
        for name, cell in row.items():
            value, side = _number(cell), name.rsplit("_", 1)[-1]
            of_row = metric == "gpu_memory" and unit == "GB" and name in ("before", "after")
            of_column = name in ("memory", "mem_before", "mem_after") and told.get(name) == "GB"
            if value is None or not (of_row or of_column):
                continue
            engine = f"{row.get('scheme') or ''} {table.environment.get(f'engine_{side}') or ''}"
            least = memory_bytes(Machine(shape, Peak(1, 1), _weight_bytes(engine)))
            if value * GIB < least:
                what = f"{name} {value:g} GB cannot hold weights of {least / 1e9:.2f} GB"
                yield Finding("broken", where, what)


def little(table: Table, shape: Shape | None) -> Iterator[Finding]:
    """Requests in the server = rate x mean latency; TTFT alone must not exceed it."""
    told = units(table)
    for where, row in _rows(table):
        concurrency = _number(row.get("concurrency", table.environment.get("concurrency")))
        for side in ("_before", "_after", ""):
            rate = _number(row.get(f"qps{side}"))
            for name, whole in ((f"mean_latency{side}", True), (f"ttft{side}", False)):
                scale = _SECONDS.get(told.get(name, ""))
                value = _number(row.get(name))
                if concurrency is None or rate is None or value is None or scale is None:
                    continue
                found = rate * value * scale
                off = abs(found - concurrency) if whole else found - concurrency
                if off > LITTLE * concurrency:
                    what = f"{rate:g}/s x {value:g} {told[name]} is {found:.1f} requests at once, "
                    yield Finding("broken", where, f"{what}told are {concurrency:g} (Little)")


def parts(table: Table, shape: Shape | None) -> Iterator[Finding]:
    """TTFT + (tokens - 1) x TPOT is E2E."""
    told = units(table)
    for where, row in _rows(table):
        names = ("ttft", "tpot", "e2e")
        scaled = [(_number(row.get(n)), _SECONDS.get(told.get(n, ""))) for n in names]
        values = [value * scale for value, scale in scaled if value is not None and scale]
        tokens = _tokens(row, table)
        if len(values) < 3 or tokens is None:
            continue
        ttft, tpot, e2e = values
        sum_s = ttft + (tokens - 1) * tpot
        if abs(sum_s - e2e) > 0.15 * e2e:
            what = f"TTFT + {tokens - 1:g} x TPOT is {sum_s:.3g} s, E2E is {e2e:.3g} s"
            yield Finding("broken", where, what)


def same_ratio(table: Table, shape: Shape | None) -> Iterator[Finding]:
    """Different GPUs do not gain by the very same factor."""
    rows = by_name(table)
    for name in {key.removesuffix("_before") for row in rows for key in row if "_before" in key}:
        pairs = [(_number(r.get(f"{name}_before")), _number(r.get(f"{name}_after"))) for r in rows]
        ratios = [after / before for before, after in pairs if before and after is not None]
        if len(rows) >= 3 and len(ratios) == len(rows) and "gpu" in rows[0]:
            spread = max(ratios) / min(ratios) - 1 if min(ratios) > 0 else 1.0
            if spread < 0.01:
                what = f"{name} changes by the same factor, {ratios[0]:.2f}, on {len(rows)} GPUs"
                yield Finding("doubtful", table.id, what)


RULES: tuple[Rule, ...] = (
    changes,
    order,
    shares,
    spans,
    throughput,
    latency,
    memory,
    little,
    parts,
    same_ratio,
)


def _rows(table: Table) -> Iterator[tuple[str, dict[str, Cell]]]:
    for number, row in enumerate(by_name(table), 1):
        name = next((cell for cell in row.values() if isinstance(cell, str)), f"row {number}")
        yield f"{table.id} {name}", row


def _number(cell: object) -> float | None:
    known = isinstance(cell, int | float) and not isinstance(cell, bool)
    return float(cell) if known else None  # type: ignore[arg-type]


def _claimed_pair(row: dict[str, Cell]) -> tuple[float | None, float | None]:
    """The pair that stands before the claimed change."""
    if "before" in row:
        return _number(row["before"]), _number(row.get("after"))
    names = list(row)
    ahead = names[: names.index("claimed_change_pct")] if "claimed_change_pct" in row else []
    name = next((n.removesuffix("_before") for n in ahead if n.endswith("_before")), None)
    if name is None:
        return None, None
    return _number(row[f"{name}_before"]), _number(row.get(f"{name}_after"))


def _tokens(row: dict[str, Cell], table: Table) -> float | None:
    environment = table.environment
    told = (row.get("output_tokens"), environment.get("mean_output_tokens"))
    return next((n for n in map(_number, (*told, environment.get("output_tokens"))) if n), None)


def _peak(row: dict[str, Cell], table: Table) -> Peak | None:
    return peak_of(str(row.get("gpu") or table.environment.get("gpu") or ""))


def _batch(engine: str, row: dict[str, Cell], table: Table) -> float | None:
    """Sequences that share a step; plain generate serves one request at a time."""
    if "transformers" in engine and "batch" not in engine:
        return 1.0
    return _number(row.get("concurrency", table.environment.get("concurrency")))


def _context(table: Table) -> float:
    told = table.environment.get("input_tokens")
    if isinstance(told, list) and told:
        return sum(told) / len(told)
    return _number(told) or CONTEXT


def _weight_bytes(words: str) -> float:
    found = words.lower()
    if re.search("awq|gptq|4-?bit|w4|int4", found):
        return WEIGHT_BYTES["w4"]
    return WEIGHT_BYTES["int8"] if re.search("int8|fp8|8-?bit", found) else 2.0
