"""OpenSLO v1 as slo.yaml: what says the same is taken, the rest is refused by name."""

from pathlib import Path

import pytest

from slo.openslo import to_slo_yaml
from slo.slofile import SloFileError, parse_slo

LATENCY = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: ttft-p95}
spec:
  service: llm
  budgetingMethod: Occurrences
  timeWindow: [{duration: 28d, isRolling: true}]
  indicator:
    metadata: {name: time-to-first-token}
    spec:
      thresholdMetric:
        metricSource: {type: prometheus, spec: {query: vllm_time_to_first_token_seconds}}
  objectives: [{op: lte, value: 0.42, target: 0.95}, {op: lt, value: 0.8, targetPercent: 99}]
"""
ERRORS = """\
---
apiVersion: openslo/v1
kind: SLI
metadata: {name: success-ratio}
spec:
  ratioMetric:
    counter: true
    good: {metricSource: {spec: {query: ok}}}
    total: {metricSource: {spec: {query: all}}}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: availability}
spec: {service: llm, indicatorRef: success-ratio, objectives: [{target: 0.995}]}
"""


def converted(tmp_path: Path, text: str) -> str:
    path = tmp_path / "open.yaml"
    path.write_text(text)
    return to_slo_yaml(path)


def test_percentiles_and_error_rates_say_the_same(tmp_path: Path) -> None:
    slo = parse_slo(converted(tmp_path, LATENCY + ERRORS))
    assert slo.service == "llm"
    assert [(o.name, o.limit) for o in slo.objectives] == [
        ("ttft p95", 0.42),
        ("ttft p99", 0.8),
        ("error_rate", pytest.approx(0.005)),
    ]


def test_annotations_tell_what_names_do_not(tmp_path: Path) -> None:
    text = (
        LATENCY.replace("time-to-first-token", "latency")
        .replace("vllm_time_to_first_token_seconds", "x")
        .replace(
            "{name: ttft-p95}", "{name: a, annotations: {tailgate/metric: e2e, tailgate/unit: ms}}"
        )
    )
    slo = parse_slo(converted(tmp_path, text.replace("0.42", "420").replace("0.8", "800")))
    assert [(o.name, o.limit) for o in slo.objectives] == [("e2e p95", 0.42), ("e2e p99", 0.8)]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("Occurrences", "Timeslices", "SLO ttft-p95: budgetingMethod Timeslices counts slices"),
        ("op: lte, value: 0.42", "op: gte, value: 0.42", "op 'gte' with value 0.42: a latency has"),
        ("target: 0.95", "target: 1.0", "target 1 is not between 0 and 1"),
        (", target: 0.95", "", "neither target nor targetPercent"),
        ("time_to_first_token_seconds", "time_to_first_token", "which unit is meant is not told"),
        ("kind: SLO", "kind: Service", "holds no document of kind SLO"),
        ("openslo/v1", "openslo.com/v2alpha", "'openslo.com/v2alpha' is not known here"),
        ("target: 0.95", "target: 0.95, compositeWeight: 2", "compositeWeight cannot be said"),
        ("thresholdMetric", "otherMetric", "neither thresholdMetric nor ratioMetric"),
        ("  indicator:", "  indicatorRef: x\n  ignored:", "the indicator 'x' is not in the file"),
        ("value: 0.42", "value: -1", "open.yaml as slo.yaml:6:41: objectives[0].max"),
        ("spec:\n  service", "spec: [\n  service", "cannot be read as YAML"),
    ],
)
def test_what_cannot_be_said_is_refused_by_name(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    assert old in LATENCY
    with pytest.raises(SloFileError) as caught:
        converted(tmp_path, LATENCY.replace(old, new, 1))
    assert says in str(caught.value)


def test_all_that_cannot_be_said_is_named_at_once(tmp_path: Path) -> None:
    text = LATENCY.replace("Occurrences", "Timeslices") + ERRORS.replace(
        "service: llm", "service: b"
    )
    with pytest.raises(SloFileError) as caught:
        converted(tmp_path, text.replace("success-ratio", "ratio").replace("availability", "x"))
    said = str(caught.value).splitlines()
    assert len(said) == 3
    assert "ratioMetric: whether good means that requests do not fail" in said[1]
    assert "SLOs of 2 services" in said[2]
