"""Whole runs by Locust's own command, against real servers: what they leave, and how they end."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from slo.record import Failure, Record
from slo.rundir import Run, read_json, read_records, read_run, read_schedule
from tests.loadtests.fault_server import fault_server
from tests.serving import ROOT, running_target

SHORT = ("--rate", "20/s", "--duration", "2s", "--warmup", "1s", "--max-tokens", "8")


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    stdout: str
    stderr: str
    out: Path

    @property
    def run(self) -> Run:
        return read_run(self.out)

    @property
    def records(self) -> list[Record]:
        return sorted(read_records(self.out), key=lambda record: record.seq)

    @property
    def complaint(self) -> list[str]:
        assert "Traceback" not in self.stderr
        return [line for line in self.stderr.splitlines() if line.startswith("locust: ")]


@contextmanager
def locust(out: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "locust", "-f", "loadtests/locustfile.py", "--headless"]
    command += ["--only-summary", "--out", str(out), *options]
    if "--processes" in options:
        with socket.socket() as free:  # two masters at once must not meet at one port
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        command += ["--master-bind-port", port, "--master-port", port]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children():
                child.kill()
            process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], out: Path, timeout_s: float = 60.0) -> Ended:
    stdout, stderr = process.communicate(timeout=timeout_s)
    return Ended(process.returncode, stdout, stderr, out)


def load(out: Path, *options: str) -> Ended:
    with locust(out, *options) as process:
        return ended(process, out)


def wait_for_records(out: Path, count: int) -> None:
    by = time.monotonic() + 30
    while time.monotonic() < by:
        path = out / "requests.jsonl"
        if path.exists() and len(path.read_bytes().splitlines()) >= count:
            return
        time.sleep(0.05)
    raise AssertionError(f"{out} never had {count} records")


def adds_up(run: Run) -> bool:
    counts = run.counts
    ends = counts.completed + counts.failed + counts.dropped + counts.not_started
    return counts.scheduled == ends


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with running_target("--engine", "sim") as url:
        yield url


@pytest.fixture(scope="module")
def faults() -> Iterator[str]:
    with fault_server() as (url, _):
        yield url


def test_a_run_leaves_its_directory_and_says_where(target: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = load(out, "--host", target, *SHORT, "--seed", "4", "--store-answers", "--label", "x")
    assert result.code == 0, result.stderr
    assert result.stdout.splitlines()[-1] == str(out)
    run, records, schedule = result.run, result.records, list(read_schedule(out))
    assert run.finished
    assert run.stopped is None
    assert (run.seed, run.label, run.arrival, run.model) == (4, "x", "poisson", "sim")
    assert len(schedule) == run.counts.scheduled == run.counts.completed == len(records)
    assert adds_up(run)
    for arrival, record in zip(schedule, records, strict=True):
        for name in ("seq", "due_s", "phase", "scenario", "lang", "input_class", "prompt_id"):
            assert getattr(arrival, name) == getattr(record, name)
    assert {record.phase for record in records} == {"warmup", "measured"}
    assert all(record.output_tokens == 8 for record in records)
    assert all(record.tokens_from == "usage" for record in records)
    assert run.reasoning == "tag"
    document = read_json(out / "target.json")
    assert document["start"]["engine"] == document["end"]["engine"] == "sim"
    assert document["models"][0]["id"] == "sim"
    answers = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    assert {answer["seq"] for answer in answers} == {record.seq for record in records}
    assert (out / "latency.hlog").stat().st_size > 500
    assert run.lateness is not None


def test_two_workers_lose_nothing_and_send_the_same_schedule(target: str, tmp_path: Path) -> None:
    options = ("--host", target, *SHORT, "--seed", "4", "--processes", "2")
    outs = [tmp_path / f"run{at}" for at in range(2)]
    with locust(outs[0], *options) as a, locust(outs[1], *options) as b:
        results = [ended(a, outs[0]), ended(b, outs[1])]
    for result in results:
        assert result.code == 0, result.stderr
        run, records = result.run, result.records
        assert run.finished
        assert adds_up(run)
        by_worker = Counter(record.worker for record in records)
        assert [by_worker[worker.index] for worker in run.workers] == [
            worker.records for worker in run.workers
        ]
        assert sum(by_worker.values()) == run.counts.completed == run.counts.scheduled
        assert all(record.worker == record.seq % 2 for record in records)
    first, second = (list(read_schedule(out)) for out in outs)
    assert first == second


def test_a_killed_worker_makes_the_run_incomplete_and_is_named(target: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ("--host", target, "--rate", "20/s", "--duration", "60s", "--max-tokens", "8")
    with locust(out, *options, "--processes", "2") as process:
        wait_for_records(out, 20)
        victim = psutil.Process(process.pid).children()[1]
        victim.kill()
        result = ended(process, out)
    run = result.run
    assert result.code == 4
    assert not run.finished
    assert run.stopped is not None
    [lost] = [worker for worker in run.workers if worker.records is None]
    assert lost.name.endswith(f":{victim.pid}")
    assert f"worker {lost.index} ({lost.name}) was lost" in run.stopped.why
    missing = run.counts.scheduled - len(result.records) - run.counts.not_started
    assert f"{missing} of {run.counts.scheduled} arrivals have no record" in run.stopped.why
    assert missing > 0


@pytest.mark.parametrize(
    ("which", "processes"),
    [
        (signal.SIGINT, ()),
        (signal.SIGINT, ("--processes", "2")),
        (signal.SIGTERM, ("--processes", "2")),
    ],
)
def test_a_run_that_is_stopped_keeps_what_it_has(
    faults: str, tmp_path: Path, which: signal.Signals, processes: tuple[str, ...]
) -> None:
    out = tmp_path / "run"
    options = ("--host", faults, "--api-path", "/half_hang", "--rate", "20/s", "--duration", "60s")
    with locust(out, *options, "--timeout", "20s", "--reasoning", "none", *processes) as process:
        wait_for_records(out, 5)
        process.send_signal(which)
        result = ended(process, out)
    assert result.code == 4
    run = result.run
    assert not run.finished
    assert run.stopped is not None
    assert run.stopped.why in ("interrupted", "terminated")
    assert adds_up(run)
    kinds = Counter(record.error for record in result.records)
    assert kinds[None] == run.counts.completed > 0
    assert kinds[Failure.CANCELLED] == run.counts.failed > 0
    assert result.stdout.splitlines()[-1] == str(out)


def test_ceilings_end_a_run_early_and_well(target: str, tmp_path: Path) -> None:
    options = ("--host", target, *SHORT)
    result = load(tmp_path / "few", *options, "--max-requests", "7", "--processes", "2")
    run = result.run
    assert (result.code, run.finished, run.counts.sent) == (0, True, 7)
    assert adds_up(run)
    assert run.stopped is not None
    assert "--max-requests 7" in run.stopped.why
    result = load(tmp_path / "tokens", *options, "--max-total-tokens", "9000")
    run = result.run
    assert (result.code, run.finished) == (0, True)
    assert adds_up(run)
    assert run.stopped is not None
    assert "--max-total-tokens 9000" in run.stopped.why
    spent = sum((r.prompt_tokens or 0) + (r.output_tokens or 0) for r in result.records)
    assert 7000 < spent <= 9000


def test_failed_requests_do_not_change_the_exit_code(faults: str, tmp_path: Path) -> None:
    result = load(
        tmp_path / "run", "--host", faults, "--api-path", "/half", "--reasoning", "none", *SHORT
    )
    run = result.run
    assert (result.code, run.finished) == (0, True)
    assert adds_up(run)
    kinds = Counter(record.error for record in result.records)
    assert kinds[Failure.HTTP_STATUS] == run.counts.failed > 10
    assert kinds[None] == run.counts.completed > 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--rate=-3/s",), "--rate: '-3/s' is not above 0"),
        (("--mix", "maths=1"), "'maths' is no scenario; allowed: math, code"),
        (("-t", "5s"), "say --duration"),
        (("-t", "5s", "--processes", "2"), "say --duration"),
        (("--max-in-flight", "1", "--processes", "2"), "--max-in-flight 1"),
        (("--api-key-env", "NO_SUCH_KEY"), "NO_SUCH_KEY"),
        (("--host", "localhost:8000"), "write http://HOST:PORT"),
        (("--host", "http://127.0.0.1:9"), "http://127.0.0.1:9/v1/chat/completions: refused"),
        (("--host", "http://127.0.0.1:9", "--processes", "2"), "chat/completions: refused"),
    ],
)
def test_wrong_options_and_targets_are_one_line_and_exit_2(
    faults: str, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    result = load(tmp_path / "run", "--host", faults, *options)
    assert result.code == 2
    [line] = result.complaint
    assert words in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("path", "words"),
    [("/nowhere", "HTTP 404"), ("/html", "text/html: <html>"), ("/not_http", "not_http")],
)
def test_a_target_that_is_no_api_is_refused_before_the_run(
    faults: str, tmp_path: Path, path: str, words: str
) -> None:
    result = load(tmp_path / "run", "--host", faults, "--api-path", path)
    assert result.code == 2
    [line] = result.complaint
    assert f"{faults}{path}" in line
    assert words in line
    assert "expected HTTP 200" in line
    assert not (tmp_path / "run").exists()


def test_a_second_run_into_one_directory_is_refused(target: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ("--host", target, "--max-requests", "1", *SHORT)
    assert load(out, *options).code == 0
    first = (out / "run.json").read_text()
    result = load(out, *options)
    assert result.code == 2
    assert str(out) in result.complaint[0]
    assert (out / "run.json").read_text() == first
    assert load(out, *options, "--force").code == 0
    assert (out / "run.json").read_text() != first
