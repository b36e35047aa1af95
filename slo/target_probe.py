"""What `slo` asks a server itself: is it ready, which models it has, how far off its clock is."""

import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

POLL_S = 0.5
ANSWER_S = 5.0
# What a server, or the proxy before it, says while it loads.
STARTING = (425, 429, 500, 502, 503, 504)
CLOCK_ROUNDS = 8
LONGEST_ID = 1000  # characters of a model's name


class TargetError(Exception):
    """A target that cannot be measured; one line that names the URL and what it did."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Another host's wall clock minus ours, at our time, and how wrong that may be."""

    t_wall_ns: int
    offset_ns: int
    bound_ns: int  # half of what the round trip took on the way


def api_key(name: str | None) -> str | None:
    """The API key in an environment variable; None where none is named.

    Raises:
        TargetError: the variable is not set.
    """
    if name is None:
        return None
    if not os.environ.get(name):
        raise TargetError(f"--api-key-env: the environment has no {name}, or it is empty")
    return os.environ[name]


def wait_until_ready(
    url: str, *, timeout_s: float, key: str | None, say: Callable[[str], None]
) -> None:
    """Ask until the target answers as ready; `say` hears each new reason to wait.

    Raises:
        TargetError: not ready in time, or at once when waiting cannot help.
    """
    deadline = time.monotonic() + timeout_s
    said = ""
    with _client(url, key) as client:
        while why := _reason_to_wait(client, url):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TargetError(f"{url}: {why} (waited {timeout_s:g} s)")
            if why != said:
                say(f"waiting for {url}: {why}")
                said = why
            time.sleep(min(POLL_S, left_s))


def first_model(url: str, *, key: str | None) -> str:
    """The first id in /v1/models.

    Raises:
        TargetError: no such list, or an empty one.
    """
    place = f"{url}/v1/models"
    wanted = "expected the model list of an OpenAI-compatible API; name --model"
    with _client(url, key) as client:
        try:
            answer = client.get("/v1/models")
            if answer.status_code != httpx.codes.OK:
                raise TargetError(f"{place}: answers {answer.status_code}; {wanted}")
            name = str(answer.json()["data"][0]["id"])
        except httpx.HTTPError as error:
            raise TargetError(f"{place}: {_words(error)}; {wanted}") from None
        except (ValueError, KeyError, IndexError, TypeError):
            raise TargetError(f"{place}: answers no list of models; {wanted}") from None
    if not name.isprintable() or not 0 < len(name) <= LONGEST_ID:
        raise TargetError(f"{place}: {name[:40]!r} is no name of a model; {wanted}")
    return name


def info(url: str, *, key: str | None) -> dict[str, Any]:
    """GET /info; empty where the target does not offer it."""
    with _client(url, key) as client:
        try:
            told = client.get("/info").raise_for_status().json()
        except (httpx.HTTPError, ValueError):
            return {}
    return told if isinstance(told, dict) else {}


def clock_offset(url: str) -> ClockOffset:
    """Compare the clock behind GET /clock with ours: the best of a few round trips.

    Raises:
        TargetError: there is no clock to ask.
    """
    with _client(url, None) as client:
        rounds = [_clock_round(client, url) for _ in range(CLOCK_ROUNDS)]
    return min(rounds, key=lambda clock: clock.bound_ns)


