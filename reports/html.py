"""A verdict as one HTML file: no script, and no request to any other host."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from reports import figures, reproduce, why, words
from reports.interval import Drawing, draw
from slo.quantities import show, show_interval, show_s
from slo.rundir import Run
from slo.summary import PERCENTILES, GpuView, Summary
from slo.verdict import Result, Verdict

MEANING = {
    Result.PASS: "Every gating objective is met, with the stated confidence.",
    Result.FAIL: "At least one gating objective is missed, with the stated confidence.",
    Result.INCONCLUSIVE: "Neither is shown: that all objectives are met, or that one is missed.",
    Result.INVALID: "This run cannot be judged; its numbers are not evidence.",
}
_FIRST = ("void", "noted", "not checked", "ok")  # what needs a look stands first


@dataclass(frozen=True, slots=True)
class Objective:
    """One row of the table of objectives: its words and its drawing."""

    line: words.Line
    drawing: Drawing | None
    as_above: bool  # the reason is that of the row before


@dataclass(frozen=True, slots=True)
class Latency:
    """One row of the latency table; `first` is the first row of its metric."""

    metric: str
    scenario: str
    cells: tuple[str, ...]
    first: bool


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure drawn twice: for a page, and for a phone."""

    wide: Markup
    narrow: Markup


def render(verdict: Verdict, summary: Summary, run: Run) -> str:
    """The whole report as one HTML document."""
    again, check = reproduce.commands(run)
    return environment().get_template("report.html.j2").render(
        verdict=verdict,
        meaning=MEANING[verdict.result],
        sentence=words.sentence(verdict),
        objectives=list(_objectives(verdict)),
        confidence=words.confidence(verdict),
        validity=words.validity(verdict),
        checks=sorted(verdict.validity, key=lambda check: _FIRST.index(check.outcome)),
        all_ok=bool(verdict.validity) and all(c.outcome == "ok" for c in verdict.validity),
        summary=summary,
        tiles=words.figures(summary),
        percentiles=[f"P{p:g}" for p in PERCENTILES],
        latencies=list(_latencies(summary, run)),
        percentile_figure=_figure(figures.percentiles, verdict, summary, run),
        time_figure=_figure(figures.over_time, verdict, summary, run),
        point_s=figures.points(summary, narrow=False),
        gpu_absent=words.gpu_absent(summary.gpu),
        gpu=_gpu(summary.gpu),
        run=run,
        facts=_facts(run),
        load=_load(run),
        made_with=_made_with(run),
        target=reproduce.flat(summary.target),
        causes=summary.causes and why.headline(summary.causes),
        because=why.reasons(summary.causes) if summary.causes else [],
        evidence=why.tables(summary.causes) if summary.causes else [],
        estimates=why.estimates(summary.causes.signals) if summary.causes else "",
        unseen=why.absent(summary.causes) if summary.causes else [],
        again=again,
        check=check,
        glossary=words.METRICS,
    )  # fmt: skip


