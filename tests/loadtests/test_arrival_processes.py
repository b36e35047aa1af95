"""Arrival processes: rates that change, bursts, traces, and what is refused."""

from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from statistics import fmean, pvariance

import pytest

from loadtests.schedule import Load, arrivals, due_times, sessions
from loadtests.trace import trace_rows
from slo.arrival import parse
from tests.loadtests.loops import LOAD

LONG = replace(LOAD, rate_per_s=20.0, warmup_s=10.0, duration_s=200.0)

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:47.6805900,396,109
2023-11-16 18:15:46.6805900,4808,10
2023-11-16 18:15:50.1805901,12,16
"""
MOONCAKE = """{"timestamp": 0, "input_length": 6755, "output_length": 500, "hash_ids": [46, 47]}
{"timestamp": 3000, "input_length": 7319, "output_length": 490, "hash_ids": [46, 48]}
"""


def between(load: Load, start_s: float, end_s: float) -> int:
    return sum(start_s <= due_s < end_s for due_s in due_times(load))


@pytest.mark.parametrize("shape", [0.25, 4.0])
def test_gamma_gaps_have_the_mean_of_the_rate_and_the_variance_of_the_shape(shape: float) -> None:
    due = list(due_times(replace(LONG, arrival=f"gamma:{shape}")))
    gaps = [(later - earlier) * 20.0 for earlier, later in pairwise(due)]
    assert fmean(gaps) == pytest.approx(1.0, abs=0.15)
    assert pvariance(gaps) * shape == pytest.approx(1.0, abs=0.25)


def test_a_ramp_goes_evenly_from_one_rate_to_the_other() -> None:
    load = replace(LONG, arrival="ramp:10/s,30/s")
    assert between(load, 0, 10) == pytest.approx(100, abs=40)
    quarters = [between(load, start, start + 50) for start in (10, 60, 110, 160)]
    for count, mean in zip(quarters, (625, 875, 1125, 1375), strict=True):
        assert count == pytest.approx(mean, abs=4 * mean**0.5)
    assert parse("ramp:10/s,30/s").mean_rate(0.0, 200.0) == 20.0


def test_steps_divide_the_window_evenly() -> None:
    load = replace(LONG, arrival="steps:2/s,20/s,8/s,30/s")
    for step, rate in enumerate((2, 20, 8, 30)):
        count = between(load, 10 + 50 * step, 60 + 50 * step)
        assert count == pytest.approx(50 * rate, abs=4 * (50 * rate) ** 0.5)


def test_a_spike_stands_in_the_middle_of_the_window() -> None:
    load = replace(LONG, rate_per_s=5.0, arrival="spike:100/s,20s")
    assert between(load, 100, 120) == pytest.approx(2000, abs=180)
    assert between(load, 10, 100) == pytest.approx(450, abs=85)
    assert between(load, 120, 210) == pytest.approx(450, abs=85)


@pytest.mark.parametrize("text", ["serial", "concurrency:16"])
def test_a_closed_loop_has_no_due_times_and_no_end(text: str) -> None:
    load = replace(LONG, arrival=text)
    begun = list(islice(sessions(load), 500))
    assert {session[0].due_s for session in begun} == {None}
    assert load.process.slots == (16 if ":" in text else 1)


def test_an_azure_trace_is_read_in_the_order_of_its_times(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(AZURE)
    load = replace(LONG, arrival=f"replay:{path}", warmup_s=1.0)
    found = [(a.due_s, a.input_class, a.max_tokens, a.phase) for a in arrivals(load)]
    assert found == [
        (0.0, "4808", 10, "warmup"),
        (1.0, "396", 109, "measured"),
        (3.5, "100", 16, "measured"),  # no task of ours is shorter
    ]


def test_a_mooncake_trace_is_read_and_stretched_to_a_rate(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.jsonl"
    path.write_text(MOONCAKE)
    assert [(row.at_s, row.input_tokens, row.output_tokens) for row in trace_rows(str(path))] == [
        (0.0, 6755, 500),
        (3.0, 7319, 490),
    ]
    load = replace(LONG, arrival=f"replay:{path}", rate_per_s=0.5, stretched=True)
    assert [arrival.due_s for arrival in arrivals(load)] == [0.0, 2.0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no request"),
        ('{"timestamp": 1}\n', ":1: no contexttokens"),
        (
            AZURE + "2023-11-16 18:15:50,x,16\n",
            ":5: input_tokens x is no whole number of 0 or more",
        ),
        (AZURE + "2023-11-16 18:15:50,5,-1\n", ":5: output_tokens -1 is no whole number"),
        (MOONCAKE.replace("6755", "1e400"), ":1: input_tokens inf is no whole number"),
        ('{"timestamp": 1e400, "input_length": 1, "output_length": 1}', ":1: timestamp inf"),
        ("[1]\n{}\n", ":2: no timestamp"),
    ],
)
def test_what_is_no_trace_is_named_by_file_and_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        trace_rows(str(path))


@pytest.mark.parametrize(
    "text",
    ["poison", "gamma", "gamma:0", "ramp:1/s", "ramp:1/s,2/s,3/s", "steps:", "steps:-1/s,2/s",
     "spike:3/s", "spike:3/s,x", "concurrency:0", "concurrency:1.5", "serial:2", "replay:"],
)  # fmt: skip
def test_what_is_no_process_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="allowed: poisson, constant, gamma:SHAPE"):
        parse(text)


def test_free_lengths_are_drawn_in_equal_parts() -> None:
    load = replace(LONG, input_class="128,200-300", duration_s=100.0)
    lengths = Counter(int(arrival.input_class) for arrival in arrivals(load))
    assert lengths[128] == pytest.approx(1100, abs=100)
    others = {length for length in lengths if length != 128}
    assert min(others) == 200
    assert max(others) == 300
    assert len(others) > 95
