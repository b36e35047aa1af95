"""OpenSLO v1 documents as slo.yaml, where they say the same thing.

"95 % of occurrences take at most 0.42 s" is a percentile with a limit; "99.5 % of requests are
good" is an error rate. Which metric is meant, and in which unit, OpenSLO leaves to names: ours are
told by the names of indicator and query, or by the annotations tailgate/metric and tailgate/unit.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from slo.slo_nodes import SloFileError, read_text, yaml_mistake
from slo.slofile import parse_slo

API = "openslo/v1"
_AT_MOST = ("lte", "lt")

# Words of names that mean one of our metrics; the first that is found counts.
_METRICS = {
    "ttft": r"ttft|time[_-]?to[_-]?first[_-]?token",
    "itl": r"\bitl\b|inter[_-]?token|inter[_-]?chunk",
    "tpot": r"tpot|time[_-]?per[_-]?output[_-]?token",
    "e2e": r"e2e|end[_-]?to[_-]?end|request[_-]?(latency|duration)|response[_-]?time",
}
_RATIOS = r"error|fail|success|availab"
_UNITS = {"ms": r"_ms\b|milliseconds", "s": r"_seconds|_s\b"}

Doc = Mapping[str, Any]


def to_slo_yaml(path: Path) -> str:
    """The text of a slo.yaml that asks for what an OpenSLO file does.

    Raises:
        SloFileError: no OpenSLO v1, or something in it that slo.yaml cannot say; names them all.
    """
    documents = _documents(path)
    indicators = {_name(one): one for one in documents if one.get("kind") == "SLI"}
    slos = [one for one in documents if one.get("kind") == "SLO"]
    if not slos:
        raise SloFileError(f"{path}: holds no document of kind SLO")
    lines: list[str] = []
    mistakes: list[str] = []
    for one in slos:
        where = f"{path}: SLO {_name(one)}"
        try:
            lines += _objectives(one, indicators)
        except ValueError as error:
            mistakes += [f"{where}: {line}" for line in str(error).splitlines()]
    services = {
        str(one["spec"].get("service")) for one in slos if isinstance(one.get("spec"), dict)
    }
    if len(services) > 1:
        mistakes.append(f"{path}: SLOs of {len(services)} services; slo.yaml is about one")
    if mistakes:
        raise SloFileError("\n".join(mistakes))
    text = "\n".join(
        [
            f"# From {path.name} (OpenSLO v1). Its time window is a matter of monitoring; say here",
            "# under which load the objectives hold: load: {rate: 3/s, duration: 10m}",
            "version: 1",
            f"service: {services.pop()}",
            "objectives:",
            *lines,
        ]
    )
    parse_slo(f"{text}\n", f"{path.name} as slo.yaml")
    return f"{text}\n"


def _documents(path: Path) -> list[Doc]:
    try:
        found = list(yaml.safe_load_all(read_text(path)))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SloFileError(f"{path}:{yaml_mistake(error)}") from None
    for one in found:
        if not isinstance(one, dict) or one.get("apiVersion") != API:
            told = one.get("apiVersion") if isinstance(one, dict) else type(one).__name__
            raise SloFileError(f"{path}: apiVersion {told!r} is not known here; allowed: {API}")
    return found


def _name(document: Doc) -> str:
    return str((document.get("metadata") or {}).get("name", "without a name"))


def _objectives(slo: Doc, indicators: Mapping[str, Doc]) -> Iterator[str]:
    spec = slo.get("spec")
    if not isinstance(spec, dict):
        raise ValueError("has no spec")
    method = spec.get("budgetingMethod", "Occurrences")
    if method != "Occurrences":
        raise ValueError(
            f"budgetingMethod {method} counts slices of time, slo.yaml counts requests; "
            "allowed: Occurrences"
        )
    indicator = spec.get("indicator")
    if indicator is None:
        indicator = indicators.get(str(spec.get("indicatorRef")))
    if not isinstance(indicator, dict):
        raise ValueError(f"the indicator {spec.get('indicatorRef')!r} is not in the file")
    texts = yaml.safe_dump([indicator, _name(slo)])
    annotations = _annotations(slo) | _annotations(indicator)
    for objective in spec.get("objectives") or ():
        yield f"  - {{{_objective(objective, indicator, annotations, texts)}}}"


def _annotations(document: Doc) -> dict[str, str]:
    return dict((document.get("metadata") or {}).get("annotations") or {})


def _objective(objective: Doc, indicator: Doc, annotations: Mapping[str, str], texts: str) -> str:
    for key in ("compositeWeight", "timeSliceTarget", "timeSliceWindow"):
        if key in objective:
            raise ValueError(f"{key} cannot be said in slo.yaml")
    target = _target(objective)
    inner = indicator.get("spec") or {}
    if "ratioMetric" in inner:
        if not re.search(_RATIOS, annotations.get("tailgate/metric", texts).lower()):
            raise ValueError(
                "ratioMetric: whether good means that requests do not fail is not told by any "
                "name; annotate tailgate/metric: error_rate"
            )
        return f"metric: error_rate, max: {_percent(1 - target)}"
    if "thresholdMetric" not in inner:
        raise ValueError("the indicator is neither thresholdMetric nor ratioMetric")
    if objective.get("op") not in _AT_MOST or "value" not in objective:
        raise ValueError(
            f"op {objective.get('op')!r} with value {objective.get('value')!r}: a latency has an "
            f"upper limit; allowed: {', '.join(_AT_MOST)} with a value"
        )
    metric = annotations.get("tailgate/metric") or _found(_METRICS, texts)
    unit = annotations.get("tailgate/unit") or _found(_UNITS, texts)
    if metric is None or unit is None:
        what, key = ("metric", "ttft") if metric is None else ("unit", "s")
        raise ValueError(
            f"thresholdMetric: which {what} is meant is not told by any name; "
            f"annotate tailgate/{what}: {key}"
        )
    return f"metric: {metric}, percentile: {100 * target:.6g}, max: {objective['value']}{unit}"


def _target(objective: Doc) -> float:
    if "targetPercent" in objective:
        target = float(objective["targetPercent"]) / 100
    elif "target" in objective:
        target = float(objective["target"])
    else:
        raise ValueError("an objective has neither target nor targetPercent")
    if not 0 < target < 1:
        raise ValueError(f"target {target:g} is not between 0 and 1")
    return target


def _found(words: Mapping[str, str], text: str) -> str | None:
    return next((name for name, told in words.items() if re.search(told, text.lower())), None)


def _percent(share: float) -> str:
    return f"{100 * share:.6g}%"
