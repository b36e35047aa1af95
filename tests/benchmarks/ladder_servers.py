"""Starting the servers of the ladder, all at once, and asking them things."""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class Server:
    """A server process, ours or vLLM's own, and its log."""

    name: str
    command: Sequence[str]
    log: Path
    url: str
    started_s: float = field(default_factory=time.monotonic)
    process: "subprocess.Popen[bytes] | None" = None
    why: str | None = None  # it is not there

    def start(self, env: Mapping[str, str]) -> None:
        """Start it in a process group of its own, so that all of it can be ended."""
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(
                self.command, stdout=file, stderr=file, env={**os.environ, **env}, cwd=ROOT,
                start_new_session=True,
            )  # fmt: skip

    def wait(self, timeout_s: float) -> bool:
        """Wait for /health to say ready; what went wrong stands in `why`."""
        while time.monotonic() - self.started_s < timeout_s:
            if self.process is not None and self.process.poll() is not None:
                lines = self.log.read_text(errors="replace").strip().splitlines()
                self.why = f"exit {self.process.returncode}: {lines[-1] if lines else ''}"[:400]
                return False
            if self.process is None and "target: " in self.log.read_text(errors="replace"):
                self.why = self.log.read_text(errors="replace").strip().splitlines()[-1][:400]
                return False  # started by an earlier program, and ended
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return True
            except OSError:
                pass
            time.sleep(0.25)
        self.why = f"not ready after {timeout_s} s"
        return False

    def stop(self) -> None:
        """End it and all its processes."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(8)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()

    def get(self, path: str) -> str:
        """The body of a GET."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:
            body: bytes = answer.read()
            return body.decode()

    def metric(self, name: str) -> float | None:
        """One value of its /metrics."""
        for line in self.get("/metrics").splitlines():
            if line.rpartition(" ")[0] == name:
                return float(line.rpartition(" ")[2])
        return None


def ours(
    name: str, port: int, folder: Path, options: Sequence[str], python: str = sys.executable
) -> Server:
    """Our server with these options."""
    command = [python, "-m", "target", "serve", "--port", str(port), *options]
    return Server(name, command, folder / f"{name}.log", f"http://127.0.0.1:{port}")


def together(jobs: Sequence["threading.Thread"]) -> None:
    """Run threads to their end."""
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()


@dataclass(frozen=True, slots=True)
class Reply:
    """How one request of the hand-made client ended."""

    status: int
    tokens: int
    seconds: float


def ask(url: str, prompt: str, max_tokens: int, model: str, timeout_s: float = 120.0) -> Reply:
    """One answer of exactly so many tokens, not streamed."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "ignore_eos": True,
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    start = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            told = json.load(answer)
            used = told["usage"]["completion_tokens"]
            return Reply(answer.status, used, time.monotonic() - start)
    except urllib.error.HTTPError as error:
        return Reply(error.code, 0, time.monotonic() - start)
    except OSError:
        return Reply(0, 0, time.monotonic() - start)


def at_once(url: str, prompts: Sequence[str], max_tokens: int, model: str) -> dict[str, object]:
    """Send all prompts in the same moment; tokens a second of all of them together."""
    replies: list[Reply] = []

    def one(prompt: str) -> None:
        replies.append(ask(url, prompt, max_tokens, model))

    start = time.monotonic()
    together([threading.Thread(target=one, args=(prompt,)) for prompt in prompts])
    wall_s = time.monotonic() - start
    tokens = sum(reply.tokens for reply in replies)
    return {
        "requests": len(prompts),
        "ok": sum(reply.status == 200 for reply in replies),
        "wall_s": round(wall_s, 3),
        "tokens_per_s": round(tokens / wall_s, 1),
    }
