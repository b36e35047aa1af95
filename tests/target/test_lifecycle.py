"""How the server starts, refuses to start, and ends."""

import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from target.serve import bind
from tests.serving import ROOT, started_target
from tests.target.asking import chat, deltas, held, metric, until


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=60, cwd=ROOT
    )


def test_sigterm_lets_the_running_ones_end_refuses_new_ones_and_exits_0() -> None:
    options = ("--engine", "sim", "--ttft-ms", "1500", "--max-running", "1")
    with (
        started_target(*options) as target,
        ThreadPoolExecutor(2) as pool,
        httpx.Client(base_url=target.url) as client,
    ):
        running = [pool.submit(chat, target.url, stream=True, max_tokens=3) for _ in range(2)]
        until(lambda: held(target.url) == 2)
        target.process.send_signal(signal.SIGTERM)
        until(lambda: client.get("/health").status_code == 503)
        refused = chat(target.url)
        assert refused.status_code == 503
        assert "shutting down" in refused.json()["error"]["message"]
        assert "retry-after" in refused.headers
        for answer in running:  # the one that ran, and the one that waited
            assert len(deltas(answer.result())) == 4  # <think>, a word, </think> and a word
        assert target.process.wait(10) == 0
        assert target.process.stderr is not None
        assert target.process.stderr.read() == ""


@pytest.mark.parametrize("again", [False, True])
def test_the_drain_is_bounded_and_a_second_signal_cuts_it_short(again: bool) -> None:
    options = ("--engine", "sim", "--ttft-ms", "60000")
    drain = ("--drain-timeout", "60" if again else "0.5")
    with started_target(*options, *drain) as target, ThreadPoolExecutor(1) as pool:
        lost = pool.submit(chat, target.url)
        until(lambda: metric(target.url, "tailgate_requests_running") == 1)
        start = time.monotonic()
        target.process.send_signal(signal.SIGINT)
        if again:
            until(lambda: httpx.get(f"{target.url}/health").status_code == 503)
            target.process.send_signal(signal.SIGTERM)
        assert target.process.wait(15) == 0
        assert time.monotonic() - start < 10
        assert lost.exception() is not None or lost.result().status_code >= 500


def test_a_port_in_use_is_one_line_and_exit_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("-m", "target", "serve", "--engine", "sim", "--port", str(port))
    assert ended.returncode == 2
    assert ended.stderr == f"target: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_a_host_without_an_address_is_one_line_and_exit_2() -> None:
    ended = run("-m", "target", "serve", "--engine", "sim", "--host", "nowhere.invalid")
    assert ended.returncode == 2
    assert ended.stderr.startswith("target: cannot listen on nowhere.invalid:8000: ")
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("fastapi", ["--engine", "sim"], "serve"),
        ("uvicorn", ["--engine", "sim"], "serve"),
        ("torch", ["--engine", "hf"], "hf"),
        ("transformers", ["--engine", "hf"], "hf"),
    ],
)
def test_a_missing_package_is_one_line_that_names_the_extra(
    package: str, arguments: list[str], extra: str
) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"  # as an import of what is not there
        f"sys.argv = ['target', 'serve', '--port', '0', *{arguments!r}]\n"
        "from target.__main__ import main; sys.exit(main())"
    )
    ended = run("-c", code)
    assert ended.returncode == 2
    assert ended.stderr == (
        f"target: {package} is not installed; pip install 'tailgate[{extra}]'\n"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--engine", "none"], "invalid choice: 'none'"),
        (["--max-queue", "-1"], "-1 is less than 0"),
        (["--ttft-ms", "nan"], "nan is not a number from 0 on"),
        (["--portt", "1"], "--portt"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], words: str) -> None:
    ended = run("-m", "target", "serve", *arguments)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_listening_socket_lets_each_token_out_at_once() -> None:
    """Without TCP's number on it asyncio leaves Nagle's algorithm on, which holds tokens back."""
    with bind("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
