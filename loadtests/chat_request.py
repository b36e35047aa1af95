"""A request as it goes onto the wire: POST of a streamed chat completion, HTTP/1.1."""

import json
from dataclasses import dataclass
from urllib.parse import urlsplit

from loadtests.own_prompts import Message
from loadtests.plan import Plan


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a URL leads."""

    tls: bool
    host: str
    port: int
    base_path: str

    @property
    def netloc(self) -> str:
        """What the Host header says."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.tls else 80) else f"{name}:{self.port}"


def origin(url: str) -> Origin:
    """Where a URL leads.

    Raises:
        ValueError: no host, or a port that is none.
    """
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError(f"{url!r} names no host")
    tls = parts.scheme == "https"
    return Origin(tls, parts.hostname, parts.port or (443 if tls else 80), parts.path.rstrip("/"))


def head(plan: Plan) -> bytes:
    """Everything of a request before the value of Content-Length, which ends it."""
    place = origin(plan.url)
    key = f"Authorization: Bearer {plan.api_key}\r\n" if plan.api_key else ""
    close = "Connection: close\r\n" if plan.fresh_connections else ""
    return (
        f"POST {place.base_path}{plan.api_path} HTTP/1.1\r\n"
        f"Host: {place.netloc}\r\n"
        "User-Agent: tailgate\r\n"
        "Content-Type: application/json\r\n"
        "Accept: text/event-stream\r\n"
        # Compressed, tokens would wait for one another.
        "Accept-Encoding: identity\r\n"
        f"{close}{key}"
        "Content-Length: "
    ).encode()


def body(plan: Plan, messages: list[Message], max_tokens: int) -> bytes:
    """The JSON of one request."""
    asked: dict[str, object] = {
        "messages": messages,
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if plan.model is not None:
        asked["model"] = plan.model
    if plan.temperature is not None:
        asked["temperature"] = plan.temperature
    if plan.top_p is not None:
        asked["top_p"] = plan.top_p
    if plan.ignore_eos:
        asked["ignore_eos"] = True
    if plan.min_tokens is not None:
        asked["min_tokens"] = min(plan.min_tokens, max_tokens)
    return json.dumps(asked, ensure_ascii=False).encode("utf-8", "replace")


def request(plan: Plan, before_length: bytes, messages: list[Message], max_tokens: int) -> bytes:
    """All bytes of a request; `before_length` is `head(plan)`, made once."""
    content = body(plan, messages, max_tokens)
    return b"%b%d\r\n\r\n%b" % (before_length, len(content), content)
