"""What must be the same for two servers to be compared, and what is known to differ."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slo.compare_values import Observed
from slo.rundir import SCHEDULE, Run, RunDirError
from slo.target_info import flat

_CLIENT = ("tailgate", "locust", "gevent", "python")
# Another with each start, or told already.
_NOT_TOLD = ("pid", "process_start_wall_ns", "startup", "model", "gpu", "reasoning")
_ALWAYS_TOLD = ("model", "gpu", "driver")
# Prompts of the same texts count the same tokens, if the same template is put around them.
_PROMPT_TOKENS = 0.01
# How much of the smaller TTFT, at the same percentile, the generator's lateness may differ by.
_LATENESS = 0.05


@dataclass(frozen=True, slots=True)
class Term:
    """One line of the contract; `holds` is None where it only tells a difference."""

    name: str
    before: str
    after: str
    holds: bool | None
    accepted: bool = False

    @property
    def voids(self) -> bool:
        """Whether it forbids the comparison."""
        return self.holds is False and not self.accepted


def terms(
    before: Sequence[Observed], after: Sequence[Observed], accepted: Sequence[str]
) -> tuple[Term, ...]:
    """All lines: what must match, those that do not first, then what differs."""
    must = [
        Term(name, left, right, same, accepted=not same and name in accepted)
        for name, left, right, same in _must(before, after)
    ]
    told = [Term(name, a, b, None) for name, a, b in _told(before, after)]
    differs = [term for term in told if term.before != term.after or term.name in _ALWAYS_TOLD]
    return (*sorted(must, key=lambda term: term.holds is True), *differs)


NAMES = (
    "finished",
    "dropped",
    "prompts",
    "seed",
    "rate",
    "arrival",
    "window",
    "mix",
    "max_tokens",
    "sampling",
    "timeout",
    "prompt_tokens",
    "client",
    "lateness",
)


def schedule_digest(seen: Observed) -> str:
    """The schedule's fingerprint: equal where the same prompts are due at the same moments."""
    try:
        text = (seen.directory / SCHEDULE).read_bytes()
    except OSError as error:
        raise RunDirError(f"{seen.directory / SCHEDULE}: {error.strerror}") from None
    return hashlib.sha256(text).hexdigest()[:12]


def _must(
    before: Sequence[Observed], after: Sequence[Observed]
) -> Iterator[tuple[str, str, str, bool]]:
    sides = before, after

    def equal(name: str, of: Any) -> tuple[str, str, str, bool]:
        left, right = (_list(str(of(seen)) for seen in side) for side in sides)
        return name, left, right, left == right

    for name, of in (
        ("finished", lambda seen: "yes" if seen.run.finished else "no"),
        ("dropped", lambda seen: seen.run.counts.dropped),
    ):
        left, right = (_list(str(of(seen)) for seen in side) for side in sides)
        yield name, left, right, {left, right} <= {"yes", "0"}
    digests = [Counter(map(schedule_digest, side)) for side in sides]
    shown = [_list(schedule_digest(seen) for seen in side) for side in sides]
    same = set(digests[0]) == set(digests[1])
    yield "prompts", shown[0], shown[1], same
    left, right = (_list(sorted({str(seen.run.seed) for seen in side})) for side in sides)
    yield "seed", left, right, left == right
    yield equal("rate", lambda seen: f"{seen.run.rate_per_s:g}/s")
    yield equal("arrival", lambda seen: seen.run.arrival)
    yield equal("window", lambda seen: f"{seen.run.warmup_s:g} s + {seen.run.duration_s:g} s")
    yield equal("mix", lambda seen: _map(seen.run.mix))
    yield equal("max_tokens", lambda seen: seen.run.sampling.get("max_tokens"))
    yield equal("sampling", lambda seen: _map(_beside_length(seen.run.sampling)))
    yield equal("timeout", lambda seen: f"{seen.run.timeout_s:g} s")
    yield _prompt_tokens(before, after)
    yield equal("client", lambda seen: _map(_client(seen.run.versions)))
    yield _lateness(before, after)


def _prompt_tokens(
    before: Sequence[Observed], after: Sequence[Observed]
) -> tuple[str, str, str, bool]:
    means = []
    for side in (before, after):
        tokens = np.concatenate(
            [seen.measured.columns.numbers["prompt_tokens"] for seen in side] or [np.empty(0)]
        )
        tokens = tokens[np.isfinite(tokens)]
        means.append(float(tokens.mean()) if len(tokens) else None)
    left, right = ("not told" if mean is None else f"{mean:.1f} a prompt" for mean in means)
    if None in means or not means[0] or not means[1]:
        return "prompt_tokens", left, right, True
    return "prompt_tokens", left, right, abs(means[1] / means[0] - 1) <= _PROMPT_TOKENS


def _lateness(before: Sequence[Observed], after: Sequence[Observed]) -> tuple[str, str, str, bool]:
    """Latency counts from due: a generator that is late on one side only would be its fault.

    Of several runs the typical lateness must match; a hiccup in one of them is in their spread.
    """
    single = len(before) == len(after) == 1
    shown, holds = ["", ""], True
    for percentile in (50, 95) if single else (50,):
        late_s, ttft_s = [], []
        for side in (before, after):
            known = [getattr(r.lateness, f"p{percentile}_ms") for r in _runs(side) if r.lateness]
            late_s.append(float(np.mean(known)) / 1e3 if known else 0.0)
            values = [seen.measured.sample("ttft").percentile(percentile) for seen in side]
            ttft_s += [value for value in values if value is not None]
        allowed = max(_LATENESS * min(ttft_s, default=0.0), 1e-3)
        holds = holds and abs(late_s[1] - late_s[0]) <= allowed
        for at, late in enumerate(late_s):
            shown[at] += f"{', ' if shown[at] else ''}P{percentile} {1e3 * late:.3g} ms"
    return "lateness", shown[0], shown[1], holds


def _runs(side: Sequence[Observed]) -> list[Run]:
    return [seen.run for seen in side]


def _told(before: Sequence[Observed], after: Sequence[Observed]) -> Iterator[tuple[str, str, str]]:
    """What is known of both servers and their surroundings."""
    left, right = (_facts(side) for side in (before, after))
    for name in sorted(left.keys() | right.keys()):
        yield name, left.get(name, "not told"), right.get(name, "not told")


def _facts(side: Sequence[Observed]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for seen in side:
        header = seen.gpu.headers[-1] if seen.gpu.headers else None
        facts: dict[str, Any] = {
            "model": seen.run.model,
            "target": seen.run.target_url,
            "api_path": seen.run.api_path,
            "reasoning": seen.run.reasoning,
            "load host": seen.run.host.get("name"),
            "workers": len(seen.run.workers),
            "gpu": ", ".join(gpu.name or "?" for gpu in seen.gpu.gpus) or None,
            "driver": header.driver if header else None,
        }
        facts |= dict(flat(seen.target, _NOT_TOLD))
        for name, value in facts.items():
            found.setdefault(name, []).append("not told" if value is None else str(value))
    return {name: _list(values) for name, values in found.items()}


def _client(versions: Mapping[str, str]) -> dict[str, str]:
    return {name: versions[name] for name in _CLIENT if name in versions}


def _beside_length(sampling: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sampling.items() if name != "max_tokens"}


def _map(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items()))


def _list(values: Iterator[str] | Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(values))
