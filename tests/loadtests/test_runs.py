"""Whole runs by Locust's own command, against real servers: what they leave, and how they end."""

import argparse
import json
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from loadtests.options import add_options
from loadtests.plan import OptionError, plan_of
from loadtests.preflight import TargetError, look
from slo.record import Failure
from slo.rundir import read_json, read_schedule
from tests.loadtests.fault_server import fault_server
from tests.loadtests.locust_runs import (
    SHORT,
    adds_up,
    ended,
    load,
    load_all,
    locust,
    wait_for_records,
)
from tests.loadtests.loops import plan
from tests.serving import running_target


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
    results = load_all(outs, options, options)
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


def test_a_run_that_is_stopped_keeps_what_it_has(faults: str, tmp_path: Path) -> None:
    options = ("--api-path", "/half_hang", "--rate", "20/s", "--duration", "60s",
               "--timeout", "20s", "--reasoning", "none")  # fmt: skip
    ways = {
        "interrupted": (signal.SIGINT, ("--host", f"{faults}/a")),
        "interrupted too": (signal.SIGINT, ("--host", f"{faults}/b", "--processes", "2")),
        "terminated": (signal.SIGTERM, ("--host", f"{faults}/c", "--processes", "2")),
    }
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(locust(tmp_path / name, *options, *more))
            for name, (_, more) in ways.items()
        }
        for name, process in running.items():
            wait_for_records(tmp_path / name, 5)
            process.send_signal(ways[name][0])
        results = {name: ended(process, tmp_path / name) for name, process in running.items()}
    for name, result in results.items():
        assert result.code == 4
        run = result.run
        assert not run.finished
        assert run.stopped is not None
        assert run.stopped.why == name.split()[0]
        assert adds_up(run)
        kinds = Counter(record.error for record in result.records)
        assert kinds[None] == run.counts.completed > 0
        assert kinds[Failure.CANCELLED] == run.counts.failed > 0
        assert result.stdout.splitlines()[-1] == str(result.out)


def test_ceilings_end_a_run_early_and_well(target: str, tmp_path: Path) -> None:
    options = ("--host", target, *SHORT, "--duration", "2s")
    few, tokens = load_all(
        [tmp_path / "few", tmp_path / "tokens"],
        (*options, "--max-requests", "7", "--processes", "2"),
        (*options, "--max-total-tokens", "9000"),
    )
    for result, words in ((few, "--max-requests 7"), (tokens, "--max-total-tokens 9000")):
        run = result.run
        assert (result.code, run.finished) == (0, True)
        assert adds_up(run)
        assert run.stopped is not None
        assert words in run.stopped.why
    assert few.run.counts.sent == 7
    spent = sum((r.prompt_tokens or 0) + (r.output_tokens or 0) for r in tokens.records)
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
        (("--arrival", "poison"), "'poison' is no arrival process"),
        (("--arrival", "ramp:1/s,2/s", "--rate", "3/s"), "leave --rate away"),
        (("--max-tokens", "8", "--min-tokens", "30"), "--min-tokens is above --max-tokens, 8"),
        (("--arrival", "spike:9/s,30s"), "no shorter than --duration"),
        (("--arrival", "replay:/none.csv"), "/none.csv: cannot be read"),
        (("--prompts", "/none.csv"), "/none.csv: cannot be read"),
        (("--input-class", "99"), "a prompt has 100 to 200000 tokens"),
        (("--shared-prefix", "50%"), "leaves 64 of 128 tokens for the question"),
        (("--shared-prefix", "150%"), "not within 0% to 100%"),
        (
            ("--prompts", "p.csv", "--mix", "math=1"),
            "--mix (or slo.yaml's load): --prompts says what is asked",
        ),
        (
            ("--prompts", "p.csv", "--input-class", "512"),
            "--input-class (or slo.yaml's load): --prompts says",
        ),
        (
            ("--prompts", "p.csv", "--shared-prefix", "50%"),
            "--shared-prefix: --prompts says",
        ),
        (
            ("--arrival", "replay:t.csv", "--input-class", "512"),
            "--input-class (or slo.yaml's load): the trace says",
        ),
        (
            ("--arrival", "replay:t.csv", "--max-tokens", "9"),
            "--max-tokens (or slo.yaml's load): the trace says",
        ),
        (
            ("--arrival", "replay:t.csv", "--turns", "2"),
            "--turns: each row of a trace",
        ),
        (("--tags", "math"), "--tags, --exclude-tags: there is one task"),
        (("--think-time", "2s"), "--think-time: a session has one turn"),
        (("--tokenizer", "/none"), "no such file and no such model"),
        (("--max-in-flight", "1"), "--max-in-flight 1"),
        (("--api-key-env", "NO_SUCH_KEY"), "NO_SUCH_KEY"),
        (("--host", "localhost:8000"), "write http://HOST:PORT"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(
    options: tuple[str, ...],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="http://127.0.0.1:9")
    parser.add_argument("--run-time")
    parser.add_argument("--tags")
    add_options(parser)
    try:
        parsed = parser.parse_args([*options, "--seed", "1"])
        with pytest.raises(OptionError) as error:
            plan_of(parsed, parsed.host, 2)
        said = str(error.value)
    except SystemExit:
        said = capsys.readouterr().err
    assert words in said


def test_a_run_that_cannot_begin_is_one_line_and_exit_2(faults: str, tmp_path: Path) -> None:
    cases = {
        "-t": (("-t", "5s", "--processes", "2"), "say --duration"),
        "refused": (("--host", "http://127.0.0.1:9"), "http://127.0.0.1:9/v1/chat/completions"),
        "workers": (("--host", "http://127.0.0.1:9", "--processes", "2"), "completions: refused"),
        "html": (("--api-path", "/html"), f"{faults}/html: not_a_stream: text/html: <html>"),
        "rate": (("--rate=-3/s",), "--rate: '-3/s' is not above 0"),
    }
    results = load_all(
        [tmp_path / name for name in cases],
        *(("--host", faults, *options) for options, _ in cases.values()),
    )
    for result, (_, words) in zip(results, cases.values(), strict=True):
        assert result.code == 2, result.stderr
        [line] = result.complaint
        assert words in line
        assert not result.out.exists()


@pytest.mark.parametrize(
    ("path", "words"),
    [("/nowhere", "HTTP 404"), ("/html", "text/html: <html>"), ("/not_http", "not_http")],
)
def test_a_target_that_is_no_api_is_refused_before_the_run(
    faults: str, path: str, words: str
) -> None:
    with pytest.raises(TargetError) as error:
        look(plan(faults, path))
    assert f"{faults}{path}" in str(error.value)
    assert words in str(error.value)
    assert "expected HTTP 200" in str(error.value)


def test_a_second_run_into_one_directory_is_refused_unless_forced(
    target: str, tmp_path: Path
) -> None:
    out, copy = tmp_path / "run", tmp_path / "copy"
    options = ("--host", target, *SHORT, "--max-requests", "1", "--duration", "0.2s")
    assert load(out, *options).code == 0
    shutil.copytree(out, copy)
    refused, forced = load_all([out, copy], options, (*options, "--force"))
    assert refused.code == 2
    assert str(out) in refused.complaint[0]
    assert forced.code == 0
    assert (copy / "run.json").read_text() != (out / "run.json").read_text()
