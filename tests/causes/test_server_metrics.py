"""The target's own /metrics: three dialects, a real server, and one that goes away."""

import io
import json
import threading
from pathlib import Path

import pytest

from slo.rundir import RunDirError
from slo.server_log import read_server_log
from slo.server_metrics import kind_of, read_metrics, sample
from tests.cli.conftest import Answer, answering
from tests.serving import running_target

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a \\"b\\" c"} 7.0
vllm:num_requests_running{engine="1",model_name="a \\"b\\" c"} 5.0
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.93
vllm:num_preemptions_total{engine="0",model_name="m"} 4.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.7e9
vllm:generation_tokens_total{engine="0",model_name="m"} 1.0e6
vllm:estimated_flops_per_gpu_total{engine="0",model_name="m"} 2e15
vllm:estimated_flops_per_gpu_total{engine="1",model_name="m"} 4e15
vllm:time_to_first_token_seconds_bucket{le="0.001",model_name="m"} 0.0
process_cpu_seconds_total 12.5
"""
SGLANG = """\
sglang:num_running_reqs{model_name="m"} 9
sglang:num_queue_reqs{model_name="m"} 2
sglang:token_usage{model_name="m"} 0.5
sglang:num_retracted_reqs{model_name="m"} 1
"""
OURS = """\
tailgate_requests_running 3.0
tailgate_requests_waiting 1.0
tailgate_kv_cache_usage_ratio NaN
tailgate_gpu_memory_allocated_bytes 1.048576e+06
"""


def test_vllm_says_it_in_its_own_words() -> None:
    assert read_metrics(VLLM) == {
        "running": 12.0,  # of two engines together
        "waiting": 3.0,
        "kv_usage": 0.93,  # of the fuller one
        "preemptions": 4.0,
        "output_tokens": 1e6,
        "flops": 3e15,  # of a GPU: their mean
        "cpu_s": 12.5,
    }
    assert kind_of(VLLM) == "vllm"


def test_sglang_and_ours_give_the_same_quantities() -> None:
    assert read_metrics(SGLANG) == {
        "running": 9.0,
        "waiting": 2.0,
        "kv_usage": 0.5,
        "preemptions": 1.0,
    }
    assert read_metrics(OURS) == {"running": 3.0, "waiting": 1.0, "allocated_mib": 1.0}
    assert (kind_of(SGLANG), kind_of(OURS), kind_of("up 1\n")) == ("sglang", "tailgate", None)


def test_a_wanted_line_that_is_no_prometheus_text_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="could not convert"):
        read_metrics("vllm:num_requests_running{ 7\n")


def sampled(url: str, beats: int) -> list[dict[str, object]]:
    """The log of so many beats of 0.05 s."""
    out, left = io.StringIO(), iter(range(beats))
    never = threading.Event()

    def wait(seconds: float) -> bool:
        return never.wait(seconds) or next(left, None) is None

    sample(url, out, wait, period_s=0.05)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_our_server_is_sampled_on_a_beat(tmp_path: Path) -> None:
    with running_target("--engine", "sim") as url:
        header, *samples = sampled(url, 5)
    assert (header["kind"], header["unavailable"]) == ("tailgate", None)
    assert header["url"] == f"{url}/metrics"
    assert len(samples) == 6  # the last at the stop
    assert {"running", "waiting", "output_tokens"} <= samples[0].keys()
    (tmp_path / "server.jsonl").write_text(
        "".join(f"{json.dumps(s)}\n" for s in [header, *samples])
    )
    log = read_server_log(tmp_path / "server.jsonl", t0_mono_ns=int(str(header["t_mono_ns"])))
    assert log.unavailable is None
    assert [one.running for one in log.samples] == [0.0] * 6
    gaps = [b.at_s - a.at_s for a, b in zip(log.samples, log.samples[1:-1], strict=False)]
    assert sum(gaps) / len(gaps) == pytest.approx(0.05, rel=0.2)


def test_a_target_without_metrics_is_asked_once() -> None:
    with answering(lambda path: (404, "text/plain", b"no")) as url:
        assert [line["unavailable"] for line in sampled(url, 5)] == [
            f"{url}/metrics: answers 404, no metrics"
        ]
    with answering(lambda path: (200, "text/plain", b"up 1\n")) as url:
        (header,) = sampled(url, 5)
    assert header["unavailable"] == "it offers none of the metrics that are read here"


def test_a_target_that_falls_silent_leaves_events_and_comes_back() -> None:
    asked = iter(range(100))

    def answers(path: str) -> Answer:
        if next(asked) in (2, 3):
            return 503, "text/plain", b""
        return 200, "text/plain", OURS.encode()

    with answering(answers) as url:
        lines = sampled(url, 5)
    assert [line["type"] for line in lines] == [
        "header", "sample", "event", "event", "sample", "sample", "sample",
    ]  # fmt: skip
    assert lines[2]["error"] == f"{url}/metrics: answers 503, no metrics"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]\n", "a line of the log is an object"),
        ('{"type": "sample"}\n', "t_mono_ns is missing or no number"),
        ('{"type": "sample", "t_mono_ns": 1, "running": "many"}\n', "running: "),
        ('{"type": "header", "schema": "2.0"}\n', "schema '2.0' is unknown here"),
    ],
)
def test_a_line_that_is_none_of_the_logs(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "server.jsonl").write_text(text)
    with pytest.raises(RunDirError, match=r"server\.jsonl") as refused:
        read_server_log(tmp_path / "server.jsonl", t0_mono_ns=0)
    assert says in str(refused.value)


def test_a_log_without_samples_says_why(tmp_path: Path) -> None:
    path = tmp_path / "server.jsonl"
    absent = read_server_log(path, t0_mono_ns=0)
    assert absent.unavailable == "the target's /metrics were not sampled"
    path.write_text('{"type": "header", "schema": "1.0", "unavailable": "answers 404"}\n')
    assert read_server_log(path, t0_mono_ns=0).unavailable == "answers 404"
