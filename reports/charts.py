"""The report's figures, as SVG that stands inside the page.

Text stays text, colours are the page's (so that they follow dark mode and print), the same numbers
give the same bytes, and no state of matplotlib outlives a call.
"""

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter

# Drawn in these stand-ins, which become the page's colours (or the default, without a page).
_INK, _MUTED, _GRID, _BLUE, _ORANGE, _RED, _SHADE, _GREEN = (f"#0{i}0{i}0{i}" for i in range(1, 9))
_PAGE = {
    _INK: "var(--ink, #1a2027)",
    _MUTED: "var(--muted, #5a6572)",
    _GRID: "var(--grid, #e3e7ec)",
    _BLUE: "var(--blue, #0072b2)",
    _ORANGE: "var(--orange, #c77700)",
    _RED: "var(--red, #b8420c)",
    _SHADE: "var(--shade, #e8ebef)",
    _GREEN: "var(--green, #00705a)",
}
SERIES = (_BLUE, _ORANGE, _GREEN, _RED, _INK, _MUTED)
INK, MUTED, BLUE, ORANGE, RED, SHADE = _INK, _MUTED, _BLUE, _ORANGE, _RED, _SHADE

_STYLE: Any = {  # its keys are a type of 300 literals
    "svg.fonttype": "none",
    "text.parse_math": False,  # a "$" in a name is a "$"
    "font.family": "DejaVu Sans",  # for measuring only; the page sets its own, which is narrower
    "font.size": 8.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _MUTED,
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "axes.titlecolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "xtick.major.size": 3.0,
    "ytick.major.size": 0.0,
    "legend.frameon": False,
    "legend.labelcolor": _INK,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.3,
}


@contextmanager
def style(salt: str) -> Iterator[None]:
    """Our style while a figure is drawn; `salt` keeps the ids of two figures on a page apart."""
    # rc_context warns of nothing, but a font without CJK glyphs does: it only measures here.
    with warnings.catch_warnings(), matplotlib.rc_context(_STYLE | {"svg.hashsalt": salt}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def new(width: float, height: float) -> Figure:
    """An empty figure of so many inches, whose parts keep clear of each other."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(hspace=0.03))


def to_svg(figure: Figure, label: str) -> str:
    """The figure as an <svg> element for a page, described by `label` (plain text)."""
    out = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    FigureCanvasSVG(figure).print_svg(out, metadata=nothing)  # type: ignore[no-untyped-call]
    figure.clear()
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    # Its style rule names "*", which inside a page would be every element.
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.S)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # each figure would have the same ones
    for stand_in, colour in _PAGE.items():
        svg = svg.replace(stand_in, colour)
    described = re.sub(r"[\"<>&]", " ", label)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{described}" ', 1)


def numbers(values: Sequence[float | None]) -> list[float]:
    """For drawing: None leaves a gap."""
    return [math.nan if value is None else value for value in values]


def line(ax: Axes, x: Sequence[float], y: Sequence[float], **how: object) -> None:
    """A line whose points show where there are few, or where one stands alone between gaps."""
    alone = [
        index
        for index, value in enumerate(y)
        if not math.isnan(value)
        and (index == 0 or math.isnan(y[index - 1]))
        and (index == len(y) - 1 or math.isnan(y[index + 1]))
    ]
    options = {"marker": "o", "markersize": 2.2, "markeredgewidth": 0, **how}
    ax.plot(x, y, markevery=alone if len(x) > 90 else None, **options)  # type: ignore[arg-type]


def title(ax: Axes, text: str, *, legend: bool = True) -> None:
    """A panel's name at its left, its legend at its right; both above the data."""
    ax.set_title(text, loc="left", pad=6)
    handles, names = ax.get_legend_handles_labels()
    if legend and handles:
        ax.legend(
            handles,
            names,
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            ncols=len(names),
            borderaxespad=0.2,
            handlelength=1.6,
            columnspacing=1.2,
            handletextpad=0.5,
        )


def from_zero(ax: Axes, show: Callable[[float], str]) -> None:
    """A y axis from 0 with few ticks."""
    top = ax.get_ylim()[1]
    ax.set_ylim(0, 1.08 * top if top > 0 else 1)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=3, min_n_ticks=2))
    ax.yaxis.set_major_formatter(lambda value, _: show(value))


def log_seconds(ax: Axes, low: float, high: float, narrow: bool) -> None:
    """A logarithmic x axis of durations, labelled at 1, and where there is room at 2 and 5."""
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    decades = math.log10(high / low)
    steps = (1, 2, 5) if decades < (1.6 if narrow else 3.2) else (1,)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    ax.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(lambda value, _: tick_s(value))


def tick_s(seconds: float) -> str:
    """A duration on an axis: "0", "50 ms", "2 s"."""
    if seconds == 0:
        return "0"
    if seconds >= 1:
        return f"{seconds:g} s"
    return f"{seconds * 1e3:.4g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.4g} us"
