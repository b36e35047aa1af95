"""Objectives beyond percentiles and failures: each can turn the verdict, either way."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slo import baselines
from slo.beside import Baseline
from slo.judge import judge
from slo.record import Failure
from slo.rundir import RunDirError
from slo.slofile import parse_slo
from slo.verdict import Result, Verdict
from slo.verdict_file import write_verdict
from tests.slo import spoil
from tests.slo.make_logs import write_gpu, write_server
from tests.slo.make_run import make_run, shuffled

N = 400
FAST = shuffled([0.1 + 0.0005 * i for i in range(N)])


def judged(
    directory: Path, *objectives: str, baseline: Baseline | None = None, head: str = ""
) -> Verdict:
    listed = "".join(f"  - {{{objective}}}\n" for objective in objectives)
    slo = parse_slo(f"version: 1\nservice: tiny\n{head}objectives:\n{listed}")
    return judge(directory, slo, *((baseline,) if baseline else ()))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """40 s at 10/s, with a GPU and a server that were sampled each second."""
    directory = make_run(tmp_path / "run", FAST)
    write_gpu(
        directory,
        mem_used_mib=lambda s: 10_000.0 + 20 * s,  # 7.2 times as much after an hour
        util_gpu_pct=lambda s: 60.0 + 10 * (s % 2),
        power_w=lambda s: 300.0 if s == 7 else 200.0,
        temperature_c=lambda s: 60.0,
        sm_clock_mhz=lambda s: 1400.0,
    )
    write_server(
        directory,
        waiting=lambda s: float(s % 4),
        running=lambda s: 8.0,
        kv_usage=lambda s: 0.5,
        allocated_mib=lambda s: 4000.0,
        reserved_mib=lambda s: 5000.0,
        output_tokens=lambda s: 100.0 * s,
    )
    return directory


@pytest.mark.parametrize(
    ("objective", "result"),
    [
        ("metric: gpu_memory_max, max: 12GiB", Result.PASS),
        ("metric: gpu_memory_max, max: 10GiB", Result.FAIL),
        ("metric: gpu_memory_mean, max: 12GiB", Result.PASS),
        ("metric: gpu_memory_mean, max: 10GiB", Result.FAIL),
        ("metric: gpu_memory_growth, max: 900%/h", Result.PASS),
        ("metric: gpu_memory_growth, max: 500%/h", Result.FAIL),
        ("metric: gpu_utilization_mean, min: 60%", Result.PASS),
        ("metric: gpu_utilization_mean, min: 70%", Result.FAIL),
        ("metric: gpu_utilization_mean, max: 65%", Result.INCONCLUSIVE),
        ("metric: gpu_power_max, max: 350W", Result.PASS),
        ("metric: gpu_power_max, max: 250W", Result.FAIL),
        ("metric: gpu_power_mean, max: 250W", Result.PASS),
        ("metric: gpu_temperature_max, max: 50C", Result.FAIL),
        ("metric: gpu_sm_clock_mean, min: 1500MHz", Result.FAIL),
        ("metric: server_waiting_max, max: 3", Result.PASS),
        ("metric: server_waiting_max, max: 2", Result.FAIL),
        ("metric: server_waiting_mean, max: 2", Result.PASS),
        ("metric: server_running_mean, max: 7", Result.FAIL),
        ("metric: server_kv_usage_max, max: 40%", Result.FAIL),
        ("metric: server_allocated_memory_growth, max: 1%/h", Result.PASS),
        ("metric: server_reserved_memory_max, max: 4GiB", Result.FAIL),
        ("metric: goodput, min: 70%, meets: {ttft: 290ms, e2e: 700ms}", Result.PASS),
        ("metric: goodput, min: 99%, meets: {ttft: 290ms, e2e: 700ms}", Result.FAIL),
        ("metric: goodput, min: 95%, meets: {ttft: 290ms}", Result.INCONCLUSIVE),
        ("metric: session, percentile: 75, max: 1s", Result.PASS),
        ("metric: session, percentile: 75, max: 500ms", Result.FAIL),
        ("metric: output_tokens_per_s, min: 90, scenario: math", Result.PASS),
        ("metric: accuracy, min: 80%", Result.INCONCLUSIVE),  # not graded
        ("metric: ttft, percentile: 75, max_change: +10%", Result.INCONCLUSIVE),  # no baseline
    ],
)
def test_each_objective_can_turn_the_verdict(run: Path, objective: str, result: Result) -> None:
    verdict = judged(run, objective)
    assert verdict.result is result, verdict.sentence
    (row,) = verdict.rows
    assert row.why
    assert row.next_step or row.outcome is Result.PASS


def test_what_was_not_measured_says_why(tmp_path: Path) -> None:
    bare = make_run(tmp_path / "bare", FAST)
    for objective, why, next_step in (
        ("metric: gpu_power_max, max: 1W", "Not measured: no sidecar ran.", "--sidecar"),
        ("metric: server_waiting_max, max: 1", "Not measured: the target's /metrics", "Offer"),
        ("metric: accuracy, min: 80%", "Not graded: the run has no grades.jsonl.", "grade them"),
        (
            "metric: e2e, percentile: 75, max_change: +5%",
            "No baseline to compare with: no baseline is named",
            "slo baseline set NAME RUN",
        ),
    ):
        verdict = judged(bare, objective)
        assert verdict.result is Result.INCONCLUSIVE
        assert why in verdict.rows[0].why
        assert next_step in verdict.rows[0].next_step
    write_gpu(bare, power_w=lambda s: None if s > 9 else 1.0)  # type: ignore[arg-type,return-value]
    assert "10 samples of power_w" in judged(bare, "metric: gpu_power_max, max: 1W").rows[0].why


def grades(directory: Path, wrong: set[int], words: str = "wrong") -> None:
    lines = (
        {"seq": seq, "grade": words if seq in wrong else "right", "why": "told"} for seq in range(N)
    )
    (directory / "grades.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("wrong", "words", "result"),
    [(20, "wrong", Result.PASS), (120, "truncated", Result.FAIL), (80, "no_answer", None)],
)
def test_accuracy_counts_only_right_answers(
    run: Path, wrong: int, words: str, result: Result | None
) -> None:
    grades(run, {i * N // wrong for i in range(wrong)}, words)
    verdict = judged(run, "metric: accuracy, min: 80%")
    assert verdict.result is (result or Result.INCONCLUSIVE)
    assert verdict.rows[0].measured == pytest.approx(1 - wrong / N)


def test_a_spoilt_grade_voids_the_run(run: Path) -> None:
    (run / "grades.jsonl").write_text('{"seq": 1, "grade": "great", "why": ""}\n')
    verdict = judged(run, "metric: accuracy, min: 80%")
    assert (verdict.result, verdict.validity[0].check) == (Result.INVALID, "files")
    assert "grades.jsonl:1" in verdict.sentence


def test_an_idle_gpu_beside_it_changes_no_mean(run: Path) -> None:
    write_gpu(run, idle_mib=500.0, util_gpu_pct=lambda s: 60.0 + 10 * (s % 2))
    [row] = judged(run, "metric: gpu_utilization_mean, min: 60%").rows
    assert (row.measured, row.outcome) == (pytest.approx(0.65, abs=0.01), Result.PASS)


def test_a_failed_request_is_no_good_one(tmp_path: Path) -> None:
    failing = dict.fromkeys(range(0, N, 10), Failure.HTTP_STATUS)
    run = make_run(tmp_path / "run", FAST, failures=failing)
    verdict = judged(run, "metric: goodput, min: 95%, meets: {e2e: 5s}")
    assert verdict.result is Result.FAIL
    assert verdict.rows[0].measured == pytest.approx(0.9)
    assert "may miss one of its latencies; 40 of 400 did, failures included" in verdict.rows[0].why


def test_a_latency_that_no_request_has_makes_no_good_ones(tmp_path: Path) -> None:
    """The model does not reason: nothing was measured that could be over the limit."""
    run = make_run(tmp_path / "run", FAST)
    verdict = judged(run, "metric: goodput, min: 90%, meets: {ttfat: 1ms}")
    (row,) = verdict.rows
    assert (verdict.result, row.measured) == (Result.INCONCLUSIVE, None)
    assert row.why == "No judged request has a ttfat: goodput is not known."


def test_a_session_lasts_from_its_first_turn_to_its_last_without_the_thinking(
    tmp_path: Path,
) -> None:
    """Two turns of 0.5 s, the second 0.8 s after the first ended: 1 s."""
    run = make_run(tmp_path / "run", [0.1] * 200, rate_per_s=2.0)

    def joined(rows: list[str]) -> list[str]:
        changed = []
        for i, row in enumerate(rows):
            told = json.loads(row)
            if i % 2:
                moved = told["due_s"] - (json.loads(rows[i - 1])["last_token_s"] + 0.8)
                for key in [k for k, v in told.items() if k.endswith("_s") and v is not None]:
                    told[key] -= moved
                told |= {"session": i - 1, "turn": 1, "after_seq": i - 1, "think_s": 0.8}
            changed.append(json.dumps(told) + "\n")
        return changed

    spoil.lines("requests.jsonl", joined)(run)
    from slo.measurements import collect
    from slo.rundir import read_records, read_run

    sample = collect(read_records(run), read_run(run)).sample("session")
    assert sample.n == 100
    assert sample.percentile(50) == pytest.approx(1.0)


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    """A run that passed, of the same load."""
    directory = make_run(tmp_path / "before", FAST)
    verdict = judged(directory, "metric: ttft, percentile: 75, max: 1s")
    assert verdict.result is Result.PASS
    write_verdict(directory, verdict)
    return directory


@pytest.mark.parametrize(
    ("factor", "objective", "result"),
    [
        (1.0, "metric: ttft, percentile: 75, max_change: +30%", Result.PASS),
        (2.0, "metric: ttft, percentile: 75, max_change: +30%", Result.FAIL),
        (1.0, "metric: ttft, percentile: 75, max_change: +0%", Result.INCONCLUSIVE),
        (1.0, "metric: output_tokens_per_s, max_change: -10%", Result.PASS),
    ],
)
def test_a_change_against_a_baseline_is_judged(
    tmp_path: Path, baseline: Path, factor: float, objective: str, result: Result
) -> None:
    now = make_run(tmp_path / "now", [factor * value for value in reversed(FAST)])
    found = baselines.find(str(baseline), tmp_path / "none.json")
    verdict = judged(now, objective, baseline=found)
    assert verdict.result is result, verdict.sentence
    assert verdict.rows[0].objective.endswith(" change")


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (spoil.in_run(rate_per_s=5.0), "ran under another load: 5/s, not 10/s"),
        (spoil.in_run(mix={"code": 1.0}), "ran under another load: another mix"),
        (spoil.without("verdict.json"), "it was not judged"),
        (spoil.lines("verdict.json", lambda rows: [r.replace("PASS", "FAIL") for r in rows]),
         "its verdict is FAIL"),
        (spoil.cut("requests.jsonl"), "requests.jsonl:400: the last line is cut off"),
    ],
)  # fmt: skip
def test_a_baseline_that_is_none_leaves_the_change_open(
    tmp_path: Path, baseline: Path, one: Callable[[Path], None], why: str
) -> None:
    now = make_run(tmp_path / "now", FAST)
    one(baseline)
    found = baselines.find(str(baseline), tmp_path / "none.json")
    verdict = judged(now, "metric: e2e, percentile: 75, max_change: +10%", baseline=found)
    assert verdict.result is Result.INCONCLUSIVE
    assert why in verdict.rows[0].why


def test_only_a_run_that_passed_becomes_a_baseline(tmp_path: Path, baseline: Path) -> None:
    from slo.ending import UsageError

    store = tmp_path / "store" / "baselines.json"
    assert baselines.find(None, store) is None
    assert baselines.read_store(store) == {}
    baselines.set_baseline("main", baseline, store)
    assert baselines.find("main", store).measured is not None
    assert "there is no baseline other" in baselines.find("other", store).why
    failed = make_run(tmp_path / "failed", FAST)
    write_verdict(failed, judged(failed, "metric: ttft, percentile: 75, max: 1ms"))
    for run, why in ((failed, "its verdict is FAIL"), (tmp_path / "x", "no such run directory")):
        with pytest.raises(UsageError, match=why):
            baselines.set_baseline("bad", run, store)
    spoil.in_run(id="another")(baseline)
    assert "holds another run, another" in baselines.find("main", store).why
    store.write_text("{")
    with pytest.raises(UsageError, match=r"baselines\.json"):
        baselines.read_store(store)


def test_a_gpu_log_that_is_spoilt_voids_the_run(run: Path) -> None:
    (run / "gpu.jsonl").write_text('{"type": "header", "schema": "9.0"}\n')
    verdict = judged(run, "metric: gpu_power_max, max: 1W")
    assert verdict.result is Result.INVALID
    assert "gpu.jsonl" in verdict.sentence
    with pytest.raises(RunDirError):
        judge(run / "none", parse_slo("version: 1\nservice: s\nobjectives: "
                                      "[{metric: error_rate, max: 1%}]"))  # fmt: skip
