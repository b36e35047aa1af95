"""slo.yaml: read, and refused with all of its mistakes at once, each with line and column."""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from slo.objective_schema import ObjectiveText
from slo.objectives import (
    BOUNDS,
    Limits,
    Load,
    Objective,
    Part,
    Slo,
    change_of,
    confidence_of,
    limit_of,
)
from slo.quantities import duration_s, rate_per_s, share
from slo.slo_nodes import (
    Loc,
    SloFileError,
    duplicates,
    place,
    read_text,
    root_of,
    value_of,
    with_includes,
)
from slo.slo_schema import KEYS, LoadText, SloText, ValidityText, json_schema

__all__ = ["Slo", "SloFileError", "json_schema", "load_slo", "parse_slo"]


def load_slo(path: Path) -> Slo:
    """Read slo.yaml.

    Raises:
        SloFileError: missing, no YAML, or with mistakes; lists them all.
    """
    return parse_slo(read_text(path), str(path))


def parse_slo(text: str, name: str = "slo.yaml") -> Slo:
    """Read the text of a slo.yaml; `name` is what mistakes call the file, and where includes start.

    Raises:
        SloFileError: no YAML, or with mistakes; lists them all.
    """
    allowed = ", ".join(KEYS[()])
    own = root_of(text, name, allowed)
    mistakes = list(duplicates(own))
    root = with_includes(own, name, allowed)
    try:
        slo = _values(SloText.model_validate(value_of(root)))
        mistakes += [(place(root, loc), loc, what) for loc, what in _unknown_scenarios(slo)]
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            loc, of_key = detail["loc"], detail["type"] == "extra_forbidden"
            mistakes.append((place(root, loc, of_key=of_key), loc, _in_words(detail)))
    if mistakes:
        raise SloFileError("\n".join(_line(*mistake) for mistake in sorted(mistakes, key=_at)))
    return slo


def _at(mistake: tuple[yaml.Mark, Loc, str]) -> tuple[str, int, int]:
    return mistake[0].name, mistake[0].line, mistake[0].column


def _line(mark: yaml.Mark, loc: Loc, what: str) -> str:
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return f"{mark.name}:{mark.line + 1}:{mark.column + 1}: {key.lstrip('.')}: {what}"


def _in_words(detail: ErrorDetails) -> str:
    kind, context, given = detail["type"], detail.get("ctx", {}), detail["input"]
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return _unknown_key(detail["loc"])
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"{given!r} is not allowed; allowed: {context['expected']}"
    return f"{detail['msg'][:1].lower()}{detail['msg'][1:]}, not {given!r:.60}"


def _unknown_key(loc: Loc) -> str:
    key = str(loc[-1])
    allowed = KEYS[tuple(part for part in loc[:-1] if isinstance(part, str))]
    if key[:1] == "p" and key[1:].replace(".", "", 1).isdigit() and "percentile" in allowed:
        return f"is no key; write percentile: {key[1:]} and max: with the limit"
    near = get_close_matches(key, allowed, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"is no key; {hint}allowed: {', '.join(allowed)}"


def _unknown_scenarios(slo: Slo) -> Iterator[tuple[Loc, str]]:
    for i, objective in enumerate(slo.objectives):
        if slo.load.mix and objective.scenario not in ("all", *slo.load.mix):
            allowed = ", ".join(("all", *slo.load.mix))
            what = f"{objective.scenario!r} is not in load.mix; allowed: {allowed}"
            yield ("objectives", i, "scenario"), what


def _values(text: SloText) -> Slo:
    return Slo(
        service=text.service,
        objectives=tuple(_objective(one) for one in text.objectives),
        load=_load(text.load),
        validity=_limits(text.validity),
        baseline=text.baseline,
    )


def _objective(text: ObjectiveText) -> Objective:
    relative = text.max_change is not None
    if relative:
        written, bound = text.max_change, BOUNDS[text.metric][0]
        limit, unit = change_of(text.metric, written), "1"
    else:
        bound = "max" if text.max is not None else "min"
        written = text.max if bound == "max" else text.min
        limit, unit = limit_of(text.metric, written)
    return Objective(
        metric=text.metric,
        limit=limit,
        limit_text=str(written),
        unit=unit,
        percentile=None if text.percentile is None else float(str(text.percentile)),
        scenario=text.scenario,
        severity=text.severity,
        confidence=confidence_of(text.confidence),
        min_samples=text.min_samples,
        bound=bound,
        relative=relative,
        parts=tuple(
            Part(metric, limit_of(metric, most)[0], str(most)) for metric, most in _parts(text)
        ),
    )


def _parts(text: ObjectiveText) -> list[tuple[str, object]]:
    return list(text.meets.items()) if isinstance(text.meets, dict) else []


def _load(text: LoadText) -> Load:
    mix = text.mix
    return Load(
        rate_per_s=None if text.rate is None else rate_per_s(str(text.rate)),
        arrival=text.arrival,
        duration_s=None if text.duration is None else duration_s(str(text.duration)),
        warmup_s=None if text.warmup is None else duration_s(str(text.warmup)),
        mix=None if mix is None else {k: v / sum(mix.values()) for k, v in mix.items()},
        input_class=None if text.input_class is None else str(text.input_class),
        max_tokens=text.max_tokens,
    )


def _limits(text: ValidityText) -> Limits:
    return Limits(
        lateness=share(str(text.lateness)),
        achieved_rate=share(str(text.achieved_rate)),
        dropped=text.dropped,
        duration_s=duration_s(str(text.duration)),
        token_doubt=share(str(text.token_doubt)),
        cache_hits=share(str(text.cache_hits)),
        clock_step_s=duration_s(str(text.clock_step)),
    )
