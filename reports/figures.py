"""The two figures of a report: latency by percentile, and the run over time."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, median

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from reports import charts, evidence_panels, words
from slo.rundir import Run
from slo.summary import GpuSecond, GpuView, LatencyLine, SecondsLine, Summary
from slo.verdict import Row, Verdict

# Inches of 72 points: a wide figure fits the page, a narrow one a phone.
_WIDE, _NARROW = 10.6, 4.0
_MARKS = ((50.0, "o", 4.5), (90.0, "d", 4.5), (95.0, "D", 5.0), (99.0, "s", 4.5))


def percentiles(summary: Summary, verdict: Verdict, run: Run, *, narrow: bool) -> str | None:
    """Each latency from its median to its maximum on one axis; None where none was measured."""
    shown = [
        found
        for found in words.ordered(summary.latencies)
        if not found.metric.endswith("_from_sent") and any(found.percentiles_s.values())
    ]
    if not shown:
        return None
    with charts.style(f"percentiles-{narrow}"):
        figure = charts.new(_NARROW if narrow else _WIDE, 0.7 + 0.28 * len(shown))
        ax = figure.subplots()
        # A small gap sets each metric apart.
        metrics = [found.metric for found in shown]
        places = [row + 0.5 * len(set(metrics[: row + 1])) for row in range(len(shown))]
        for place, found in zip(places, shown, strict=True):
            _percentile_row(ax, place, found, _limits(verdict, found), run.timeout_s)
        low, high = _range(shown, verdict, run)
        charts.log_seconds(ax, low, high, narrow)
        ax.set_ylim(places[-1] + 0.6, -0.2)
        ax.set_yticks(places, [_name(found) for found in shown])
        ax.tick_params(axis="y", labelcolor=charts.INK)
        ax.grid(axis="y", visible=False)
        ax.spines["left"].set_visible(False)
        for p, marker, size in _MARKS:
            ax.plot([], [], marker, color=charts.BLUE, markersize=size, label=f"P{p:g}")
        ax.plot([], [], "|", color=charts.MUTED, markersize=8, label="max")
        if any(_limits(verdict, found) for found in shown):
            ax.plot([], [], "|", color=charts.RED, markersize=11, mew=2, label="limit")
        charts.title(ax, "")
        return charts.to_svg(figure, "Latency by percentile; the table has the same numbers")


def _percentile_row(
    ax: Axes, place: float, found: LatencyLine, limits: list[float], timeout_s: float
) -> None:
    values = [(found.percentiles_s.get(p), marker, size) for p, marker, size in _MARKS]
    known = [value for value, _, _ in values if value is not None]
    end = found.max_s if found.max_s is not None else known[-1]
    among_failures = len(known) < len(values)
    right = timeout_s if among_failures else end
    ax.plot([known[0], right], [place, place], color=charts.BLUE, lw=1.6, alpha=0.45)
    for value, marker, size in values:
        if value is not None:
            ax.plot(value, place, marker, color=charts.BLUE, markersize=size, mew=0)
    ax.plot(end, place, "|", color=charts.MUTED, markersize=8)
    if among_failures:
        ax.plot(right, place, ">", color=charts.RED, markersize=5, mew=0)
    for limit in limits:
        ax.plot(limit, place, "|", color=charts.RED, markersize=11, mew=2)


def _name(found: LatencyLine) -> str:
    scenario = words.clean(found.scenario)
    return f"{found.metric}  {scenario if len(scenario) <= 20 else scenario[:19] + '…'}"


def _limits(verdict: Verdict, found: LatencyLine) -> list[float]:
    return [row.limit_value for row in verdict.rows if _limits_line(row, found)]


def _limits_line(row: Row, found: LatencyLine) -> bool:
    same = (row.metric, row.scenario, row.unit) == (found.metric, found.scenario, "s")
    return same and row.limit_value > 0


def _range(shown: list[LatencyLine], verdict: Verdict, run: Run) -> tuple[float, float]:
    values = [limit for found in shown for limit in _limits(verdict, found)]
    for found in shown:
        known = [value for value in found.percentiles_s.values() if value]
        values += known + ([found.max_s] if found.max_s else [])
        if len(known) < len(found.percentiles_s):
            values.append(run.timeout_s)
    return min(values) / 1.25, max(values) * 1.25


def points(summary: Summary, *, narrow: bool) -> int:
    """How many seconds one point of the time figure stands for."""
    return max(1, math.ceil(len(summary.seconds) / (240 if narrow else 900)))


def over_time(summary: Summary, verdict: Verdict, run: Run, *, narrow: bool) -> str | None:
    """Latency, rate and GPU on one time axis, warm-up shaded; None where no second was seen."""
    if not summary.seconds:
        return None
    step = points(summary, narrow=narrow)
    gpu = summary.gpu if words.gpu_absent(summary.gpu) is None else None
    extra = evidence_panels.shown(summary.causes)
    count = 4 + (3 if gpu else 0) + len(extra)
    with charts.style(f"time-{narrow}"):
        figure = charts.new(_NARROW if narrow else _WIDE, 1.12 * count + 0.2)
        panels: list[Axes] = list(figure.subplots(count, 1, sharex=True))
        groups = _groups(summary.seconds, step)
        _latency(panels[0], groups, "ttft", _limit_of(verdict, "ttft"))
        _latency(panels[1], groups, "e2e", _limit_of(verdict, "e2e"))
        _rates(panels[2], groups)
        _in_flight(panels[3], groups)
        if gpu:
            _gpu(panels[4:7], gpu, points(summary, narrow=narrow))
        if extra and summary.causes:
            evidence_panels.draw(panels[-len(extra) :], extra, summary.causes, step)
        planned = run.warmup_s + run.duration_s
        ends = [planned, summary.seconds[-1].second + 1.0]
        ends += [sample.at_s for sample in gpu.samples] if gpu else []
        for ax in panels:
            ax.set_xlim(0, max(ends))
            if run.warmup_s > 0:
                ax.axvspan(0, run.warmup_s, color=charts.SHADE, lw=0, zorder=0)
            if run.stopped is not None:
                ax.axvline(run.stopped.at_s, color=charts.INK, lw=1, ls=(0, (1, 1)))
        whole = MaxNLocator(integer=True, nbins=5 if narrow else 10, steps=[1, 2, 3, 5, 6, 10])
        panels[-1].xaxis.set_major_locator(whole)
        panels[-1].set_xlabel("seconds since the run's start")
        figure.align_ylabels(panels)
        return charts.to_svg(figure, "Latency, rate and GPU over the run's time")


def _groups(seconds: Sequence[SecondsLine], step: int) -> list[Sequence[SecondsLine]]:
    return [seconds[index : index + step] for index in range(0, len(seconds), step)]


def _middle(group: Sequence[SecondsLine]) -> float:
    return (group[0].second + group[-1].second + 1) / 2


def _latency(
    ax: Axes, groups: list[Sequence[SecondsLine]], metric: str, limit: float | None
) -> None:
    x = [_middle(group) for group in groups]
    top = 0.0
    looks = (("p50", charts.BLUE, "-"), ("p95", charts.ORANGE, "-"))
    for name, colour, dashes in looks:
        values = [[getattr(s, f"{metric}_{name}_s") for s in group] for group in groups]
        # Of several seconds: the median of the P50, and the highest P95, so that no spike is lost.
        fold = median if name == "p50" else max
        y = [_folded([v for v in each if v is not None], fold) for each in values]
        top = max([top, *(value for value in y if value is not None)])
        charts.line(ax, x, charts.numbers(y), color=colour, ls=dashes, label=name.upper())
    if limit is not None and limit < 3 * top:
        ax.axhline(limit, color=charts.INK, lw=1.0, ls=(0, (4, 2)), label="limit")
    charts.title(ax, metric.upper())
    charts.from_zero(ax, charts.tick_s)


def _folded(values: list[float], fold: Callable[[list[float]], float]) -> float | None:
    return fold(values) if values else None


def _limit_of(verdict: Verdict, metric: str) -> float | None:
    """The limit on this metric's P95 over all scenarios, else its only limit."""
    rows = [row for row in verdict.rows if row.metric == metric and row.unit == "s"]
    whole = [row for row in rows if row.scenario == "all"]
    named = [row for row in whole if "95" in row.objective] or whole
    return named[0].limit_value if named else None


