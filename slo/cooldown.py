"""Between two probes: wait until the server has nothing left to do."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from slo.server_metrics import read_metrics
from slo.target_probe import TargetError, metrics_client

POLL_S = 0.25
LOOKS = 2  # in a row: a scheduler between two steps may look empty once
SLACK = 2.0  # times what one request takes alone
SLACK_S = 0.05


@dataclass(frozen=True, slots=True)
class Idle:
    """How to see that a target is empty: by its own counts, or by how long one request takes."""

    url: str
    model: str
    key: str | None = None
    alone_s: float | None = None  # None: /metrics tells


def look(url: str, model: str, key: str | None) -> Idle:
    """Find out how an idle target shows that it is; to be called while it is.

    Raises:
        TargetError: neither its /metrics nor a request tells.
    """
    idle = Idle(url, model, key)
    if _in_flight(idle) is not None:
        return idle
    return Idle(url, model, key, min(_request_s(idle) for _ in range(3)))


def wait_until_empty(
    idle: Idle, *, timeout_s: float, sleep: Callable[[float], None] = time.sleep
) -> str | None:
    """Wait; returns None once the target is empty, else in words what was still open at the end."""
    deadline, seen = time.monotonic() + timeout_s, 0
    while True:
        try:
            why = _busy(idle)
        except TargetError as error:
            why = str(error)
        seen = 0 if why else seen + 1
        if seen >= LOOKS:
            return None
        if why and time.monotonic() >= deadline:
            return f"{why} (waited {timeout_s:g} s)"
        sleep(POLL_S)


def _busy(idle: Idle) -> str | None:
    if idle.alone_s is None:
        open_ = _in_flight(idle)
        if open_ is None:  # what does not answer may be busy
            return "the target's /metrics no longer say what is open"
        return f"{open_:g} requests are still open at the target" if open_ else None
    took = _request_s(idle)
    if took > SLACK * idle.alone_s + SLACK_S:
        return f"one request takes {took:.3g} s, alone it took {idle.alone_s:.3g} s"
    return None


def _in_flight(idle: Idle) -> float | None:
    """Requests that run or wait, by the target's /metrics; None where it does not say."""
    with metrics_client(idle.url, idle.key) as client:
        try:
            values = read_metrics(client.text())
        except (TargetError, ValueError):
            return None
    if "running" not in values:
        return None
    return values["running"] + values.get("waiting", 0.0)


def _request_s(idle: Idle) -> float:
    headers = {"Authorization": f"Bearer {idle.key}"} if idle.key else {}
    body = {
        "model": idle.model,
        "messages": [{"role": "user", "content": "Say one word."}],
        "max_tokens": 1,
    }
    began = time.monotonic()
    try:
        answer = httpx.post(
            f"{idle.url}/v1/chat/completions",
            json=body, headers=headers, timeout=30.0, trust_env=False,
        )  # fmt: skip
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise TargetError(f"{idle.url}/v1/chat/completions: {error}") from None
    return time.monotonic() - began
