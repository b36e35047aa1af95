"""What a report draws, folded from the records: counted by hand on a small run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from slo.judge import judge
from slo.record import Failure
from slo.rundir import read_run, write_run
from slo.slofile import parse_slo
from slo.summarise import summarise
from slo.summary import LatencyLine, Summary
from slo.verdict import Result
from tests.slo import spoil
from tests.slo.make_run import make_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """20 requests at 4/s after 4 of warm-up: 1 s + 5 s; two failures of two kinds."""
    return make_run(
        tmp_path / "run",
        [0.1 + i / 100 for i in range(20)],
        scenarios=("math", "code"),
        failures={0: Failure.HTTP_STATUS, 11: Failure.REFUSED},
        warmup=4,
        rate_per_s=4.0,
    )


def line(summary: Summary, scenario: str, metric: str) -> LatencyLine:
    found = summary.latencies
    return next(a for a in found if (a.scenario, a.metric) == (scenario, metric))


def test_counts_and_rates(run: Path) -> None:
    summary = summarise(run)
    assert (summary.judged, summary.completed, summary.failed) == (20, 18, 2)
    assert (summary.offered_per_s, summary.achieved_per_s) == (4.0, 4.0)
    assert summary.tokens_per_chunk == 2.0
    assert 30 < summary.output_tokens_per_s < 40  # 3.6 answers of 10 tokens a second


def test_percentiles_count_failures_as_over(run: Path) -> None:
    summary = summarise(run)
    ttft = line(summary, "all", "ttft")
    assert (ttft.n, ttft.failed) == (20, 2)
    # Completed: 0.11 to 0.29 without 0.21, 18 values; rank 10 of 20 is 0.20, rank 18 the last.
    assert ttft.percentiles_s[50.0] == pytest.approx(0.20)
    assert ttft.percentiles_s[90.0] == pytest.approx(0.29)
    assert ttft.percentiles_s[95.0] is None
    assert ttft.max_s == pytest.approx(0.29)
    assert line(summary, "math", "ttft").n == line(summary, "code", "ttft").n == 10


def test_seconds_lie_where_requests_were_due(run: Path) -> None:
    seconds = summarise(run).seconds
    assert [s.second for s in seconds] == list(range(6))
    assert [s.offered for s in seconds] == [4] * 6
    assert [s.failed for s in seconds] == [0, 1, 0, 1, 0, 0]
    assert seconds[1].ttft_p50_s == pytest.approx(0.12)  # of 0.11, 0.12, 0.13
    assert seconds[1].output_tokens == 30
    # Of warm-up, the request due at 0.75 s ends at 1.25 s.
    assert seconds[0].in_flight == 1


def test_failures_are_listed_by_kind_with_one_example(run: Path) -> None:
    failures = summarise(run).failures
    assert {(f.kind, f.count, f.share, f.example_seq) for f in failures} == {
        ("http_status", 1, 0.05, 4), ("refused", 1, 0.05, 15),
    }  # fmt: skip
    assert all(f.example for f in failures)


def test_a_run_without_a_gpu_log_says_so_and_has_no_zeros(run: Path) -> None:
    gpu = summarise(run).gpu
    assert gpu.not_measured == "no sidecar ran"
    assert gpu.samples == ()


def test_a_host_without_a_driver_is_named(run: Path) -> None:
    header = {
        "type": "header", "schema": "1.0", "host": "h", "pid": 1, "period_s": 0.5,
        "t_wall_ns": 1, "t_mono_ns": 1, "unavailable": "NVMLError_LibraryNotFound: x", "gpus": [],
    }  # fmt: skip
    (run / "gpu.jsonl").write_text(json.dumps(header) + "\n")
    assert summarise(run).gpu.not_measured == "no NVML library"


def test_gpu_samples_lie_on_the_runs_time_axis(run: Path) -> None:
    t0 = read_run(run).t0_mono_ns
    header = {
        "type": "header", "schema": "1.0", "host": "h", "pid": 1, "period_s": 0.5,
        "t_wall_ns": 1, "t_mono_ns": t0, "gpus": [{"index": 0, "name": "NVIDIA A10"}],
    }  # fmt: skip
    sample = {"type": "sample", "gpu": 0, "t_wall_ns": 1, "t_mono_ns": t0 + 1_500_000_000,
              "util_gpu_pct": 97.0, "power_w": None}  # fmt: skip
    (run / "gpu.jsonl").write_text(f"{json.dumps(header)}\n{json.dumps(sample)}\n")
    gpu = summarise(run).gpu
    assert (gpu.not_measured, gpu.names) == (None, ("NVIDIA A10",))
    (only,) = gpu.samples
    assert (only.at_s, only.util_pct, only.power_w) == (1.5, 97.0, None)


def test_a_spoilt_gpu_log_is_said_and_does_not_hide_the_rest(run: Path) -> None:
    (run / "gpu.jsonl").write_text('{"type": "header", "schema": "9.0"}\n')
    summary = summarise(run)
    assert "schema '9.0' is unknown" in str(summary.gpu.not_measured)
    assert summary.judged == 20


def test_the_target_is_flattened(run: Path) -> None:
    target = summarise(run).target
    assert target["model"] == "tiny"
    assert target["flags.max_running"] == 4
    spoil.without("target.json")(run)
    assert summarise(run).target == {}


def test_spoilt_or_empty_runs_can_still_be_drawn(run: Path, tmp_path: Path) -> None:
    spoil.cut("requests.jsonl")(run)
    assert summarise(run).judged == 19
    spoil.without("requests.jsonl")(run)
    assert summarise(run).judged == 0
    empty = summarise(make_run(tmp_path / "empty", []))
    assert (empty.judged, empty.seconds, empty.failures) == (0, (), ())
    assert all(found.n == 0 and found.mean_s is None for found in empty.latencies)


def test_reasoning_none_has_no_ttfat(run: Path) -> None:
    assert line(summarise(run), "all", "ttfat").n == 0
    write_run(run, replace(read_run(run), reasoning="tag"))
    assert line(summarise(run), "all", "ttfat").n == 20


@pytest.mark.parametrize("name", ["gpu.jsonl", "server.jsonl", "target.json", "requests.jsonl"])
def test_a_file_that_is_no_text_is_said_and_the_rest_is_drawn(run: Path, name: str) -> None:
    (run / name).write_bytes(b"\xff\xfe not UTF-8\n")
    assert summarise(run).judged == (0 if name == "requests.jsonl" else 20)
    slo = parse_slo("version: 1\nservice: s\nobjectives: [{metric: error_rate, max: 50%}]")
    verdict = judge(run, slo)
    (files,) = [check for check in verdict.validity if check.check == "files"]
    assert verdict.result is Result.INVALID
    assert f"{name}: is no UTF-8 text" in files.why
