"""A diagnosis on a terminal."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports import why
from reports.console import labelled, safe
from slo.causes import Causes


def render(causes: Causes, console: Console) -> None:
    """Print a diagnosis and all that it rests on; plain text where the console has no colour."""
    brief(causes, console)
    console.print(Text(safe(why.estimates(causes.signals), console), style="dim"))
    for line in why.absent(causes):
        console.print(Text(safe(line, console), style="dim"))
    for table in why.tables(causes):
        console.print()
        console.print(Text(safe(table.title, console), style="bold"))
        console.print(_drawn(table, console))
        console.print(Text(safe(table.caption, console), style="dim"))


def brief(causes: Causes, console: Console) -> None:
    """Print the diagnosis, its numbers and the next step."""
    console.print(Text(safe(why.headline(causes), console), style="bold"))
    for label, text in why.reasons(causes):
        labelled(label, text, console, 10)


def _drawn(table: why.Table, console: Console) -> Table:
    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    words = table.title == "Rules"
    for place, name in enumerate(table.head):
        justify = "left" if place == 0 or words else "right"
        drawn.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in table.rows:
        drawn.add_row(*(Text(safe(cell, console)) for cell in row))
    return drawn
