"""slo.yaml: every kind of objective, and what an environment takes over by `include`."""

from pathlib import Path

import jsonschema
import pytest
import yaml

from slo.objectives import Limits, Load, Part
from slo.slofile import SloFileError, json_schema, load_slo, parse_slo

FULL = """\
version: 1
service: s
baseline: main
load: {rate: 3/s, mix: {math: 0.6, code: 0.4}}
objectives:
  - {metric: e2e, percentile: 95, max_change: +10%, severity: warn}
  - {metric: session, percentile: 90, max: 20s}
  - {metric: goodput, min: 90%, meets: {ttft: 420ms, e2e: 1.5s}, scenario: math}
  - {metric: accuracy, scenario: math, min: 0.80}
  - {metric: output_tokens_per_s, max_change: -5%}
  - {metric: gpu_memory_growth, max: 5%/h}
  - {metric: gpu_memory_max, max: 20GiB}
  - {metric: server_waiting_mean, max: 5}
  - {metric: server_kv_usage_max, max: 90%}
  - {metric: gpu_utilization_mean, min: 30%}
validity: {duration: 2m, token_doubt: 2%, cache_hits: 5%, clock_step: 1s}
"""


def test_every_kind_of_objective_is_understood() -> None:
    slo = parse_slo(FULL)
    assert slo.baseline == "main"
    assert slo.validity == Limits(
        duration_s=120.0, token_doubt=0.02, cache_hits=0.05, clock_step_s=1.0
    )
    assert [(o.name, o.bound, o.limit, o.unit, o.relative) for o in slo.objectives] == [
        ("e2e p95 change", "max", 0.1, "1", True),
        ("session p90", "max", 20.0, "s", False),
        ("goodput (ttft <= 420ms, e2e <= 1.5s)", "min", 0.9, "1", False),
        ("accuracy", "min", 0.8, "1", False),
        ("output_tokens_per_s change", "min", -0.05, "1", True),
        ("gpu_memory_growth", "max", 0.05, "1/h", False),
        ("gpu_memory_max", "max", 20480.0, "MiB", False),
        ("server_waiting_mean", "max", 5.0, "requests", False),
        ("server_kv_usage_max", "max", 0.9, "1", False),
        ("gpu_utilization_mean", "min", 0.3, "1", False),
    ]
    assert slo.objectives[2].parts == (
        Part("ttft", 0.42, "420ms"),
        Part("e2e", 1.5, "1.5s"),
    )
    assert slo.tightest_s == 0.42
    validator = jsonschema.Draft202012Validator(json_schema())
    assert validator.is_valid(yaml.safe_load(FULL))


BASE = """\
version: 1
service: s
load: {rate: 3/s, duration: 10m}
objectives:
  - {metric: ttft, percentile: 95, max: 420ms}
  - {metric: error_rate, max: 1%}
validity: {lateness: 10%}
"""


def test_an_environment_takes_over_what_it_does_not_say(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    staging = tmp_path / "staging.yaml"
    staging.write_text(
        "version: 1\ninclude: base.yaml\nload: {duration: 2m}\nobjectives:\n"
        "  - {metric: ttft, percentile: 95, max: 600ms}\n"
        "  - {metric: e2e, percentile: 95, max: 2s}\nvalidity: {dropped: 1}\n"
    )
    slo = load_slo(staging)
    assert slo.load == Load(rate_per_s=3.0, duration_s=120.0)
    assert [(o.name, o.limit) for o in slo.objectives] == [
        ("ttft p95", 0.6), ("error_rate", 0.01), ("e2e p95", 2.0),
    ]  # fmt: skip
    assert slo.validity == Limits(lateness=0.1, dropped=1)
    assert json_schema()
    validator = jsonschema.Draft202012Validator(json_schema())
    assert validator.is_valid(yaml.safe_load(staging.read_text()))


@pytest.mark.parametrize(
    ("base", "says"),
    [
        (BASE.replace("420ms", "420"), "base.yaml:5:41: objectives[0].max: '420' is no duration"),
        (BASE.replace("1%}", "1%, max: 2%}"), "base.yaml:6:35: max: stands twice"),
        ("- a", "include: {dir}/base.yaml:1:1: the document is no mapping"),
        ("include: top.yaml", "includes this file again"),
        (None, "top.yaml:1:10: include: {dir}/base.yaml: cannot be read: No such file"),
    ],
)
def test_a_mistake_in_an_included_file_is_named_there(
    tmp_path: Path, base: str | None, says: str
) -> None:
    if base is not None:
        (tmp_path / "base.yaml").write_text(base)
    top = tmp_path / "top.yaml"
    top.write_text("include: base.yaml\n")
    with pytest.raises(SloFileError) as caught:
        load_slo(top)
    assert says.replace("{dir}", str(tmp_path)) in str(caught.value)
