"""The sidecar over HTTP: its samples by line number, its clock, and that it is alive."""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from target.sample_log import SampleLog

MOST_LINES = 20_000  # in one answer, some 6 MB; the next one goes on from there


class Server(ThreadingHTTPServer):
    """Holds the log that its handlers read."""

    daemon_threads = True
    log: SampleLog

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went away."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 60  # an idle connection does not hold its thread for ever
    disable_nagle_algorithm = True  # or a clock exchange may wait 40 ms for an acknowledgement

    def do_GET(self) -> None:
        receive = {"receive_wall_ns": time.time_ns(), "receive_mono_ns": time.monotonic_ns()}
        url, log = urlsplit(self.path), self.server.log
        if url.path == "/samples":
            self._samples(parse_qs(url.query, keep_blank_values=True))
        elif url.path == "/clock":
            send = {"send_wall_ns": time.time_ns(), "send_mono_ns": time.monotonic_ns()}
            self._json(200, receive | send)
        elif url.path == "/health":
            answer = {"status": "ready", "lines": log.lines, "header_line": log.header_line}
            self._json(200, answer)
        else:
            there = "/samples?since=LINE, /clock and /health"
            self._json(404, {"error": f"no {url.path:.100} here; there are {there}"})

    def _samples(self, query: dict[str, list[str]]) -> None:
        try:
            since, limit = _count(query, "since", 0), _count(query, "limit", MOST_LINES)
        except ValueError as error:
            self._json(400, {"error": str(error)})
            return
        body = self.server.log.read(since, min(limit, MOST_LINES))
        self._answer(200, "application/jsonl", body)

    def _json(self, status: int, value: dict[str, Any]) -> None:
        self._answer(status, "application/json", json.dumps(value).encode() + b"\n")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        # Fewer than the reader has already: the file was begun anew.
        self.send_header("Tailgate-Lines", str(self.server.log.lines))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a line for each second's poll would hide what matters."""


def bind(host: str, port: int) -> Server:
    """Take an address; port 0 takes a free one. Nothing is answered before `serve`.

    Raises:
        OSError: it cannot be bound.
    """
    return Server((host, port), Handler)


def serve(server: Server, log: SampleLog) -> None:
    """Answer in a thread that ends with the process."""
    server.log = log
    threading.Thread(target=server.serve_forever, name="sidecar-http", daemon=True).start()


def _count(query: dict[str, list[str]], key: str, default: int) -> int:
    text = query.get(key, [str(default)])[-1]
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(f"{key}={text!r:.40}: a number of lines is a whole number, 0 or more")
    return int(text)