def _rates(ax: Axes, groups: list[Sequence[SecondsLine]]) -> None:
    edges = [float(group[0].second) for group in groups] + [groups[-1][-1].second + 1.0]
    offered, completed, failed = (
        [fmean(getattr(second, name) for second in group) for group in groups]
        for name in ("offered", "completed", "failed")
    )
    ended = [a + b for a, b in zip(completed, failed, strict=True)]
    ax.stairs(offered, edges, color=charts.INK, lw=0.8, label="offered")
    ax.stairs(completed, edges, color=charts.BLUE, alpha=0.5, label="completed", fill=True, lw=0)
    ax.stairs(ended, edges, baseline=completed, color=charts.RED, label="failed", fill=True, lw=0)
    charts.title(ax, "Requests/s")
    charts.from_zero(ax, lambda value: f"{value:g}")


def _in_flight(ax: Axes, groups: list[Sequence[SecondsLine]]) -> None:
    x = [_middle(group) for group in groups]
    y = [max(second.in_flight for second in group) for group in groups]
    ax.fill_between(x, y, color=charts.BLUE, alpha=0.15, lw=0)
    ax.plot(x, y, color=charts.BLUE)
    charts.title(ax, "In flight")
    charts.from_zero(ax, lambda value: f"{value:g}")


def _gpu(panels: list[Axes], gpu: GpuView, step: int) -> None:
    looks = (
        ("util_pct", "GPU utilisation, %", 1.0),
        ("power_w", "GPU power, W", 1.0),
        ("mem_used_mib", "GPU memory, GiB", 1 / 1024),
    )
    indices = sorted({sample.gpu for sample in gpu.samples})
    for ax, (field, name, scale) in zip(panels, looks, strict=True):
        seen = False
        for index in indices:
            mine: list[GpuSecond] = [s for s in gpu.samples if s.gpu == index][::step]
            raw = [getattr(sample, field) for sample in mine]
            seen = seen or any(value is not None for value in raw)
            y = [None if value is None else value * scale for value in raw]
            colour = charts.SERIES[index % len(charts.SERIES)]
            label = f"{index}" if 1 < len(indices) <= 4 else None
            x = [sample.at_s for sample in mine]
            charts.line(ax, x, charts.numbers(y), color=colour, label=label, markersize=1.5)
        charts.title(ax, name if seen else f"{name}: not measured", legend=field == "util_pct")
        charts.from_zero(ax, lambda value: f"{value:g}")
        if field == "util_pct":
            ax.set_ylim(0, 105)
            ax.set_yticks([0, 50, 100])
