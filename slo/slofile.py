"""slo.yaml: read, and refused with all of its mistakes at once, each with line and column."""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from slo.objectives import Limits, Load, Objective, Slo, confidence_of, limit_of
from slo.quantities import duration_s, rate_per_s, share
from slo.slo_schema import KEYS, LoadText, ObjectiveText, SloText, ValidityText, json_schema

__all__ = ["Slo", "SloFileError", "json_schema", "load_slo", "parse_slo"]

_MOST_BYTES = 1_000_000
_NOT_YET_KEYS = {
    "max_change": "relative objectives are not supported yet; write max",
    "baseline": "baselines are not supported yet",
    "include": "includes are not supported yet; write one file an environment",
}

Loc = tuple[int | str, ...]


class SloFileError(Exception):
    """A slo.yaml that cannot be used: all mistakes, one a line, as file:line:column: what."""


def load_slo(path: Path) -> Slo:
    """Read slo.yaml.

    Raises:
        SloFileError: missing, no YAML, or with mistakes; lists them all.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise SloFileError(f"{path}: is no UTF-8 text") from None
    except OSError as error:
        raise SloFileError(f"{path}: cannot be read: {error.strerror}") from None
    if len(raw) > _MOST_BYTES:
        raise SloFileError(f"{path}: has {len(raw)} bytes; allowed: {_MOST_BYTES}")
    return parse_slo(text, str(path))


def parse_slo(text: str, name: str = "slo.yaml") -> Slo:
    """Read the text of a slo.yaml; `name` is what mistakes call the file.

    Raises:
        SloFileError: no YAML, or with mistakes; lists them all.
    """
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise SloFileError(
                f"{name}:1:1: the document is no mapping; allowed keys: {', '.join(KEYS[()])}"
            )
        document = loader.construct_document(root)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SloFileError(f"{name}:{_yaml_mistake(error)}") from None
    mistakes = list(_duplicates(root))
    try:
        slo = _values(SloText.model_validate(document))
        mistakes += [(_place(root, loc), loc, what) for loc, what in _unknown_scenarios(slo)]
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            loc, of_key = detail["loc"], detail["type"] == "extra_forbidden"
            mistakes.append((_place(root, loc, of_key=of_key), loc, _in_words(detail)))
    if mistakes:
        raise SloFileError(
            "\n".join(_line(name, *mistake) for mistake in sorted(mistakes, key=_at))
        )
    return slo


def _at(mistake: tuple[yaml.Mark, Loc, str]) -> tuple[int, int]:
    return mistake[0].line, mistake[0].column


def _line(name: str, mark: yaml.Mark, loc: Loc, what: str) -> str:
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return f"{name}:{mark.line + 1}:{mark.column + 1}: {key.lstrip('.')}: {what}"


def _yaml_mistake(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or (str(error) or "empty").splitlines()[0]
    place = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
    return f"{place}: cannot be read as YAML: {what}"


def _duplicates(root: yaml.Node) -> Iterator[tuple[yaml.Mark, Loc, str]]:
    """Keys that stand twice in one mapping: YAML would silently take the last."""
    waiting: list[tuple[yaml.Node, Loc]] = [(root, ())]
    seen: set[int] = set()  # an anchor may be used many times
    while waiting:
        node, loc = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += [(item, (*loc, i)) for i, item in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            first: dict[str, int] = {}
            for key, value in node.value:
                if key.value in first:
                    what = f"stands twice; first in line {first[key.value]}"
                    yield key.start_mark, (*loc, key.value), what
                elif isinstance(key, yaml.ScalarNode):
                    first[key.value] = key.start_mark.line + 1
                waiting.append((value, (*loc, str(key.value))))


def _place(root: yaml.Node, loc: Loc, *, of_key: bool = False) -> yaml.Mark:
    """Where a key's value starts (or the key itself); of what is missing, where it is missing."""
    node, mark = root, root.start_mark
    for part in loc:
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            mark = node.start_mark
            continue
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        found = [(key, value) for key, value in pairs if key.value == str(part)]
        if not found:
            break
        key, node = found[-1]
        mark = key.start_mark if of_key else node.start_mark
    return mark


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
    if key in _NOT_YET_KEYS:
        return _NOT_YET_KEYS[key]
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
    )


def _objective(text: ObjectiveText) -> Objective:
    written = text.max if text.max is not None else text.min
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
    )


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
    return Limits(share(str(text.lateness)), share(str(text.achieved_rate)), text.dropped)
