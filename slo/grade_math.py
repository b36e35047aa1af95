"""Is the value that an answer ends with the right one?"""

import re
from collections.abc import Iterator

LONGEST = 200  # characters of a boxed value; more is no value
_NUMBER = re.compile(r"[-+\u2212]?\d[\d,\u00a0]*(?:\.\d+)?")
_PLAIN = re.compile(r"[-+]?\d+(?:\.0*)?")
# Powers and factorials that would keep a computer algebra system busy for ever.
_HUGE = re.compile(r"!|\^\s*\{?[^\d{}]|\^\s*\{?\s*\d{3,}|\^.*\^|\*\*")


def value_of(text: str, *, ended: bool) -> str | None:
    """The last boxed value, else the last number of a text that ended by itself; None: no value."""
    boxed = list(_boxed(text))
    if boxed:
        return boxed[-1].strip()
    numbers = _NUMBER.findall(text)
    return numbers[-1] if ended and numbers else None


def same(said: str, right: int) -> bool:
    """Whether a value, as it was written, is the right whole number."""
    plain = re.sub(r"\\[,;!: ]|[\s,$\u00a0]|\\(?:text|mathrm|mbox)\{[^{}]*\}", "", said)
    plain = plain.replace("\u2212", "-").rstrip(".\u3002")
    if len(said) > LONGEST:
        return False
    if _PLAIN.fullmatch(plain):
        return int(plain.partition(".")[0]) == right
    if _HUGE.search(said):
        return False
    from math_verify import parse, verify  # slow to start, and an extra: [grade]

    return bool(verify(parse(str(right)), parse(f"${said}$")))


def _boxed(text: str) -> Iterator[str]:
    for found in re.finditer(r"\\f?boxed\s*\{", text):
        depth, start = 1, found.end()
        for at in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if depth == 0:
                yield text[start:at]
                break