def environment() -> Environment:
    """Templates that escape what they show, and clean it of control characters."""

    def cleaned(value: object) -> object:
        return words.clean(value) if type(value) is str else value

    environment = Environment(
        loader=PackageLoader("reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=cleaned,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["share"] = lambda value: show(value, "1")
    environment.globals["voids"] = words.voids
    return environment


def _objectives(verdict: Verdict) -> Iterator[Objective]:
    before: tuple[str, str] | None = None
    for row in verdict.rows:
        line = words.line(row)
        yield Objective(line, draw(row), line.missed and (line.why, line.next_step) == before)
        before = (line.why, line.next_step)


def _figure(
    make: Callable[..., str | None], verdict: Verdict, summary: Summary, run: Run
) -> Figure | None:
    wide = make(summary, verdict, run, narrow=False)
    narrow = make(summary, verdict, run, narrow=True)
    return Figure(Markup(wide), Markup(narrow)) if wide and narrow else None


def _latencies(summary: Summary, run: Run) -> Iterator[Latency]:
    over, last = f">{run.timeout_s:g} s (failures)", ""
    for found in words.ordered(summary.latencies):
        cells = [f"{found.n:,}", f"{found.failed:,}"]
        cells += [words.percentile(found, p, over) for p in PERCENTILES]
        cells += [
            words.NOT_MEASURED if value is None else show_s(value)
            for value in (found.max_s, found.mean_s)
        ]
        yield Latency(found.metric, found.scenario, tuple(cells), found.metric != last)
        last = found.metric


def _gpu(gpu: GpuView) -> list[tuple[str, list[str]]]:
    """For each GPU its name, and the mean and the highest of what was sampled."""
    rows = []
    fields = (
        ("util_pct", "%", 1.0), ("mem_used_mib", "GiB", 1 / 1024), ("power_w", "W", 1.0),
        ("temperature_c", "\u00b0C", 1.0), ("sm_clock_mhz", "MHz", 1.0),
    )  # fmt: skip
    for index in sorted({sample.gpu for sample in gpu.samples}):
        cells = []
        for field, unit, scale in fields:
            raw = [getattr(sample, field) for sample in gpu.samples if sample.gpu == index]
            known = [value * scale for value in raw if value is not None]
            mean = show_interval(fmean(known), max(known), unit) if known else None
            cells.append(mean.replace(" - ", " / ") if mean else words.NOT_MEASURED)
        name = gpu.names[index] if index < len(gpu.names) else "GPU"
        rows.append((f"{index}: {name}", cells))
    return rows


def _facts(run: Run) -> list[tuple[str, str]]:
    """What the band says below the verdict."""
    # 2026-11-30T02:00:00.123456+00:00: what is no such time is shown as it is.
    iso = re.fullmatch(r"([-0-9]+)T([:0-9]+)(?:\.\d+)?(?:Z|\+00:00)", run.started_at)
    started = f"{iso[1]} {iso[2]} UTC" if iso else run.started_at
    load = f"{run.rate_per_s:g}/s {run.arrival} for {_span(run.duration_s)}"
    return [("Run", run.id), ("Started", started), ("Load", load)]


def _load(run: Run) -> list[tuple[str, str]]:
    mix = ", ".join(f"{name} {100 * part:.3g} %" for name, part in run.mix.items())
    counts = run.counts
    ended = "finished" if run.finished else "not finished"
    if run.stopped is not None:
        ended = f"stopped at {_span(run.stopped.at_s)}: {run.stopped.why}"
    late = "not measured"
    if run.lateness is not None:
        late = f"P50 {run.lateness.p50_ms:.3g} ms, P99 {run.lateness.p99_ms:.3g} ms, "
        late += f"max {run.lateness.max_ms:.3g} ms"
    return [
        ("Target", f"{reproduce.address(run)}{run.api_path}"),
        ("Model", run.model or "not named"),
        ("Load", f"{run.rate_per_s:g}/s, {run.arrival} arrivals"),
        ("Duration", f"{_span(run.duration_s)}, after {_span(run.warmup_s)} of warm-up"),
        ("Mix", mix or "none"),
        ("Seed", str(run.seed)),
        ("Sampling", ", ".join(f"{k} {v}" for k, v in run.sampling.items() if v is not None)
         or "the target's defaults"),
        ("Reasoning", run.reasoning),
        ("Timeout", f"{_span(run.timeout_s)}; at most {run.max_in_flight:,} in flight"),
        ("Arrivals", f"{counts.scheduled:,} scheduled, {counts.sent:,} sent, "
         f"{counts.completed:,} completed, {counts.failed:,} failed, {counts.dropped:,} dropped, "
         f"{counts.not_started:,} not started (warm-up included)"),
        ("Lateness", late),
        ("End", ended),
    ]  # fmt: skip


def _made_with(run: Run) -> list[tuple[str, str]]:
    rows = [("Git commit", run.git_sha or "none")]
    rows += [(name, version) for name, version in run.versions.items()]
    rows += [(f"host {name}", str(value)) for name, value in run.host.items()]
    for worker in run.workers:
        ended = "never ended" if worker.records is None else f"{worker.records:,} records"
        bound = f"clock within {worker.clock_bound_ns / 1e6:.3g} ms"
        rows.append((f"worker {worker.index}", f"{worker.name}, {ended}, {bound}"))
    return rows


def _span(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 120 and seconds % 30 == 0 else f"{seconds:g} s"
