"""`slo run` and `slo check` as a person runs them: the real command, real Locust, a real server."""

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from slo import rundir
from tests.cli.conftest import SLO, Answer, answering, says_one_line, slo
from tests.cli.processes import children_of, is_running
from tests.serving import running_target

QUICK = ("--rate", "10/s", "--duration", "3s", "--warmup", "1s", "--arrival", "constant")
SHORT = ("--max-tokens", "8", "--seed", "7", "--sidecar", "off")

EASY = """version: 1
service: sim
load: {rate: 10/s, arrival: constant, duration: 3s, warmup: 1s, mix: {math: 0.6, code: 0.4}}
objectives:
  - {metric: ttft, percentile: 75, max: 2s}
"""


@pytest.fixture(scope="module")
def easy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A slo.yaml whose one objective 30 requests can decide."""
    path = tmp_path_factory.mktemp("slo") / "easy.yaml"
    path.write_text(EASY)
    return path


@pytest.fixture(scope="module")
def finished(sim: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a complete run of 40 requests, the last line that `slo run` printed."""
    place = tmp_path_factory.mktemp("work")
    done = slo("run", "--target", sim, *QUICK, *SHORT, "--label", "first", cwd=place)
    assert done.returncode == 0, done.stderr
    directory = place / done.stdout.splitlines()[-1]
    assert directory.parent == place / "runs"
    assert directory.name.endswith("-first-10qps")
    return directory


def broken(finished: Path, tmp_path: Path, name: str, cut: int | None) -> Path:
    """A copy of the run with a file missing, or cut off after so many bytes."""
    directory = tmp_path / "broken"
    shutil.copytree(finished, directory)
    if cut is None:
        (directory / name).unlink()
    else:
        (directory / name).write_bytes((directory / name).read_bytes()[:cut])
    return directory


def test_a_run_leaves_its_directory_with_the_model_the_target_has(finished: Path) -> None:
    run = rundir.read_run(finished)
    assert run.finished
    assert (run.counts.scheduled, run.counts.completed) == (40, 40)
    assert run.model == "sim"
    assert (run.rate_per_s, run.duration_s, run.warmup_s, run.seed) == (10, 3, 1, 7)
    assert (finished / "locust.log").exists()
    assert len(list(rundir.read_records(finished))) == 40