def _clock_round(client: httpx.Client, url: str) -> ClockOffset:
    asked_ns = time.time_ns()
    try:
        told = client.get("/clock").raise_for_status().json()
        received_ns, sent_ns = int(told["receive_wall_ns"]), int(told["send_wall_ns"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise TargetError(f"{url}/clock: {_words(error)}") from None
    answered_ns = time.time_ns()
    return ClockOffset(
        t_wall_ns=answered_ns,
        offset_ns=((received_ns - asked_ns) + (sent_ns - answered_ns)) // 2,
        bound_ns=((answered_ns - asked_ns) - (sent_ns - received_ns)) // 2,
    )


@dataclass(frozen=True, slots=True)
class SidecarPlace:
    """Where a remote sidecar's log stands: how many lines it has, and its newest header."""

    lines: int
    header: str


def sidecar_place(url: str) -> SidecarPlace:
    """Ask a remote GPU sidecar where its log stands.

    Raises:
        TargetError: it is none, or cannot be asked.
    """
    with _client(url, None) as client:
        try:
            told = client.get("/health").raise_for_status().json()
            lines, at = int(told["lines"]), int(told["header_line"])
            return SidecarPlace(lines, _samples(client, url, since=at, limit=1)[0])
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise TargetError(f"{url}/health: no GPU sidecar: {_words(error)}") from None


def sidecar_lines(url: str, *, since: int) -> Iterator[str]:
    """JSON lines of a remote GPU sidecar, from line `since` on, however many answers it takes.

    Raises:
        TargetError: it cannot be asked.
    """
    with _client(url, None) as client:
        while lines := _samples(client, url, since=since):
            since += len(lines)
            yield from lines


def _samples(client: httpx.Client, url: str, **query: int) -> list[str]:
    try:
        return client.get("/samples", params=query).raise_for_status().text.splitlines()
    except httpx.HTTPError as error:
        raise TargetError(f"{url}/samples: {_words(error)}") from None


class MetricsClient:
    """One kept connection to a target's /metrics."""

    def __init__(self, url: str, client: httpx.Client) -> None:
        self._place, self._client = f"{url}/metrics", client

    def text(self) -> str:
        """What it says now, as Prometheus text.

        Raises:
            TargetError: it does not answer, or not with text.
        """
        try:
            answer = self._client.get("/metrics")
        except httpx.HTTPError as error:
            raise TargetError(f"{self._place}: {_words(error)}") from None
        if not answer.is_success or _is_html(answer):
            raise TargetError(f"{self._place}: answers {answer.status_code}, no metrics")
        return answer.text


@contextmanager
def metrics_client(url: str, key: str | None) -> Iterator[MetricsClient]:
    """A connection to the target's /metrics for the block."""
    with _client(url, key) as client:
        yield MetricsClient(url, client)


def _words(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _client(url: str, key: str | None) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    # The load does not go through a proxy of the environment, so neither does this.
    return httpx.Client(base_url=url, headers=headers, timeout=ANSWER_S, trust_env=False)


def _reason_to_wait(client: httpx.Client, url: str) -> str | None:
    """Why the target is not ready yet; None: it is, or a real request must show it.

    Raises:
        TargetError: what it answers will not change by waiting.
    """
    for path in ("/health", "/v1/models"):
        try:
            answer = client.get(path)
        except httpx.ConnectError as error:
            return _unreachable(url, error)
        except httpx.TimeoutException:
            return f"no answer within {ANSWER_S:g} s"
        except httpx.RemoteProtocolError as error:
            raise TargetError(f"{url}{path}: answers no HTTP: {error}") from None
        except httpx.HTTPError as error:
            return _words(error)
        if answer.status_code in STARTING:
            return f"{path} answers {answer.status_code}"
        if answer.status_code in (401, 403) and path == "/v1/models":
            raise TargetError(f"{url}{path}: answers {answer.status_code}; name --api-key-env")
        if answer.is_redirect:
            goal = answer.headers.get("location", "elsewhere")
            raise TargetError(f"{url}{path}: redirects to {goal}; name that --target")
        if answer.is_success and not _is_html(answer):
            return None
    if _is_html(answer):
        raise TargetError(
            f"{url}{path}: answers {answer.status_code} with HTML;"
            " expected the JSON of an OpenAI-compatible API"
        )
    return None


def _is_html(answer: httpx.Response) -> bool:
    kind: str = answer.headers.get("content-type", "")
    return kind.startswith("text/html")


def _unreachable(url: str, error: httpx.ConnectError) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return f"the host name {httpx.URL(url).host} has no address"
        if isinstance(cause, ssl.SSLError):
            raise TargetError(f"{url}: TLS: {error}") from None
        cause = cause.__cause__ or cause.__context__
    return "nothing listens there"
