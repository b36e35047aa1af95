"""How long prompts are, in tokens: `--input-class` as a person writes it."""

from collections.abc import Collection
from functools import lru_cache

CLASSES = ("128", "512", "896")
MIXED = "mixed"  # equal parts of the classes
LEAST, MOST = 100, 200_000  # a task with its two shortest steps takes about 100
FORMS = f"128, 512, 896, {MIXED}, a number, several as 128,2000, or evenly drawn ones as 200-4000"


@lru_cache(maxsize=64)
def lengths(text: str) -> tuple[tuple[int, int], ...]:
    """What `--input-class` asks for: ranges of tokens, in equal parts.

    Raises:
        ValueError: no such lengths; says what is allowed.
    """
    parts = CLASSES if text == MIXED else text.split(",")
    ranges = []
    for part in parts:
        low, dash, high = part.strip().partition("-")
        ends = (low, high) if dash else (low, low)
        if not all(end.isascii() and end.isdecimal() for end in ends):
            raise ValueError(f"{text!r} is no prompt length; write {FORMS}")
        first, last = map(int, ends)
        if not LEAST <= first <= last <= MOST:
            raise ValueError(f"{text!r}: a prompt has {LEAST} to {MOST} tokens")
        ranges.append((first, last))
    return tuple(ranges)


def parse(text: str) -> str:
    """The text, if `lengths` can read it."""
    lengths(text)
    return text


def fits(found: Collection[str], text: str) -> bool:
    """Whether the lengths of prompts, as records have them, can be those that `text` asks for."""
    ranges = lengths(text)
    met = [
        {at for at, (low, high) in enumerate(ranges) if one.isdecimal() and low <= int(one) <= high}
        for one in found
    ]
    return all(met) and len(set().union(*met)) >= min(2, len(set(ranges)))
