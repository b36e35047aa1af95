"""slo.yaml: what is understood, and that every mistake is named with its place."""

from pathlib import Path

import pytest

from slo.arrival import FORMS
from slo.objectives import Limits, Load, Objective
from slo.slofile import SloFileError, load_slo, parse_slo
from tests.slo.slo_texts import GOOD, objective


def mistakes(text: str) -> list[str]:
    with pytest.raises(SloFileError) as caught:
        parse_slo(text, "slo.yaml")
    return str(caught.value).splitlines()


def test_a_whole_file_is_understood() -> None:
    slo = parse_slo(GOOD)
    assert slo.service == "deepseek-r1-distill-qwen-1.5b"
    assert slo.load == Load(1.5, "poisson", 600.0, 30.0, {"math": 0.6, "code": 0.4}, "512", 256)
    assert slo.validity == Limits(0.10, 0.98, 2)
    assert slo.objectives[:4] == (
        Objective("ttft", 0.42, "420ms", "s", 95.0),
        Objective("e2e", 1.5, "1.5s", "s", 99.9, "math", "warn", 0.99),
        Objective("error_rate", 0.005, "0.5%", "1", min_samples=500),
        Objective("achieved_rate", 0.99, "99%", "1", bound="min"),
    )
    assert [(o.limit, o.unit) for o in slo.objectives[4:]] == [(2.9, "1/s"), (500.0, "tokens/s")]
    assert [o.name for o in slo.objectives[:3]] == ["ttft p95", "e2e p99.9", "error_rate"]


def test_what_is_left_out_has_the_documented_defaults() -> None:
    slo = parse_slo(objective("metric: ttft, percentile: 95, max: 420ms"))
    assert slo.load == Load()
    assert slo.validity == Limits(lateness=0.05, achieved_rate=0.99, dropped=0)
    (only,) = slo.objectives
    assert (only.scenario, only.severity, only.confidence, only.min_samples) == (
        "all", "gate", 0.95, 0,
    )  # fmt: skip


def test_all_mistakes_are_named_at_once_in_the_order_of_the_file() -> None:
    text = """\
version: 1
service: x
loads: {}
load: {rate: -3/s, arrival: poison, duration: 10}
objectives:
  - {metric: ttft, percentile: 95, max: 420ms, percentle: 4}
  - metric: error_rate
    max: 0.5%
    max: 1%
"""
    assert mistakes(text) == [
        "slo.yaml:3:1: loads: is no key; did you mean load? "
        "allowed: version, service, include, baseline, load, objectives, validity",
        "slo.yaml:4:14: load.rate: '-3/s' is not above 0; a rate is more than 0/s",
        f"slo.yaml:4:29: load.arrival: 'poison' is no arrival process: allowed: {FORMS}",
        "slo.yaml:4:47: load.duration: '10' is no duration; "
        "write a number and us, ms, s, m or h: 420ms, 30s",
        "slo.yaml:6:48: objectives[0].percentle: is no key; did you mean percentile? allowed: "
        "metric, percentile, meets, max_change, max, min, scenario, severity, confidence, "
        "min_samples",
        "slo.yaml:9:5: objectives[1].max: stands twice; first in line 8",
    ]


