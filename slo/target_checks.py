"""Was it one server all the time, and were prompts new to it? Checks of the target."""

from itertools import pairwise

import numpy as np

from slo.latencies import Floats
from slo.measurements import Measurements
from slo.objectives import LATENCIES
from slo.quantities import show_s
from slo.rundir import Run
from slo.server_log import ServerLog
from slo.validity import passed, unchecked, voided
from slo.verdict import Check

_IDENTITY = (
    "model",
    "engine",
    "mode",
    "dtype",
    "device",
    "reasoning",
    "flags",
    "versions",
    "process_start_wall_ns",
    "pid",
)
# What a server only counts up; where it falls, another process counts.
_COUNTERS = ("output_tokens", "prompt_tokens", "cpu_s")
_MOST_CACHED = 0.5  # of a prompt: what all prompts begin with is less
_TEMPLATE = 0.1  # of a prompt: what a chat template says before it


def target(document: dict[str, object] | None, server: ServerLog) -> Check:
    """Whether the target was the same at start and end: no other model, flags or process."""
    limit = "the same at start and end"
    restart = _restart(server)
    if restart:
        return voided("target", "restarted", limit, restart)
    told = document or {}
    start, end = told.get("start"), told.get("end")
    pairs: list[tuple[str, object, object]] = []
    if isinstance(start, dict) and isinstance(end, dict):
        pairs += [(key, start.get(key), end.get(key)) for key in _IDENTITY]
    first, last = _model_ids(told.get("models")), _model_ids(told.get("models_end"))
    if first and last is not None:
        pairs.append(("the list of models", first, last))
    if not pairs:
        why = "The target did not say at both ends what it is (/info, /v1/models)."
        return unchecked("target", limit, why)
    for key, before, after in pairs:
        if before != after:
            why = f"{key} was {before!r:.80} at the start, {after!r:.80} at the end."
            return voided("target", f"{key} changed", limit, why)
    return passed("target", "the same", limit, "The same at both ends, as far as it tells.")


def _model_ids(models: object) -> list[str] | None:
    """Names only: some servers stamp each listing with its moment."""
    if not isinstance(models, list):
        return None
    return sorted(str(one.get("id")) if isinstance(one, dict) else str(one) for one in models)


def _restart(server: ServerLog) -> str:
    for name in _COUNTERS:
        known = [(s.at_s, getattr(s, name)) for s in server.samples]
        known = [(at, value) for at, value in known if value is not None]
        for (_, before), (at, after) in pairwise(known):
            if after < before:
                fell = f"{name} fell from {before:g} to {after:g} at {show_s(at)}"
                return f"{fell}: the server was started again in mid-run."
    return ""


def cache(run: Run, measured: Measurements, limit: float) -> Check:
    """Whether prompts were new to the server: most of one out of a prefix cache is no prefill.

    A later turn of a session repeats what was said before, and is not asked about.
    """
    allowed = f"<= {limit:.3g} of requests"
    numbers = measured.columns.numbers
    done = measured.judged() & measured.columns.completed & np.isnan(numbers["think_s"])
    cached: Floats = numbers["cached_tokens"][done]
    known = np.isfinite(cached) & (numbers["prompt_tokens"][done] > 0)
    if not known.any():
        return unchecked(
            "prefix cache", allowed, "The server does not say what it found in a cache."
        )
    prompts: Floats = numbers["prompt_tokens"][done]
    if asked := float((run.options or {}).get("shared_prefix") or 0.0):
        return _shared(float(cached[known].sum() / prompts[known].sum()), asked)
    hits = int((cached > _MOST_CACHED * prompts)[known].sum())
    shown = f"{hits} of {int(known.sum())}"
    if hits > limit * known.sum():
        why = f"{hits} prompts came for the most part out of the prefix cache; they were to be new."
        return voided("prefix cache", shown, allowed, why, (*LATENCIES, "goodput"))
    return passed("prefix cache", shown, allowed, "Prompts were new to the server.")


def _shared(found: float, asked: float) -> Check:
    """Of prompts that were asked to begin alike, no more may be known to the server than that."""
    shown, allowed = f"{found:.1%} of tokens", f"<= {min(1.0, asked + _TEMPLATE):.3g} of tokens"
    why = f"Prompts were asked to begin alike: {asked:.3g} of their tokens."
    if found > asked + _TEMPLATE:
        why = f"{why} The server knew more of them than that."
        return voided("prefix cache", shown, allowed, why, (*LATENCIES, "goodput"))
    return passed("prefix cache", shown, allowed, why)
