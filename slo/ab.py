"""Two servers measured in turns, on the same schedules, so that a drift of the machine falls out.

The turns are ABBA ABBA: each pair of blocks gets a schedule of its own, and which server comes
first turns from pair to pair. A steady drift then makes half of the pairs differ one way and half
the other.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from slo import drive

BEFORE, AFTER = "before", "after"
FEWEST_PAIRS = 4


@dataclass(frozen=True, slots=True)
class Block:
    """One run: which server, in which pair."""

    side: str
    pair: int


def blocks(pairs: int) -> Iterator[Block]:
    """The order of all blocks.

    Raises:
        ValueError: too few pairs, or an odd number of them.
    """
    if pairs < FEWEST_PAIRS or pairs % 2:
        raise ValueError(f"{pairs} is no number of pairs; allowed: 4, 6, 8 and so on")
    for pair in range(pairs):
        turn = (BEFORE, AFTER) if pair % 2 == 0 else (AFTER, BEFORE)
        yield from (Block(side, pair) for side in turn)


def directory_of(out: Path, block: Block) -> Path:
    """Where a block's run lies."""
    return out / block.side / f"{block.pair + 1:02d}"


def run(
    load: drive.Load,
    targets: dict[str, str],
    pairs: int,
    out: Path,
    drive_one: Callable[[drive.Load, Path], int],
) -> int:
    """Run all blocks under `out`; ends early with the exit code of one that was not complete.

    `load` holds what both servers get; its seed is the first pair's, each next pair has the next.
    """
    assert load.seed is not None
    for block in blocks(pairs):
        mine = replace(
            load,
            target=targets[block.side],
            seed=load.seed + block.pair,
            label=block.side,
        )
        code = drive_one(mine, directory_of(out, block))
        if code != drive.EXIT_COMPLETE:
            return code
    return drive.EXIT_COMPLETE
