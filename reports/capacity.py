"""A capacity search as one HTML page: the interval, the load-latency curve, every probe."""

from collections.abc import Sequence

from markupsafe import Markup

from reports import charts
from reports.html import environment
from slo.capacity import Probe
from slo.capacity_search import Answer, Search
from slo.quantities import show_s

_COLOURS = {"PASS": charts.BLUE, "FAIL": charts.RED, "INCONCLUSIVE": charts.MUTED}


def render(search: Search) -> str:
    """The page; a search that has not ended is shown as far as it is."""
    probes = sorted(search.probes, key=lambda probe: probe.rate)
    unit = " users" if search.limits.whole else "/s"
    names = sorted({name for probe in probes for name in probe.latencies})
    return environment().get_template("capacity.html.j2").render(
        search=search, answer=search.answer, probes=probes, unit=unit, names=names,
        curves=[Markup(curve(probes, name, search.answer, unit)) for name in names],
        cell=lambda value: "over every limit" if value is None else show_s(value),
        requests=sum(probe.requests for probe in probes),
    )  # fmt: skip


def curve(probes: Sequence[Probe], name: str, answer: Answer | None, unit: str) -> str:
    """The load-latency curve of one objective, as SVG; probes among failures stand at the top."""
    with charts.style(f"capacity-{name}"):
        figure = charts.new(7.2, 2.9)
        ax = figure.add_subplot()
        known = [probe for probe in probes if name in probe.latencies and probe.result != "INVALID"]
        finite = [(p.rate, v) for p in known if (v := p.latencies[name]) is not None]
        charts.line(ax, [x for x, _ in finite], [y for _, y in finite], color=charts.MUTED)
        for result, colour in _COLOURS.items():
            some = [(p.rate, p.latencies[name]) for p in known if p.result == result]
            at = [(x, y) for x, y in some if y is not None]
            if at:
                xs, ys = zip(*at, strict=True)
                ax.scatter(xs, ys, s=18, color=colour, label=result, zorder=3)
        if answer is not None:
            for rate, colour in ((answer.passes, charts.BLUE), (answer.fails, charts.RED)):
                if rate is not None:
                    ax.axvline(rate, color=colour, linewidth=0.8, linestyle="--")
        ax.set_xlabel(f"offered load ({unit.strip()})")
        if finite:
            charts.from_zero(ax, charts.tick_s)
        charts.title(ax, name)
        return charts.to_svg(figure, f"{name} by load")
