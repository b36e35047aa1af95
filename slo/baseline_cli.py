"""The commands `slo baseline set | list | show`."""

from pathlib import Path
from typing import Annotated

import typer

from slo import options as o
from slo.check_cli import BASELINES, Store
from slo.ending import UsageError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Name runs that passed, for objectives with max_change.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the baseline.")]


@app.command(name="set")
def set_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, - _ .")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run whose verdict is PASS.")],
    store: Store = BASELINES,
) -> int:
    """Let NAME stand for RUN, which passed."""
    from slo import baselines

    try:
        o.word(name)
    except ValueError as error:
        raise UsageError(str(error)) from None
    named = baselines.set_baseline(name, run, store)
    typer.echo(f"{name}: {named.run_id} ({store})")
    return 0


@app.command(name="list")
def list_(store: Store = BASELINES) -> int:
    """List all baselines."""
    from slo import baselines

    for name, named in sorted(baselines.read_store(store).items()):
        typer.echo(f"{name}  {named.run_id}  {named.service}  set {named.set_at}")
    return 0


@app.command()
def show(name: Name, store: Store = BASELINES) -> int:
    """Say which run NAME stands for, and whether it can still be compared with."""
    from slo import baselines

    named = baselines.read_store(store).get(name)
    if named is None:
        raise UsageError(f"there is no baseline {name} in {store}")
    found = baselines.find(name, store)
    assert found is not None
    usable = "usable" if found.measured is not None else f"not usable: {found.why}"
    typer.echo(f"{name}\n  run      {named.run}\n  service  {named.service}")
    typer.echo(f"  set      {named.set_at}\n  state    {usable}")
    return 0