@pytest.mark.parametrize(
    ("line", "at", "says"),
    [
        ("metric: p95, max: 1s", "p95", "write metric: ttft, percentile: 95"),
        ("metric: e2e_p99, max: 1s", "e2e_p99", "write metric: e2e, percentile: 99"),
        ("metric: ttft, p95: 420ms", "p95", "write percentile: 95 and max:"),
        ("metric: ttft, percentile: p95, max: 1s", "p95", "write percentile: 95"),
        ("metric: ttft, percentile: 0.95, max: 1s", "0.95", "did you mean 95"),
        ("metric: ttft, percentile: 100, max: 1s", "100", "1 to below 100"),
        ("metric: ttft, percentile: yes, max: 1s", "yes", "True is no number"),
        ("metric: ttft, max: 1s", "{", "percentile: is missing; ttft is judged by"),
        ("metric: ttft, percentile: 95", "{", "max: is missing; ttft needs its limit"),
        ("metric: ttft, percentile: 95, min: 1s", "1s", "min: is not for ttft; write max"),
        ("metric: ttft, percentile: 95, max: 420", "420", "'420' is no duration"),
        ("metric: ttft, percentile: 95, max: -1s", "-1s", "negative"),
        ("metric: ttft, percentile: 95, max: 0s", "0s", "can be met by no request"),
        ("metric: ttft, percentile: 95, max: [1]", "[1]", "is no quantity"),
        ("metric: tfft, percentile: 95, max: 1s", "tfft", "did you mean ttft? allowed: ttft,"),
        ("percentile: 95, max: 1s", "{", "metric: is missing"),
        ("metric: error_rate, percentile: 95, max: 1%", "95", "is not for error_rate"),
        ("metric: error_rate, min: 1%", "1%", "is not for error_rate; write max"),
        ("metric: error_rate, max: 120%", "120%", "not within 0% to 100%"),
        ("metric: achieved_rate, min: 0.99", "0.99", "has no unit; write 99%"),
        ("metric: achieved_rate, max: 99%", "99%", "write min"),
        ("metric: goodput, min: 90%", "{", "meets: is missing; write {ttft: 420ms, e2e: 1.5s}"),
        ("metric: goodput, min: 90%, meets: {itl: 1s}", "{itl", "'itl' is no latency of one"),
        ("metric: goodput, min: 90%, meets: {e2e: 1}", "{e2e", "'1' is no duration"),
        ("metric: accuracy, min: 0.8, meets: {e2e: 1s}", "{e2e", "it is for goodput"),
        ("metric: accuracy, max: 0.8", "0.8", "is not for accuracy; write min"),
        ("metric: gpu_memory_growth, max: 5%", "5%", "is no growth; write a share per hour: 5%/h"),
        ("metric: gpu_memory_max, max: 20", "20", "write 12MiB or 12GiB"),
        ("metric: gpu_memory_max, max: 20GiB, min: 1GiB", "1GiB", "stands beside max; write one"),
        ("metric: gpu_power_mean", "{", "min: is missing; gpu_power_mean needs its limit"),
        ("metric: server_queue, max: 5", "server_queue", "allowed: ttft, ttfat, itl"),
        ("metric: e2e, percentile: 95, max_change: 0.1", "0.1", "write 0% and more, e.g. +10%"),
        ("metric: e2e, percentile: 95, max_change: -5%", "-5%", "write 0% and more, e.g. +10%"),
        ("metric: output_tokens_per_s, max_change: +5%", "+5%", "write 0% and less, e.g. -10%"),
        ("metric: error_rate, max_change: +5%", "+5%", "is not for error_rate; it is for ttft"),
        ("metric: e2e, percentile: 95, max_change: +5%, max: 1s", "1s", "stands beside max_change"),
        ("metric: error_rate, max: 1%, confidence: 95", "95", "95 is no confidence"),
        ("metric: error_rate, max: 1%, confidence: 100%", "100%", "is no confidence"),
        ("metric: error_rate, max: 1%, severity: gat", "gat", "allowed: 'gate' or 'warn'"),
        ("metric: error_rate, max: 1%, min_samples: -1", "-1", "greater than or equal to 0"),
        ("metric: error_rate, max: 1%, scenario: 5", "5", "valid string"),
    ],
)
def test_one_mistake_is_named_with_place_and_remedy(line: str, at: str, says: str) -> None:
    found = mistakes(objective(line))
    column = objective(line).splitlines()[3].rindex(at) + 1
    place = f"slo.yaml:4:{column}: objectives[0]"
    assert any(m.startswith(place) and says in m for m in found), found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "1:1: the document is no mapping; allowed keys: version, service"),
        ("- a", "1:1: the document is no mapping"),
        ("a: [", "1:5: cannot be read as YAML"),
        ("a: 1\n---\nb: 2\n", "cannot be read as YAML: but found another document"),
        ("a: !!python/object:os.system {}", "1:4: cannot be read as YAML: could not determine"),
        ("a: \x01", "1:1: cannot be read as YAML"),
        ("a: " + "[" * 5000, "1:1: cannot be read as YAML: it is nested too deep"),
        ("version: 2\nservice: s\nobjectives: []\n", "1:10: version: 2 is not allowed; allowed: 1"),
        ("version: 1\nservice: s\nobjectives: []\n", "3:13: objectives: list should have at least"),
        ("version: 1\nservice: s\nobjectives: 5\n", "3:13: objectives: input should be a valid"),
        (
            "version: 1\nservice: s\nload: {input_class: 5}\nobjectives: []",
            "3:21: load.input_class: '5': a prompt has 100 to 200000 tokens",
        ),
        (
            "version: 1\nservice: s\nload: {mix: {math: .nan}}\nobjectives: []",
            "3:20: load.mix.math",
        ),
        ("version: 1\nservice: s\nload: {mix: {math: -1}}\nobjectives: []", "3:13: load.mix"),
        ("version: 1\nservice: s\nvalidity: {lateness: 5}\nobjectives: []", "3:22: validity.late"),
    ],
)
def test_a_document_that_is_none_is_refused(text: str, says: str) -> None:
    assert says in "\n".join(mistakes(text))


def test_a_scenario_that_the_load_has_not_is_refused() -> None:
    text = "version: 1\nservice: s\nload: {mix: {math: 1}}\nobjectives:\n"
    text += "  - {metric: error_rate, max: 1%, scenario: maths}\n"
    assert mistakes(text) == [
        "slo.yaml:5:45: objectives[0].scenario: 'maths' is not in load.mix; allowed: all, math"
    ]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    with pytest.raises(SloFileError, match=r"none\.yaml: cannot be read: No such file"):
        load_slo(missing)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"service: caf\xe9")
    with pytest.raises(SloFileError, match=r"latin\.yaml: is no UTF-8"):
        load_slo(latin)
    huge = tmp_path / "huge.yaml"
    huge.write_text("#" * 1_000_001)
    with pytest.raises(SloFileError, match="allowed: 1000000"):
        load_slo(huge)
