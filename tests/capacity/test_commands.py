"""`slo capacity`, `slo sweep` and the cool-down against real servers."""

import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from slo import cooldown
from slo.capacity import bounds
from slo.capacity_search import read_search
from tests.cli.conftest import SLO, answering, says_one_line, slo
from tests.serving import ROOT, running_target

# One place, 15 ms an answer: some 60 a second at the very most.
SIM = ("--engine", "sim", "--max-running", "1", "--ttft-ms", "10", "--itl-ms", "5",
       "--reasoning", "none")  # fmt: skip
PROMISE = """\
version: 1
service: sim
load: {rate: 20/s, max_tokens: 2, input_class: "128"}
objectives:
  - {metric: ttft, percentile: 95, max: 5s}
  - {metric: error_rate, max: 5%}
"""


def promise(folder: Path) -> None:
    (folder / "slo.yaml").write_text(PROMISE)


def test_a_search_goes_on_where_it_was_interrupted_and_ends_with_an_interval(
    tmp_path: Path,
) -> None:
    promise(tmp_path)
    with running_target(*SIM) as url:
        command = [
            "capacity", "--target", url, "--slo", "slo.yaml", "--budget", "26s", "--shortest", "2s",
            "--sidecar", "off", "--seed", "4", "--out", "found",
        ]  # fmt: skip
        first = subprocess.Popen([*SLO, *command], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        path = tmp_path / "found" / "capacity.json"
        deadline = time.monotonic() + 60
        while not path.exists() and time.monotonic() < deadline and first.poll() is None:
            time.sleep(0.1)
        first.send_signal(signal.SIGINT)
        _, said = first.communicate(timeout=60)
        assert first.returncode == 130, said
        begun = read_search(tmp_path / "found")
        assert len(begun.probes) == 1
        assert begun.answer is None

        done = slo(*command, cwd=tmp_path)
        assert "going on after 1 probes" in done.stderr
        again = slo(*command, cwd=tmp_path)
    search = read_search(tmp_path / "found")
    assert search.probes[0] == begun.probes[0]
    assert search.answer is not None
    assert done.returncode == search.answer.exit_code, done.stderr
    assert done.stdout.splitlines()[-1] == "found"
    proven = bounds(search.probes)  # how much is proven depends on how busy this machine is
    assert (search.answer.passes, search.answer.fails) == (proven.passes, proven.fails)
    for end, holds in ((search.answer.passes, 67.0), (search.answer.fails, 1e9)):
        assert end is None or 1.0 <= end <= holds
    assert search.fingerprint["target.engine"] == "sim"
    assert "ttft p95" in (tmp_path / "found" / "capacity.html").read_text()
    says_one_line(again, 2, "that search has ended")


def test_a_sweep_starts_a_server_for_each_setting_and_tells_of_one_that_cannot(
    tmp_path: Path,
) -> None:
    promise(tmp_path)
    python = shlex.quote(sys.executable)
    serve = f"env PYTHONPATH={ROOT} {python} -m target serve {' '.join(SIM)} --max-queue {{queue}}"
    done = slo(
        "sweep", "--serve", f"{serve} --port {{port}}", "--grid", "queue=64,none",
        "--slo", "slo.yaml", "--budget", "24s", "--shortest", "2s", "--sidecar", "off",
        "--max", "8/s", "--min", "6/s", "--out", "swept", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    lines = json.loads((tmp_path / "swept" / "sweep.json").read_text())["settings"]
    assert [line["setting"] for line in lines] == [{"queue": "64"}, {"queue": "none"}]
    assert lines[0]["answer"]["why"]
    assert "the server ended with 2" in lines[1]["why"]
    bad = slo("sweep", "--serve", "x", "--grid", "a=1", "--slo", "slo.yaml", cwd=tmp_path)
    says_one_line(bad, 2, "--serve", "{port}")


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    promise(tmp_path)
    to = ("capacity", "--target", "http://127.0.0.1:1", "--slo", "slo.yaml")
    says_one_line(slo(*to, "--over", "tokens", cwd=tmp_path), 2, "--over", "concurrency")
    says_one_line(slo(*to, "--min", "5/s", "--max", "4/s", cwd=tmp_path), 2, "--max", "above")
    says_one_line(slo(*to, "--resolution", "200%", cwd=tmp_path), 2, "0.1%")
    few = slo(*to, "--shortest", "60s", "--budget", "10s", cwd=tmp_path)
    says_one_line(few, 2, "--budget: 10 s are too few for the first probe")
    users = slo(*to, "--over", "concurrency", "--min", "1.5", cwd=tmp_path)
    says_one_line(users, 2, "whole numbers")
    soak = ("soak", "--target", "http://127.0.0.1:1", "--rate", "1/s")
    short = slo(*soak, "--duration", "80s", "--window", "10s", cwd=tmp_path)
    says_one_line(short, 2, "--duration: 8 windows are needed", "more than 80.0 s")
    down = slo(*to, "--ready-timeout", "0.1s", cwd=tmp_path)
    assert down.returncode == 2
    assert "nothing listens there" in down.stderr


def test_the_next_probe_waits_until_the_target_says_that_it_is_empty() -> None:
    told = iter([3, 3, 2, 0, 1])  # then 0

    def metrics(path: str) -> tuple[int, str, bytes]:
        text = f"vllm:num_requests_running {next(told, 0)}\nvllm:num_requests_waiting 0\n"
        return 200, "text/plain", text.encode()

    slept: list[float] = []
    with answering(metrics) as url:
        idle = cooldown.look(url, "m", None)
        assert cooldown.wait_until_empty(idle, timeout_s=60, sleep=slept.append) is None
        assert next(told, None) is None  # it saw all of them: one look at 0 was not enough
    assert len(slept) == 5


def test_a_target_that_does_not_empty_is_told_in_words() -> None:
    text = b"vllm:num_requests_running 2\nvllm:num_requests_waiting 1\n"
    with answering(lambda path: (200, "text/plain", text)) as url:
        idle = cooldown.look(url, "m", None)
        why = cooldown.wait_until_empty(idle, timeout_s=0.0, sleep=lambda _: None)
    assert why == "3 requests are still open at the target (waited 0 s)"


def test_without_metrics_one_request_tells_whether_the_target_is_empty() -> None:
    slow = iter([0.0, 0.0, 0.0, 0.4, 0.0, 0.0])

    def answer(path: str) -> tuple[int, str, bytes]:
        if path == "/metrics":
            return 404, "text/plain", b""
        time.sleep(next(slow))
        return 200, "application/json", b"{}"

    slept: list[float] = []
    with answering(answer) as url:
        idle = cooldown.look(url, "m", None)
        assert idle.alone_s is not None
        assert cooldown.wait_until_empty(idle, timeout_s=60, sleep=slept.append) is None
    assert len(slept) == 2
