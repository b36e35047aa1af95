"""Numbers with units, as people write them: durations, rates and shares."""

import re

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_DURATION = re.compile(rf"^({_NUMBER})\s*(us|ms|s|m|h)$")
_RATE = re.compile(rf"^({_NUMBER})\s*(?:/\s*(s|m|h))?$")
_SHARE = re.compile(rf"^({_NUMBER})\s*(%?)$")

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration_s(text: str) -> float:
    """Seconds of a duration such as "420ms", "1.5s", "10m".

    Raises:
        ValueError: no such duration, or negative; says what is allowed.
    """
    found = _DURATION.match(text.strip())
    if not found:
        raise ValueError(f"{text!r} is no duration; write a number and us, ms, s, m or h: 420ms, 30s")
    seconds = float(found[1]) * _SECONDS[found[2]]
    if seconds < 0:
        raise ValueError(f"{text!r} is negative; a duration is 0s or more")
    return seconds


def rate_per_s(text: str) -> float:
    """Requests a second of a rate such as "3/s", "90/m" or "2.5" (a second).

    Raises:
        ValueError: no such rate, or not above 0; says what is allowed.
    """
    found = _RATE.match(text.strip())
    if not found:
        raise ValueError(f"{text!r} is no rate; write a number and /s, /m or /h: 3/s, 90/m")
    per_second = float(found[1]) / _SECONDS[found[2] or "s"]
    if per_second <= 0:
        raise ValueError(f"{text!r} is not above 0; a rate is more than 0/s")
    return per_second


def share(text: str) -> float:
    """The fraction in a share such as "0.5%" (0.005) or "0.005".

    Raises:
        ValueError: no such share; says what is allowed.
    """
    found = _SHARE.match(text.strip())
    if not found:
        raise ValueError(f"{text!r} is no share; write 0.5% or 0.005")
    return float(found[1]) / (100.0 if found[2] else 1.0)


def mix(text: str) -> dict[str, float]:
    """Shares by scenario of a mix such as "math=0.6,code=0.4", scaled to a sum of 1.

    Raises:
        ValueError: no such mix; says what is allowed.
    """
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, equals, weight = part.partition("=")
        try:
            shares[name.strip()] = float(weight) if equals else 1.0
        except ValueError:
            raise ValueError(f"{part!r} is no share of a mix; write math=0.6,code=0.4") from None
    total = sum(shares.values())
    if total <= 0 or min(shares.values()) < 0:
        raise ValueError(f"{text!r} is no mix; the shares are 0 or more, their sum is above 0")
    return {name: weight / total for name, weight in shares.items()}


def show_s(seconds: float) -> str:
    """A duration for a person: "420 ms", "1.50 s", "85 us"."""
    if abs(seconds) < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if abs(seconds) < 1.0:
        return f"{seconds * 1e3:.3g} ms" if abs(seconds) < 0.1 else f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"
