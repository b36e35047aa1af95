"""latency.hlog: what we write, any HDR tool reads, and it agrees with requests.jsonl."""

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from slo.buckets import BUCKETS, DIGITS, HIGHEST_US, LOWEST_US, bucket_of, highest_us, lowest_us
from slo.histograms import Counts, decode, encode, merged, percentile_rank, read_hlog, value_at_s
from slo.latencies import e2e_s, ttft_s
from slo.record import Failure
from slo.rundir import LATENCY, RunDirError, read_records
from tests.slo.make_run import make_run

TESTS = Path(__file__).parent.parent


@pytest.fixture
def run(tmp_path: Path) -> Path:
    ttft = np.random.default_rng(1).lognormal(-1.5, 0.8, 200).tolist()
    return make_run(tmp_path / "run", ttft, scenarios=("math", "code"), failures=7, warmup=20)


def test_buckets_are_those_of_hdrh() -> None:
    histogram = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)
    assert histogram.counts_len == BUCKETS
    us = np.unique(np.geomspace(1, HIGHEST_US, 5000).astype(np.int64))
    us = np.concatenate([[0], us, us[us < HIGHEST_US] + 1, [2047, 2048, 4095, 4096]])
    ours = bucket_of(us / 1e6)
    assert ours.tolist() == [histogram._counts_index_for(int(value)) for value in us]
    assert highest_us(ours).tolist() == [histogram.get_highest_equivalent_value(v) for v in us]
    assert lowest_us(ours).tolist() == [histogram.get_lowest_equivalent_value(v) for v in us]


def test_values_out_of_range_count_at_its_ends_and_are_not_lost() -> None:
    ends = bucket_of(np.array([-0.001, 0.0, 3600.0, 7200.0]))
    assert ends.tolist() == [0, 0, ends[2], ends[2]]


@pytest.mark.parametrize(
    ("n", "percentile", "rank"),
    [(31, 95, 30), (20, 95, 19), (100, 99, 99), (100, 99.9, 100), (1, 50, 1), (1000, 95, 950)],
)
def test_rank_is_the_ceiling(n: int, percentile: float, rank: int) -> None:
    assert percentile_rank(n, percentile) == rank


def test_a_blob_reads_back_in_hdrh_and_here() -> None:
    values = np.random.default_rng(2).lognormal(-1, 1, 3000)
    index, count = np.unique(bucket_of(values), return_counts=True)
    blob = encode(Counts(index, count))
    theirs = HdrHistogram.decode(blob)
    assert theirs.get_total_count() == 3000
    ours = decode(blob)
    assert (ours.index == index).all()
    assert (ours.count == count).all()


def test_hdrh_reads_our_log_tags_times_and_counts(run: Path) -> None:
    ours = read_hlog(run / LATENCY)
    reader = HistogramLogReader(str(run / LATENCY), HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS))
    seen = 0
    while (interval := reader.get_next_interval_histogram()) is not None:
        second = round(interval.get_start_time_stamp() / 1e3 - 1_800_000_000)
        counts = ours[interval.get_tag(), second]
        assert counts.total == interval.get_total_count()
        assert value_at_s(counts, 100) == interval.get_max_value() / 1e6
        seen += 1
    reader.input_file.close()
    assert seen == len(ours) > 100


def test_hdr_histogram_js_reads_our_log_alike(run: Path) -> None:
    node = shutil.which("node")
    if node is None or not (TESTS / "node_modules" / "hdr-histogram-js").is_dir():
        pytest.skip("needs node and hdr-histogram-js: npm install --prefix tests")
    script = TESTS / "slo" / "read_hlog.js"
    seen = subprocess.run(
        [node, script, run / LATENCY], capture_output=True, text=True, check=True
    ).stdout
    theirs = [json.loads(line) for line in seen.splitlines()]
    ours = read_hlog(run / LATENCY)
    assert len(theirs) == len(ours)
    for interval in theirs:
        counts = ours[interval["tag"], round(interval["start_ms"] / 1e3 - 1_800_000_000)]
        assert interval["total"] == counts.total
        assert interval["p95"] / 1e6 == value_at_s(counts, 95)


def test_requests_and_histograms_agree(run: Path) -> None:
    records = list(read_records(run))
    intervals = read_hlog(run / LATENCY)
    for scenario in ("math", "code"):
        mine = [record for record in records if record.scenario == scenario]
        failed = sum(c.total for (tag, _), c in intervals.items() if tag == f"{scenario}.failed")
        assert failed == sum(not record.completed for record in mine)
        for metric, latency in (("ttft", ttft_s), ("e2e", e2e_s)):
            exact = sorted(v for record in mine if (v := latency(record)) is not None)
            tag = f"{scenario}.{metric}"
            counts = merged(c for (t, _), c in intervals.items() if t == tag)
            assert counts.total == len(exact)
            p95 = exact[percentile_rank(len(exact), 95) - 1]
            assert p95 - 1e-6 <= value_at_s(counts, 95) <= p95 * 1.001 + 1e-6


def test_a_value_lies_in_the_second_in_which_its_request_was_due(tmp_path: Path) -> None:
    # Four requests a second, each of which takes 5 s: they lie where they were due.
    run = make_run(tmp_path / "run", [5.0] * 12, rate_per_s=4, failures={5: Failure.RESET})
    intervals = read_hlog(run / LATENCY)
    per_second = Counter({s: c.total for (tag, s), c in intervals.items() if tag == "math.ttft"})
    assert per_second == {0: 4, 1: 3, 2: 4}
    assert intervals["math.failed", 1].total == 1
    assert intervals["math.itl", 0].total == 4 * 4


def test_a_run_without_records_has_an_empty_log(tmp_path: Path) -> None:
    assert read_hlog(make_run(tmp_path / "run", []) / LATENCY) == {}


def test_a_dropped_request_is_no_failure_of_the_server(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0.1] * 10, failures={3: Failure.DROPPED})
    assert not [tag for tag, _ in read_hlog(run / LATENCY) if tag.endswith(".failed")]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda text: text[:-40], "cut off"),
        (lambda text: text[:-40] + "\n", "cannot be decoded"),
        (lambda text: text + "Tag=math.ttft,0.000,1.000,1.000,AAAA\n", "cannot be decoded"),
        (lambda text: text + "hello\n", "no line of a histogram log"),
        (lambda text: text + "x" * 2_000_000, "cut off or far too long"),
    ],
)
def test_a_spoilt_log_is_refused_with_file_and_line(
    run: Path, spoil: Callable[[str], str], says: str
) -> None:
    path = run / LATENCY
    path.write_text(spoil(path.read_text()))
    with pytest.raises(RunDirError, match=rf"latency\.hlog:\d+: .*{says}"):
        read_hlog(path)


def test_a_blob_that_unpacks_without_end_is_refused() -> None:
    import base64
    import struct
    import zlib

    bomb = zlib.compress(b"\0" * 100_000_000)
    blob = base64.b64encode(struct.pack(">II", 0x1C849314, len(bomb)) + bomb).decode()
    with pytest.raises(ValueError, match="more than a histogram can hold"):
        decode(blob)


def test_a_histogram_of_another_range_is_refused() -> None:
    other = HdrHistogram(1, 1_000_000, 2)
    other.record_value(5)
    with pytest.raises(ValueError, match="not ours"):
        decode(other.encode().decode())
