"""Other tools' results: recorded files of vllm bench serve and Locust, made ones of the rest."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from slo.ending import UsageError
from slo.import_formats import read
from slo.import_run import write
from slo.judge import judge
from slo.measurements import collect
from slo.record import Failure
from slo.run_lint import lint_run
from slo.rundir import read_records, read_run
from slo.slofile import parse_slo
from slo.verdict import Result, Verdict

FOREIGN = Path(__file__).parent / "foreign"


def verdict_of(directory: Path, *objectives: str) -> Verdict:
    listed = "".join(f"  - {{{objective}}}\n" for objective in objectives)
    return judge(directory, parse_slo(f"version: 1\nservice: s\nobjectives:\n{listed}"))


def imported(path: Path, out: Path, **options: Any) -> Path:
    write(read(path, options.get("tool"), options.get("index")), out, 600.0)
    return out


def checks(verdict: Verdict) -> dict[str, str]:
    return {check.check: check.outcome for check in verdict.validity}


def test_a_recorded_result_of_vllm_bench_is_judged_as_far_as_it_goes(tmp_path: Path) -> None:
    told = json.loads((FOREIGN / "vllm.json").read_text())
    run = imported(FOREIGN / "vllm.json", tmp_path / "run")
    records = list(read_records(run))
    assert [r.error for r in records].count(Failure.REFUSED) == 1
    assert (len(records), read_run(run).model, read_run(run).rate_per_s) == (25, "sim", 5.0)
    measured = collect(read_records(run), read_run(run))
    ttfts = sorted(t for t, e in zip(told["ttfts"], told["errors"], strict=True) if not e)
    assert measured.sample("ttft").percentile(50) == pytest.approx(ttfts[12], abs=1e-5)
    latencies = sorted(t for t, e in zip(told["latencies"], told["errors"], strict=True) if not e)
    assert measured.sample("e2e").percentile(50) == pytest.approx(latencies[12], abs=1e-5)
    verdict = verdict_of(
        run, "metric: ttft, percentile: 50, max: 1s", "metric: error_rate, max: 60%"
    )
    assert [row.outcome for row in verdict.rows] == [Result.INCONCLUSIVE, Result.PASS]
    found = checks(verdict)
    assert (found["origin"], found["lateness"], found["achieved rate"]) == (
        "void", "not checked", "not checked",
    )  # fmt: skip
    counts = next(one for one in verdict.validity if one.check == "token counts")
    assert "0 one above max_tokens" in counts.why  # it does not say how long answers could be
    assert not [one for one in lint_run(run) if "max_tokens" in one.what]
    (row,) = verdict_of(run, "metric: ttfat, percentile: 50, max: 1s").rows
    assert (row.outcome, row.measured) == (Result.INVALID, None)
    assert "Cannot be judged of it: ttfat, session" in row.why


def test_locusts_counts_decide_the_error_rate_and_nothing_else(tmp_path: Path) -> None:
    run = imported(FOREIGN / "locust_stats.csv", tmp_path / "run")
    records = list(read_records(run))
    assert (len(records), sum(not r.completed for r in records)) == (140, 83)
    assert {r.scenario for r in records} == {"chat", "nothing"}
    verdict = verdict_of(
        run,
        "metric: error_rate, max: 10%, scenario: nothing",
        "metric: error_rate, max: 20%, scenario: chat",
        "metric: e2e, percentile: 50, max: 1s",
    )
    assert [row.outcome for row in verdict.rows] == [Result.FAIL, Result.PASS, Result.INVALID]
    assert verdict.result is Result.INVALID


def guidellm(count: int) -> dict[str, Any]:
    def one(i: int, error: str | None = None) -> dict[str, Any]:
        start = 1_000.0 + i / 10
        timings = {
            "targeted_start": start,
            "request_start": start + 0.002,
            "first_token_iteration": start + 0.1,
            "first_output_token_iteration": start + 0.3,
            "last_token_iteration": start + 0.5,
            "token_iterations": 21,
            "request_end": start + 0.51,
            "resolve_end": start + 0.52,
        }
        return {
            "info": {"timings": timings, "error": error, "status": "completed"},
            "prompt_tokens": 64,
            "output_tokens": 21,
        }

    requests = {
        "successful": [one(i) for i in range(count)],
        "errored": [one(count, "ReadTimeout: timed out")],
        "incomplete": [],
    }
    return {"metadata": {}, "benchmarks": [{"requests": requests}]}


def test_guidellm_tells_when_requests_were_due(tmp_path: Path) -> None:
    path = tmp_path / "guidellm.json"
    path.write_text(json.dumps(guidellm(60)))
    run = imported(path, tmp_path / "run")
    measured = collect(read_records(run), read_run(run))
    for metric, value in (("ttft", 0.1), ("ttfat", 0.3), ("e2e", 0.5), ("tpot", 0.02)):
        assert measured.sample(metric).percentile(50) == pytest.approx(value, abs=1e-5), metric
    assert [r.error for r in read_records(run)][-1] is Failure.TIMEOUT_MID_STREAM
    verdict = verdict_of(run, "metric: ttft, percentile: 75, max: 1s")
    assert verdict.result is Result.PASS
    assert checks(verdict)["lateness"] == "ok"
    (row,) = verdict_of(run, "metric: itl, percentile: 75, max: 1s").rows
    assert row.outcome is Result.INVALID


def test_of_several_benchmarks_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "guidellm.json"
    both = guidellm(20)
    both["benchmarks"] += guidellm(30)["benchmarks"]
    path.write_text(json.dumps(both))
    with pytest.raises(UsageError, match="holds 2 benchmarks; name one: --index 0"):
        read(path, None, None)
    assert len(read(path, None, 1).requests) == 31
    with pytest.raises(UsageError, match="holds 2 benchmarks, none of --index 7"):
        read(path, None, 7)


def aiperf(i: int, *, due: bool, error: bool = False) -> dict[str, Any]:
    start = 1_759_813_207_000_000_000 + i * 100_000_000
    metadata = {
        "session_num": i,
        "request_start_ns": start + 3_000_000,
        "request_end_ns": start + 403_000_000,
        "benchmark_phase": "warmup" if i < 5 else "profiling",
    }
    if due:
        metadata["credit_issued_ns"] = start
    metrics = {
        "input_sequence_length": {"value": 550, "unit": "tokens"},
        "time_to_first_token": {"value": 100.0, "unit": "ms"},
        "request_latency": {"value": 400.0, "unit": "ms"},
        "inter_chunk_latency": {"value": [100.0, 100.0, 100.0], "unit": "ms"},
        "output_sequence_length": {"value": 4, "unit": "tokens"},
    }
    told = {"code": 503, "type": "HTTPError", "message": "overloaded"} if error else None
    return {"metadata": metadata, "metrics": {} if error else metrics, "error": told}


@pytest.mark.parametrize("due", [True, False])
def test_aiperfs_records_are_judged(tmp_path: Path, due: bool) -> None:
    path = tmp_path / "profile_export.jsonl"
    rows = [aiperf(i, due=due, error=i == 40) for i in range(65)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = imported(path, tmp_path / "run")
    measured = collect(read_records(run), read_run(run))
    assert int(measured.judged().sum()) == 60
    late = 0.003 if due else 0.0
    assert measured.sample("ttft").percentile(50) == pytest.approx(0.1 + late, abs=1e-5)
    assert measured.sample("itl").percentile(50) == pytest.approx(0.1, rel=2e-3)
    assert measured.sample("tpot").percentile(50) == pytest.approx(0.1, abs=1e-5)
    failed = next(r for r in read_records(run) if not r.completed)
    assert (failed.error, failed.status) == (Failure.HTTP_STATUS, 503)
    verdict = verdict_of(run, "metric: ttft, percentile: 75, max: 1s")
    assert verdict.result is Result.PASS
    assert checks(verdict)["lateness"] == ("ok" if due else "not checked")
    (tmp_path / "profile_export_aiperf.json").write_text('{"request_latency": {}}')
    assert len(read(tmp_path / "profile_export_aiperf.json", None, None).requests) == 65
    path.unlink()
    with pytest.raises(UsageError, match=r"a summary without requests; give profile_export\.jsonl"):
        read(tmp_path / "profile_export_aiperf.json", None, None)


def test_a_history_without_its_endpoints_is_named(tmp_path: Path) -> None:
    for name in ("locust_stats.csv", "locust_stats_history.csv"):
        shutil.copy(FOREIGN / name, tmp_path / name)
    history = tmp_path / "locust_stats_history.csv"
    kept = [line for line in history.read_text().splitlines() if "chat" not in line]
    history.write_text("\n".join(kept) + "\n")
    with pytest.raises(UsageError, match="has no history of chat; use --csv-full-history"):
        read(history, None, None)