def test_check_says_pass_and_leaves_the_verdict_and_the_reports(
    finished: Path, easy: Path, tmp_path: Path
) -> None:
    asked = {name: tmp_path / name for name in ("v.json", "j.xml", "m.md", "h.html")}
    copies = zip(("--json", "--junit", "--markdown", "--html"), asked.values(), strict=True)
    flags = [word for pair in copies for word in pair]
    done = slo("check", finished, "--slo", easy, *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout
    assert "ttft p75" in done.stdout
    assert json.loads((finished / "verdict.json").read_text())["result"] == "PASS"
    assert (finished / "report.html").read_text().startswith("<!doctype html>")
    for path, name in zip(
        asked.values(), ("verdict.json", "junit.xml", "report.md", "report.html"), strict=True
    ):
        assert path.read_text() == (finished / name).read_text()


def test_a_missed_target_ends_with_1_and_an_undecided_one_with_3(
    finished: Path, easy: Path, tmp_path: Path
) -> None:
    hard, undecided = tmp_path / "hard.yaml", tmp_path / "undecided.yaml"
    hard.write_text(EASY.replace("max: 2s", "max: 1ms"))
    undecided.write_text(EASY.replace("percentile: 75", "percentile: 99"))
    assert slo("check", finished, "--slo", hard, cwd=tmp_path).returncode == 1
    done = slo("check", finished, "--slo", undecided, cwd=tmp_path)
    assert done.returncode == 3, done.stdout
    assert "more" in done.stdout


def test_a_run_under_another_load_than_slo_yaml_asks_for_is_invalid(
    finished: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(EASY.replace("rate: 10/s", "rate: 20/s"))
    assert slo("check", finished, "--slo", other, cwd=tmp_path).returncode == 4


def test_report_draws_again_from_the_stored_verdict(
    finished: Path, easy: Path, tmp_path: Path
) -> None:
    slo("check", finished, "--slo", easy, cwd=tmp_path)
    drawn = (finished / "report.html").read_text()
    (finished / "report.html").unlink()
    done = slo("report", finished, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{finished / 'report.html'}\n")
    assert (finished / "report.html").read_text() == drawn


def test_with_slo_the_load_comes_from_the_file_and_the_code_from_the_verdict(
    finished: Path, sim: str, easy: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "again"
    shutil.copytree(finished, directory)
    options = ("--slo", easy, "--workers", "2", "--out", directory, "--force")
    done = slo("run", "--target", sim, *options, *SHORT, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout
    assert done.stdout.splitlines()[-1] == str(directory)
    run = rundir.read_run(directory)
    assert run.id != rundir.read_run(finished).id
    assert (run.rate_per_s, run.duration_s, run.arrival) == (10, 3, "constant")
    assert len(run.workers) == 2
    assert run.counts.completed == 40
    assert (directory / "verdict.json").exists()


def test_a_mistake_in_slo_yaml_is_said_before_any_load(sim: str, tmp_path: Path) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text(EASY.replace("objectives:", "objectivs:"))
    done = slo("run", "--target", sim, "--slo", path, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{path}:4:1: objectivs: is no key; did you mean objectives?" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("max: 2s", "max: 2s, maxx: 3s", (":5:", "objectives[0].maxx", "did you mean max?")),
        ("percentile: 75", "p95: 2s", (":5:", "objectives[0].p95", "write percentile: 95")),
        ("ttft,", "ttft_p95,", (":5:", "objectives[0].metric", "percentile: 95")),
    ],
)
def test_check_and_validate_name_the_line_and_the_key(
    finished: Path, tmp_path: Path, old: str, new: str, parts: tuple[str, ...]
) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text(EASY.replace(old, new))
    for done in (
        slo("check", finished, "--slo", path, cwd=tmp_path),
        slo("validate", path, cwd=tmp_path),
    ):
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        for part in (str(path), *parts):
            assert part in done.stderr


def test_validate_says_what_it_understood_and_goes_on_after_a_mistake(
    easy: Path, tmp_path: Path
) -> None:
    done = slo("validate", easy, tmp_path / "none.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "at 10.0/s, arrivals constant" in done.stdout
    assert "ttft p75 <= 2s: all requests, gate" in done.stdout
    assert "none.yaml: cannot be read: No such file or directory" in done.stderr


@pytest.mark.parametrize(
    ("option", "parts"),
    [
        (("--rate", "-3/s"), ("--rate", "'-3/s'", "more than 0/s")),
        (("--duration", "soon"), ("--duration", "'soon'", "420ms, 30s")),
        (("--workers", "0"), ("--workers", "'0'", "1 to ")),
        (("--arrival", "bursty"), ("--arrival", "'bursty'", "poisson, constant")),
        (("--mix", "math=x"), ("--mix", "math=0.6,code=0.4")),
        (("--mix", "math=nan"), ("--mix", "'math=nan'", "0 or more")),
        (("--mix", "math=1,math=2"), ("--mix", "names math twice")),
        (("--rate", "1e400/s"), ("--rate", "'1e400/s'", "too large")),
        (("--rate", "100000/s", "--duration", "1h"), ("--rate", "3.6e+08 requests", "10,000,000")),
        (("--duration", "1e30s"), ("--duration", "'1e30s'", "10,000h or less")),
        (("--workers", "100000"), ("--workers", "'100000'", "1 to ")),
        (("--sidecar", "maybe"), ("--sidecar", "'maybe'", "local, off, http://HOST:PORT")),
        (("--processes", "2"), ("No such option", "--processes")),
        (("--target", "localhost:8000"), ("--target", "http://HOST:PORT")),
        (("--target", "http://127.0.0.1:9/v1"), ("--target", "leave /v1 away")),
        (("--target", "http://[::1:80"), ("--target", "'http://[::1:80'", "[::1]")),
        (("--target", "http://127.0.0.1:99999"), ("--target", "1 to 65535")),
        (("--target", "http://u:secret@127.0.0.1:9"), ("--target", "(127.0.0.1:9)", "--api-key-")),
        (("--target", "http://127.0.0.1:9?a=1"), ("--target", "a query or a fragment")),
        (("--api-key-env", "TAILGATE_NO_KEY"), ("--api-key-env", "TAILGATE_NO_KEY")),
    ],
)
def test_a_wrong_option_is_one_line_that_says_what_is_allowed(
    tmp_path: Path, option: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    done = slo("run", "--target", "http://127.0.0.1:9", *QUICK, *option, cwd=tmp_path)
    says_one_line(done, 2, "slo run: ", *parts)
    assert not list(tmp_path.rglob("*.json*"))


def test_a_rate_must_come_from_somewhere(tmp_path: Path) -> None:
    done = slo("run", "--target", "http://127.0.0.1:9", cwd=tmp_path)
    says_one_line(done, 2, "slo run: --rate is missing; give it, or a --slo file")


def test_a_target_that_does_not_listen_is_named_after_the_wait(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        done = slo("run", "--target", url, *QUICK, "--ready-timeout", "0.5s", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"waiting for {url}: nothing listens there",
        f"slo run: {url}: nothing listens there (waited 0.5 s)",
    ]
    assert not list((tmp_path / "runs").iterdir())


NO_API: Answer = (404, "application/json", b'{"detail":"Not Found"}')


def _models(name: str) -> Answer:
    return 200, "application/json", f'{{"data":[{{"id":"{name}"}}]}}'.encode()


MODELS = _models("m")


@pytest.mark.parametrize(
    ("answers", "parts"),
    [
        ({}, ("/v1/models: answers 404",)),
        ({"/v1/models": MODELS}, ("/v1/chat/completions", "404")),
        ({"/v1/models": _models(r"a\u0000b")}, ("/v1/models", r"'a\x00b' is no name", "--model")),
        ({"/v1/models": _models("m" * 500_000)}, ("/v1/models", "is no name", "--model")),
        (
            {"/v1/models": MODELS, "/v1/chat/completions": (500, "text/plain", b"\x1b[31mred")},
            (r"HTTP 500: \x1b[31mred",),
        ),
        (dict.fromkeys(("/health", "/v1/models"), (200, "text/html", b"<p>")), ("HTML",)),
        (
            {"/v1/models": MODELS, "/v1/chat/completions": (200, "text/html", b"<p>hello</p>")},
            ("/v1/chat/completions", "text/html"),
        ),
    ],
)
def test_a_target_that_is_no_such_api_is_one_line_at_once(
    tmp_path: Path, answers: dict[str, Answer], parts: tuple[str, ...]
) -> None:
    with answering(lambda path: answers.get(path, NO_API)) as url:
        done = slo("run", "--target", url, *QUICK, *SHORT, "--out", "here", cwd=tmp_path)
    says_one_line(done, 2, f"slo run: {url}", *parts)
    assert not (tmp_path / "here").exists()


def test_a_second_run_into_one_folder_is_refused(finished: Path, sim: str, tmp_path: Path) -> None:
    before = (finished / "requests.jsonl").read_bytes()
    done = slo("run", "--target", sim, *QUICK, *SHORT, "--out", finished, cwd=tmp_path)
    says_one_line(done, 2, f"slo run: {finished}: holds a run already", "--force")
    assert (finished / "requests.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("run.json", None),
        ("run.json", 100),
        ("schedule.csv", None),
        ("requests.jsonl", 1000),
        ("latency.hlog", None),
    ],
)
def test_a_broken_run_directory_names_its_file_and_ends_with_4(
    finished: Path, easy: Path, tmp_path: Path, name: str, cut: int | None
) -> None:
    directory = broken(finished, tmp_path, name, cut)
    done = slo("check", directory, "--slo", easy, cwd=tmp_path)
    says_one_line(done, 4, f"slo check: {directory / name}:")


def test_a_run_directory_that_does_not_exist_is_a_usage_error(easy: Path, tmp_path: Path) -> None:
    done = slo("check", tmp_path / "none", "--slo", easy, cwd=tmp_path)
    says_one_line(done, 2, f"slo check: {tmp_path / 'none'}: no such run directory")


def test_report_without_a_verdict_names_the_missing_file(
    finished: Path, easy: Path, tmp_path: Path
) -> None:
    slo("check", finished, "--slo", easy, cwd=tmp_path)
    directory = broken(finished, tmp_path, "verdict.json", None)
    says_one_line(
        slo("report", directory, cwd=tmp_path), 4, f"slo report: {directory / 'verdict.json'}"
    )


def test_a_pipe_that_closes_is_not_taken_for_a_missed_slo(easy: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:
        done = subprocess.run(
            [*SLO, "validate", easy], cwd=tmp_path, stdout=closed, stderr=subprocess.PIPE
        )
    assert done.returncode == 141
    assert b"Traceback" not in done.stderr


def test_on_a_terminal_the_run_shows_a_live_panel(sim: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    argv = [*SLO, "run", "--target", sim, *QUICK[:2], "--duration", "2s", "--warmup", "0s", *SHORT]
    with open(theirs, "wb") as terminal:
        done = subprocess.run(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=terminal)
        terminal.flush()
        seen = os.read(ours, 1_000_000).decode(errors="replace")
    os.close(ours)
    assert done.returncode == 0
    for part in ("offered", "in flight", "TTFT P50 / P95", "late P99"):
        assert part in seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_a_run_keeps_what_was_measured_and_leaves_no_process(
    sim: str, tmp_path: Path, number: signal.Signals
) -> None:
    argv = [*SLO, "run", "--target", sim, "--rate", "10/s", "--duration", "60s", "--warmup", "0s"]
    argv += ["--workers", "2", "--max-tokens", "8", "--out", "here"]
    with subprocess.Popen(
        argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        requests = tmp_path / "here" / "requests.jsonl"
        deadline = time.monotonic() + 30
        while not (requests.exists() and requests.stat().st_size):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.1)
        below = children_of(process.pid)
        assert len(below) >= 4  # Locust, its two workers, the sidecar
        process.send_signal(number)
        out, err = process.communicate(timeout=40)
    assert process.returncode == 130, err
    assert out.splitlines() == ["here"]
    assert "Traceback" not in err
    assert not [pid for pid in below if is_running(pid)]
    run = rundir.read_run(tmp_path / "here")
    assert not run.finished
    assert run.stopped is not None
    assert run.counts.completed > 0


def test_stopping_before_the_load_has_begun_leaves_nothing(tmp_path: Path) -> None:
    with running_target("--engine", "sim", "--ttft-ms", "60000") as url:
        argv = [*SLO, "run", "--target", url, *QUICK, "--sidecar", "off", "--out", "here"]
        with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 30
            while not (below := children_of(process.pid)):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=40)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "slo run: stopped"
    assert not [pid for pid in below if is_running(pid)]
    assert not (tmp_path / "here").exists()
