"""Questions to a running target, by hand over httpx: no client library between us and the bytes."""

import json
import time
from collections.abc import Callable
from typing import Any

import httpx

QUESTION = [{"role": "user", "content": "What is 17 * 23? 请一步一步推理。"}]


def chat(url: str, **body: Any) -> httpx.Response:
    body = {"messages": QUESTION, "max_tokens": 16, **body}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)


def said(url: str, **body: Any) -> str:
    """The content of an answer that is not streamed."""
    answer = chat(url, **body)
    assert answer.status_code == 200, answer.text
    content: str = answer.json()["choices"][0]["message"]["content"]
    return content


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    """The objects of an event stream, which must end with [DONE]."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = answer.content.decode("utf-8").split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks[:-1])
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]


def deltas(answer: httpx.Response, key: str = "content") -> list[str]:
    """Texts of the deltas under a key, the role's empty one left out."""
    choices = [choice for event in events(answer) for choice in event["choices"]]
    return [text for choice in choices if (text := choice["delta"].get(key))]


def metric(url: str, name: str) -> float:
    """One value of /metrics."""
    for line in httpx.get(f"{url}/metrics").text.splitlines():
        if line.rpartition(" ")[0] == name:
            return float(line.rpartition(" ")[2])
    raise KeyError(name)


def held(url: str) -> float:
    """Requests inside: running, waiting, or being tokenised, which counts as waiting."""
    return metric(url, "tailgate_requests_running") + metric(url, "tailgate_requests_waiting")


def until(true: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Wait for a state; fails when it does not come."""
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "the state did not come"
        time.sleep(0.01)
