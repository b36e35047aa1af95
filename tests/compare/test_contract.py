"""What voids a comparison is refused by name; what merely differs is told."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from slo.compare import GATES, Ask, Result, compare
from slo.compare_contract import NAMES
from slo.compare_values import METRICS
from slo.record import Failure
from slo.rundir import Counts, Lateness, RunDirError, read_run, write_run
from tests.slo.make_logs import write_gpu
from tests.slo.make_run import INFO, make_run

TTFT = [random.Random(i).uniform(0.1, 0.14) for i in range(200)]


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return make_run(tmp_path / "before", TTFT)


@pytest.mark.parametrize(
    ("term", "change"),
    [
        ("seed", {"seed": 2}),
        ("rate", {"rate_per_s": 11.0}),
        ("arrival", {"arrival": "poisson"}),
        ("window", {"duration_s": 19.0}),
        ("mix", {"mix": {"math": 0.5, "code": 0.5}}),
        ("max_tokens", {"sampling": {"temperature": 0.6, "top_p": 0.95, "max_tokens": 65}}),
        ("sampling", {"sampling": {"temperature": 0.7, "top_p": 0.95, "max_tokens": 64}}),
        ("timeout", {"timeout_s": 30.0}),
        ("client", {"versions": {"tailgate": "0.0.9"}}),
        ("finished", {"finished": False}),
        ("lateness", {"lateness": Lateness(50.0, 60.0, 70.0, 80.0)}),
        ("dropped", {"counts": Counts(200, 200, 199, 0, 1)}),
    ],
)
def test_a_mismatch_is_refused_by_name(
    before: Path, tmp_path: Path, term: str, change: dict[str, object]
) -> None:
    after = make_run(tmp_path / "after", TTFT)
    write_run(after, replace(read_run(after), **change))
    found = compare([before], [after], Ask())
    assert found.result is Result.NOT_COMPARABLE
    assert found.exit_code == 4
    assert f"{term}: " in found.sentence
    assert not found.lines
    again = compare([before], [after], Ask(accept=(term,), gates=("e2e.p95",)))
    assert again.result is not Result.NOT_COMPARABLE
    assert any(note.startswith("Accepted") and term in note for note in again.notes)


def test_accuracy_is_a_gate_where_it_is_graded_and_else_only_if_it_is_asked_for(
    before: Path,
) -> None:
    assert [gate.metric for gate in compare([before], [before], Ask()).gates] == list(GATES[:-1])
    with pytest.raises(RunDirError, match="accuracy: not measured in every run"):
        compare([before], [before], Ask(gates=("error_rate", "accuracy")))


def test_all_that_is_measured_is_known_by_its_name(before: Path) -> None:
    write_gpu(before, power_w=lambda s: 300.0, util_gpu_pct=lambda s: 60.0,
              energy_j=lambda s: 300.0 * s, mem_used_mib=lambda s: 9000.0)  # fmt: skip
    found = {line.metric for line in compare([before], [before], Ask(gates=("e2e.p95",))).lines}
    assert {"ttft.p99", "tpot.gmean", "gpu_power.mean", "energy_per_token.mean"} <= found
    assert found <= set(METRICS)


def test_other_prompts_are_refused(before: Path, tmp_path: Path) -> None:
    after = make_run(tmp_path / "after", TTFT, scenarios=("math", "code"), mix={"math": 1.0})
    found = compare([before], [after], Ask())
    assert "prompts: " in found.sentence


def test_what_differs_of_the_servers_is_told(before: Path, tmp_path: Path) -> None:
    info = {**INFO, "mode": "vllm", "pid": 1, "flags": {"max_running": 8}}
    after = make_run(tmp_path / "after", TTFT, target={"start": info, "end": info, "models": []})
    found = compare([before], [after], Ask(gates=("e2e.p95",)))
    told = {t.name: (t.before, t.after) for t in found.contract if t.before != t.after}
    assert told == {"mode": ("dynamic", "vllm"), "flags.max_running": ("4", "8")}
    assert {t.name for t in found.contract if t.holds} == set(NAMES)


def test_failures_are_compared_as_a_share(before: Path, tmp_path: Path) -> None:
    after = make_run(
        tmp_path / "after", TTFT, failures=dict.fromkeys(range(0, 200, 5), Failure.RESET)
    )
    found = compare([before], [after], Ask(gates=("error_rate",)))
    assert found.result is Result.WORSE
    line = next(one for one in found.lines if one.metric == "error_rate")
    assert (line.before, line.after) == (0.0, 0.2)
    censored = next(one for one in found.lines if one.metric == "e2e.p95")
    assert censored.after is None
    assert censored.outcome == "worse"


def test_a_gate_that_was_not_measured_is_named(before: Path) -> None:
    with pytest.raises(RunDirError, match=r"gpu_power\.mean: not measured"):
        compare([before], [before], Ask(gates=("gpu_power.mean",)))
