"""Numbers with units, as people write them: durations, rates and shares."""

import math
import re

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_DURATION = re.compile(rf"^({_NUMBER})\s*(us|ms|s|m|h)$")
_RATE = re.compile(rf"^({_NUMBER})\s*(?:/\s*(s|m|h))?$")
_SHARE = re.compile(rf"^({_NUMBER})\s*(%?)$")

MOST_S = 10_000 * 3600.0  # a year and more: beyond it stands a slip of the finger

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration_s(text: str) -> float:
    """Seconds of a duration such as "420ms", "1.5s", "10m".

    Raises:
        ValueError: no such duration, or negative; says what is allowed.
    """
    found = _DURATION.match(text.strip())
    if not found:
        allowed = "write a number and us, ms, s, m or h: 420ms, 30s"
        raise ValueError(f"{text!r} is no duration; {allowed}")
    seconds = float(found[1]) * _SECONDS[found[2]]
    if seconds < 0:
        raise ValueError(f"{text!r} is negative; a duration is 0s or more")
    if seconds > MOST_S:
        raise ValueError(f"{text!r} is too long; a duration is {MOST_S / 3600:,.0f}h or less")
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
    if math.isinf(per_second):
        raise ValueError(f"{text!r} is too large a number for a rate")
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


def positive_s(text: str) -> float:
    """Seconds of a duration above 0.

    Raises:
        ValueError: no such duration; says what is allowed.
    """
    seconds = duration_s(text)
    if seconds <= 0:
        raise ValueError(f"{text!r} is too short; it must be more than 0s")
    return seconds


def part(text: str, least: float = 0.0) -> float:
    """The fraction in a share of a whole, from `least` to 1.

    Raises:
        ValueError: no such share; says what is allowed.
    """
    value = share(text)
    if not least <= value <= 1:
        raise ValueError(f"{text!r} is not within {100 * least:g}% to 100%")
    return value


def mix(text: str) -> dict[str, float]:
    """Shares by scenario of a mix such as "math=0.6,code=0.4", scaled to a sum of 1.

    Raises:
        ValueError: no such mix; says what is allowed.
    """
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, equals, weight = part.partition("=")
        if name.strip() in shares:
            raise ValueError(f"{text!r} names {name.strip()} twice")
        try:
            shares[name.strip()] = float(weight) if equals else 1.0
        except ValueError:
            raise ValueError(f"{part!r} is no share of a mix; write math=0.6,code=0.4") from None
    total = sum(shares.values())
    if not 0 < total < math.inf or min(shares.values()) < 0:  # also turns a nan away
        raise ValueError(f"{text!r} is no mix; the shares are 0 or more, their sum is above 0")
    return {name: weight / total for name, weight in shares.items()}


def show_s(seconds: float) -> str:
    """A duration for a person, in three digits: "420 ms", "1.50 s", "85.0 us"."""
    if seconds == 0:
        return "0 s"
    if abs(seconds) < 0.9995e-3:
        return f"{_three_digits(seconds * 1e6)} us"
    if abs(seconds) < 0.9995:
        return f"{_three_digits(seconds * 1e3)} ms"
    return f"{_three_digits(seconds)} s"


def show(value: float, unit: str) -> str:
    """A number in its unit for a person: "420 ms", "0.42 %" (of unit "1"), "2.97/s"."""
    return "".join(_number_and_suffix(value, unit))


def show_interval(low: float | None, high: float | None, unit: str) -> str | None:
    """An interval for a person: "380 - 421 ms", with one end "> 380 ms"; None without an end."""
    if low is None and high is None:
        return None
    if low is None or high is None:
        return f"< {show(high, unit)}" if high is not None else f"> {show(low or 0.0, unit)}"
    (first, first_suffix), (second, suffix) = (_number_and_suffix(v, unit) for v in (low, high))
    return f"{first}{'' if first_suffix == suffix else first_suffix} - {second}{suffix}"


def _number_and_suffix(value: float, unit: str) -> tuple[str, str]:
    if unit == "s":
        number, _, suffix = show_s(value).partition(" ")
        return number, f" {suffix}"
    if unit == "1" or (unit.startswith("1/") and unit != "1/s"):
        return _three_digits(100 * value), f" %{unit[1:]}"
    if unit.startswith("1/"):
        return _three_digits(value), unit[1:]
    return _three_digits(value), f" {unit}"


def _three_digits(value: float) -> str:
    """Three significant digits, but never fewer than the integer part has, and no exponent."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(float(f"{value:.2e}"))))
    return f"{value:,.{min(max(digits, 0), 6)}f}"
