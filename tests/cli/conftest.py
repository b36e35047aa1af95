"""Real processes and real servers: the command `slo`, the sim target, and servers that are none."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.serving import running_target

SLO = [sys.executable, "-m", "slo"]

QUICK = ("--rate", "10/s", "--duration", "3s", "--warmup", "1s", "--arrival", "constant")
SHORT = ("--max-tokens", "8", "--seed", "7", "--sidecar", "off")
EASY = """version: 1
service: sim
load: {rate: 10/s, arrival: constant, duration: 3s, warmup: 1s, mix: {math: 0.6, code: 0.4}}
objectives:
  - {metric: ttft, percentile: 75, max: 2s}
"""

Answer = tuple[int, str, bytes]  # status, content type, body


def slo(*arguments: object, cwd: Path, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
    """Run the command as a person does, in a directory of the test."""
    return subprocess.run(
        [*SLO, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=timeout
    )


def says_one_line(done: "subprocess.CompletedProcess[str]", code: int, *parts: str) -> None:
    """It ended with this code and one line on stderr, which has all these parts."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for part in parts:
        assert part in done.stderr, done.stderr


@contextmanager
def answering(answers: Callable[[str], Answer]) -> Iterator[str]:
    """A server that answers each path as it is told; its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            status, kind, body = answers(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output its own."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="session")
def sim() -> Iterator[str]:
    """The sim target's URL: 20 ms to the first token, 2 ms from token to token."""
    with running_target(
        "--engine", "sim", "--ttft-ms", "20", "--itl-ms", "2", "--max-running", "64"
    ) as url:
        yield url


@pytest.fixture(scope="session")
def easy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A slo.yaml whose one objective 30 requests can decide."""
    path = tmp_path_factory.mktemp("slo") / "easy.yaml"
    path.write_text(EASY)
    return path


@pytest.fixture(scope="session")
def finished(sim: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a complete run of 40 requests, the last line that `slo run` printed."""
    place = tmp_path_factory.mktemp("work")
    done = slo("run", "--target", sim, *QUICK, *SHORT, "--label", "first", cwd=place)
    assert done.returncode == 0, done.stderr
    directory = place / done.stdout.splitlines()[-1]
    assert directory.parent == place / "runs"
    assert directory.name.endswith("-first-10qps")
    return directory
