"""The probe against real servers: ready, not yet ready, none at all, and no API."""

import json
import socket
import threading
import time

import pytest

from slo import target_probe
from slo.target_probe import TargetError
from tests.cli.conftest import Answer, answering

MODELS = (200, "application/json", json.dumps({"data": [{"id": "m1"}, {"id": "m2"}]}).encode())
READY = (200, "application/json", b"{}")
NOT_FOUND = (404, "application/json", b"{}")
HTML = (200, "text/html; charset=utf-8", b"<h1>hello</h1>")


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait(url: str, timeout_s: float = 5.0, said: list[str] | None = None) -> None:
    say = (lambda text: None) if said is None else said.append
    target_probe.wait_until_ready(url, timeout_s=timeout_s, key=None, say=say)


def test_it_waits_while_the_target_loads_and_says_once_for_what() -> None:
    asked: list[str] = []

    def answers(path: str) -> Answer:
        asked.append(path)
        return READY if len(asked) > 3 else (503, "application/json", b"{}")

    said: list[str] = []
    with answering(answers) as url:
        wait(url, said=said)
    assert said == [f"waiting for {url}: /health answers 503"]
    assert asked == ["/health"] * 4


def test_a_target_that_starts_to_listen_later_is_waited_for() -> None:
    port = closed_port()
    listening = socket.socket()

    def listen_later() -> None:
        time.sleep(0.7)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()
        connection, _ = listening.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    thread = threading.Thread(target=listen_later)
    thread.start()
    said: list[str] = []
    wait(f"http://127.0.0.1:{port}", said=said)
    thread.join()
    listening.close()
    assert said == [f"waiting for http://127.0.0.1:{port}: nothing listens there"]


def test_without_a_health_path_the_model_list_says_that_it_is_ready() -> None:
    with answering(lambda path: MODELS if path == "/v1/models" else NOT_FOUND) as url:
        wait(url)
        assert target_probe.first_model(url, key=None) == "m1"


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (HTML, "/v1/models: answers 200 with HTML; expected the JSON of an OpenAI-compatible API"),
        ((404, "text/html", b"<h1>none</h1>"), "/v1/models: answers 404 with HTML"),
        ((401, "application/json", b"{}"), "/v1/models: answers 401; name --api-key-env"),
    ],
)
def test_what_waiting_cannot_help_is_said_at_once(answer: Answer, part: str) -> None:
    with answering(lambda path: answer) as url:
        started = time.monotonic()
        with pytest.raises(TargetError, match=part):
            wait(url, timeout_s=60)
        assert time.monotonic() - started < 5


def test_bytes_that_are_no_http_are_said_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(TargetError, match="/health: answers no HTTP"):
            wait(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout_s=60)
        thread.join()


def test_a_host_without_an_address_is_named() -> None:
    with pytest.raises(TargetError, match=r"the host name nowhere\.invalid has no address"):
        wait("http://nowhere.invalid:8000", timeout_s=0.1)


@pytest.mark.parametrize("answer", [NOT_FOUND, READY, HTML, (200, "application/json", b"[1]")])
def test_a_target_without_a_model_list_asks_for_the_model(answer: Answer) -> None:
    with (
        answering(lambda path: answer) as url,
        pytest.raises(TargetError, match=f"{url}/v1/models: .*name --model"),
    ):
        target_probe.first_model(url, key=None)


def test_another_clock_is_known_to_within_half_a_round_trip() -> None:
    ahead_ns = 90_000_000_000

    def answers(path: str) -> Answer:
        now_ns = time.time_ns() + ahead_ns
        clock = {"receive_wall_ns": now_ns, "send_wall_ns": now_ns}
        return 200, "application/json", json.dumps(clock).encode()

    with answering(answers) as url:
        clock = target_probe.clock_offset(url)
    assert 0 <= clock.bound_ns < 1_000_000_000
    assert abs(clock.offset_ns - ahead_ns) <= clock.bound_ns + 1_000_000


def test_an_api_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILGATE_TEST_KEY", "secret")
    assert target_probe.api_key("TAILGATE_TEST_KEY") == "secret"
    assert target_probe.api_key(None) is None
    with pytest.raises(TargetError, match="--api-key-env: the environment has no TAILGATE_NO_KEY"):
        target_probe.api_key("TAILGATE_NO_KEY")
