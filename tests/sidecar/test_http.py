"""The sidecar over HTTP, and pulling its samples into a run directory while both run."""

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from slo.gpu_log import read_gpu_log
from slo.sidecar_client import pull
from slo.target_probe import TargetError, sidecar_lines
from target import sample_log, sidecar_http
from target.sample_log import SampleLog
from tests.sidecar.running import Sidecar, command, environment, needs_gcc, replace, sidecar


def url_of(running: Sidecar) -> str:
    """Where it says that it is ready."""
    assert running.process.stdout is not None
    said = running.process.stdout.readline()
    assert said.startswith("tailgate sidecar ready on http://127.0.0.1:")
    return said.split()[-1]


@pytest.fixture
def served(tmp_path: Path, fake_driver: dict[str, str]) -> Iterator[tuple[Sidecar, str]]:
    out = tmp_path / "remote.jsonl"
    if shutil.which("gcc") is None:
        pytest.skip("gcc compiles the fake driver")
    with sidecar(out, "--period", "0.05", "--port", "0", **fake_driver) as running:
        yield running, url_of(running)


def test_samples_are_the_lines_of_the_file_from_a_number_on(served: tuple[Sidecar, str]) -> None:
    running, url = served
    running.until(lambda lines: len(lines) > 6)
    lines = running.out.read_text().splitlines()
    with httpx.Client(base_url=url, trust_env=False) as client:
        everything = client.get("/samples")
        assert everything.headers["content-type"] == "application/jsonl"
        assert everything.text.splitlines()[: len(lines)] == lines
        assert client.get("/samples?since=2&limit=3").text.splitlines() == lines[2:5]
        beyond = client.get("/samples?since=1000000")
        assert (beyond.status_code, beyond.text) == (200, "")
        assert int(beyond.headers["tailgate-lines"]) >= len(lines)


@pytest.mark.parametrize("since", ["-1", "x", "1.5", "", "9" * 30, "%00", "٣"])
def test_a_bad_line_number_is_400_in_json(served: tuple[Sidecar, str], since: str) -> None:
    with httpx.Client(base_url=served[1], trust_env=False) as client:
        answer = client.get(f"/samples?since={since}")
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("since=")


def test_clock_and_health_answer_and_nothing_else_does(served: tuple[Sidecar, str]) -> None:
    with httpx.Client(base_url=served[1], trust_env=False) as client:
        before, mono = time.time_ns(), time.monotonic_ns()
        clock = client.get("/clock").json()
        assert before <= clock["receive_wall_ns"] <= clock["send_wall_ns"] <= time.time_ns()
        assert mono <= clock["receive_mono_ns"] <= clock["send_mono_ns"] <= time.monotonic_ns()
        assert client.get("/health").json()["status"] == "ready"
        missing = client.get("/metrics.php")
    assert missing.status_code == 404
    assert "/samples?since=LINE" in missing.json()["error"]


def test_a_port_in_use_is_refused_before_anything_is_written(
    served: tuple[Sidecar, str], tmp_path: Path
) -> None:
    port = served[1].rpartition(":")[2]
    out = tmp_path / "second.jsonl"
    argv = command("--out", out, "--port", port)
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"nvml_sidecar: 127.0.0.1:{port}: Address already in use\n"
    assert not out.exists()


@needs_gcc
def test_pulling_leaves_what_a_local_sidecar_would_have_written(
    served: tuple[Sidecar, str], tmp_path: Path
) -> None:
    running, url = served
    running.until(lambda lines: len(lines) > 10)
    out, stop = tmp_path / "gpu.jsonl", threading.Event()
    began = (time.time_ns(), time.monotonic_ns())
    puller = threading.Thread(target=pull, args=(url, out, stop))
    puller.start()
    seen = len(running.records())
    running.until(lambda lines: len(lines) > seen + 40)
    stop.set()
    puller.join(20)
    assert not puller.is_alive()

    pulled = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["type"] for one in pulled[:2]] == ["header", "clock"]
    assert pulled[-1]["type"] == "clock"
    samples, theirs = [one for one in pulled if one["type"] == "sample"], running.records("sample")
    first = theirs.index(samples[0])
    assert len(samples) >= 40
    assert samples == theirs[first : first + len(samples)], "none lost, none twice"

    log = read_gpu_log(out, t0_wall_ns=began[0], t0_mono_ns=0)
    assert log.unavailable is None
    assert len(log.clocks) == 2
    for clock in log.clocks:  # one host has one clock: the bound holds
        assert abs(clock.offset_ns) <= clock.bound_ns
        assert clock.bound_ns < 25_000_000
    by_mono = [(one["t_mono_ns"] - began[1]) / 1e9 for one in samples]
    assert [one.at_s for one in log.samples] == pytest.approx(by_mono, abs=0.05)


