"""The sidecar's live view: what a person looks at where the articles run watch nvidia-smi."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from target.clock_reasons import slowed_by
from target.gpu_metrics import Latest
from target.nvml_reading import Values

BAR = 12
_HEAD = ("GPU", "Util", "DRAM", "Tensor", "SM", "Memory", "Power", "Temp", "SM clock", "Slowed by")


@contextmanager
def watching(latest: Latest) -> Iterator[Callable[[], None]]:
    """What draws the newest samples: in place on a terminal, else a plain line for each GPU."""
    if not sys.stdout.isatty():
        yield lambda: _lines(latest)
        return
    from rich.live import Live

    with Live(_table(latest), auto_refresh=False, screen=False) as live:
        yield lambda: live.update(_table(latest), refresh=True)


def cells(latest: Latest, gpu: int, sample: Values) -> tuple[str, ...]:
    """One GPU in words; "-" is what it does not say."""
    about = latest.about.get(gpu, {})
    total, used = about.get("memory_total_mib"), sample.get("mem_used_mib")
    memory = "-" if used is None else f"{used / 1024:.1f}"
    memory += f" / {total / 1024:.1f} GiB" if total else " GiB" if used is not None else ""
    mask = sample.get("clocks_event_reasons")
    return (
        f"{gpu} {about.get('name') or ''}".strip(),
        _percent(sample.get("util_gpu_pct")),
        _percent(sample.get("dram_active_pct")),
        _percent(sample.get("tensor_active_pct")),
        _percent(sample.get("sm_active_pct")),
        memory,
        _unit(sample.get("power_w"), "W"),
        _unit(sample.get("temperature_c"), "C"),
        _unit(sample.get("sm_clock_mhz"), "MHz"),
        "-" if mask is None else ", ".join(slowed_by(mask)) or "nothing",
    )


def _lines(latest: Latest) -> None:
    for gpu, sample in sorted(latest.samples.items()):
        told = zip(_HEAD[1:], cells(latest, gpu, sample)[1:], strict=True)
        line = ", ".join(f"{name.lower()} {value}" for name, value in told)
        sys.stdout.write(f"GPU {cells(latest, gpu, sample)[0]}: {line}\n")
    sys.stdout.flush()


def _table(latest: Latest) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(_HEAD):
        table.add_column(name, justify="left" if place in (0, 9) else "right", no_wrap=place > 0)
    for gpu, sample in sorted(latest.samples.items()):
        row = [Text(cell) for cell in cells(latest, gpu, sample)]
        row[1] = Text.assemble(row[1], " ", (_bar(sample.get("util_gpu_pct")), "green"))
        row[2] = Text.assemble(row[2], " ", (_bar(sample.get("dram_active_pct")), "cyan"))
        if str(row[9]) not in ("-", "nothing"):
            row[9].stylize("bold red")
        table.add_row(*row)
    table.caption = "Util: any kernel ran. DRAM and Tensor tell what it did. Ctrl-C ends it."
    return table


def _bar(percent: float | None) -> str:
    filled = round(BAR * min(100.0, percent or 0.0) / 100)
    return "█" * filled + "·" * (BAR - filled)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"


def _unit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f} {unit}"
