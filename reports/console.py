"""Text on a terminal that it can show."""

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from reports import words


def safe(text: str, console: Console) -> str:
    """Text that can neither steer the terminal nor be refused by its encoding."""
    encoding = console.encoding or "utf-8"
    return words.clean(text).encode(encoding, "backslashreplace").decode(encoding)


def labelled(label: str, text: str, console: Console, width: int) -> None:
    """Print a text beside its label, folded in its own column; nothing where there is none."""
    if not text:
        return
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    grid.add_row(Text(label.ljust(width)), Text(safe(text, console)))
    console.print(Padding(grid, (0, 0, 0, 2)))