@needs_gcc
def test_a_sidecar_that_ends_early_is_an_event_and_keeps_what_came(
    served: tuple[Sidecar, str], tmp_path: Path
) -> None:
    running, url = served
    out, stop = tmp_path / "gpu.jsonl", threading.Event()
    puller = threading.Thread(target=pull, args=(url, out, stop))
    puller.start()
    deadline = time.monotonic() + 20
    while not (out.exists() and '"sample"' in out.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.stop()
    stop.set()
    puller.join(20)
    log = read_gpu_log(out, t0_wall_ns=time.time_ns(), t0_mono_ns=0)
    assert log.samples
    assert log.unavailable is None
    assert [event.field for event in log.events] == ["sidecar"]
    assert "/health: no GPU sidecar" in log.events[0].error


def test_what_is_no_sidecar_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    out = tmp_path / "gpu.jsonl"
    server = sidecar_http.bind("127.0.0.1", 0)
    port = server.server_port
    server.server_close()
    with pytest.raises(TargetError, match=f":{port}"):
        pull(f"http://127.0.0.1:{port}", out, threading.Event())
    assert not out.exists()


@needs_gcc
def test_a_restart_into_a_new_file_is_followed(
    tmp_path: Path, script: Path, fake_driver: dict[str, str]
) -> None:
    remote, out, stop = tmp_path / "remote.jsonl", tmp_path / "gpu.jsonl", threading.Event()
    with sidecar(remote, "--period", "0.05", "--port", "0", **fake_driver) as running:
        url = url_of(running)
        running.until(lambda lines: len(lines) > 30)
        puller = threading.Thread(target=pull, args=(url, out, stop))
        puller.start()
        deadline = time.monotonic() + 20
        while not (out.exists() and '"sample"' in out.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        running.stop()
    replace(script, "0.util=77,1\n")
    port = url.rpartition(":")[2]
    arguments = ("--period", "1", "--port", port, "--force")  # few lines: fewer than before
    with sidecar(remote, *arguments, **fake_driver) as running:
        url_of(running)
        while '"util_gpu_pct":77' not in out.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        stop.set()
        puller.join(20)
    log = read_gpu_log(out, t0_wall_ns=0, t0_mono_ns=0)
    assert len(log.headers) == 2
    assert {sample.util_gpu_pct for sample in log.samples} == {10, 20, 77}


def test_more_lines_than_one_answer_holds_come_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_http, "MOST_LINES", 3)
    log = SampleLog(tmp_path / "gpu.jsonl", "new")
    for number in range(8):
        log.write({"type": "sample", "number": number})
    log.flush()
    server = sidecar_http.bind("127.0.0.1", 0)
    sidecar_http.serve(server, log)
    try:
        lines = list(sidecar_lines(f"http://127.0.0.1:{server.server_port}", since=1))
    finally:
        server.shutdown()
        server.server_close()
        log.close()
    assert [json.loads(line)["number"] for line in lines] == list(range(1, 8))


def test_a_sample_waits_a_second_at_most_and_an_event_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SampleLog(tmp_path / "gpu.jsonl", "new")
    log.write({"type": "header"})
    log.write({"type": "sample"})
    assert log.lines == 1
    log.write({"type": "event"})
    assert log.lines == 3
    monkeypatch.setattr(sample_log, "FLUSH_EACH_S", 0.0)
    log.write({"type": "sample"})
    assert log.lines == 4
    assert log.read(1, 2) == b'{"type":"sample"}\n{"type":"event"}\n'
    log.close()
