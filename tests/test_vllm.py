"""A server no one here wrote: real vLLM on the CPU serves the tiny model; `make test-vllm`."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from loadtests.prompts import prompt
from slo.rundir import read_records, read_run
from slo.verdict_file import read_verdict
from target.tiny_model import tiny_model
from tests.cli.conftest import slo

pytestmark = pytest.mark.vllm

MAX_TOKENS = 32
SLO_YAML = """
version: 1
service: tiny on vLLM
load: {rate: 5/s, arrival: poisson, duration: 30s, max_tokens: 32}
objectives:
  - {metric: ttft, percentile: 50, max: 5s}
  - {metric: error_rate, max: 5%}
validity: {lateness: 100%}
"""


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of vLLM's own OpenAI server, in the environment that `make test-vllm` made."""
    python = os.environ["TAILGATE_VLLM_PYTHON"]
    log = (tmp_path_factory.mktemp("vllm") / "server.log").open("w+")
    port = free_port()
    options = {
        "--model": str(tiny_model()),
        "--served-model-name": "tiny",
        "--host": "127.0.0.1",
        "--port": str(port),
        "--dtype": "float32",
        "--max-model-len": "4096",
    }
    process = subprocess.Popen(
        [python, "-m", "vllm.entrypoints.openai.api_server", *sum(options.items(), ())],
        env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 180
        while not healthy(url):
            assert process.poll() is None, Path(log.name).read_text()[-4000:]
            assert time.monotonic() < until, "vLLM was not ready in 180 s"
            time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait(30)
        log.close()


def free_port() -> int:
    """A port that is free now; vLLM does not say which it took when asked for port 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def counter(url: str, name: str) -> int:
    """The value of one of vLLM's own counters."""
    found = re.search(
        rf"^vllm:{name}_total{{[^}}]*}} ([0-9.e+]+)$", httpx.get(f"{url}/metrics").text, re.M
    )
    assert found, name
    return round(float(found[1]))


def test_a_run_against_vllm_has_no_failure_the_servers_token_counts_and_a_verdict(
    vllm: str, tmp_path: Path
) -> None:
    (tmp_path / "slo.yaml").write_text(SLO_YAML)
    asked, made = counter(vllm, "prompt_tokens"), counter(vllm, "generation_tokens")

    run = slo(
        *("run", "--target", vllm, "--rate", "5/s", "--duration", "30s", "--seed", 7),
        *("--max-tokens", MAX_TOKENS, "--out", "run"),
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr

    counts = read_run(tmp_path / "run").counts
    assert counts.failed == counts.dropped == counts.not_started == 0
    assert counts.completed == counts.scheduled > 100
    records = list(read_records(tmp_path / "run"))
    assert {record.tokens_from for record in records} == {"usage"}
    assert {record.output_tokens for record in records} == {MAX_TOKENS}  # it never ends by itself
    # vLLM counts the run's tokens and those of the one trial request before it.
    trial_out = counter(vllm, "generation_tokens") - made - MAX_TOKENS * len(records)
    trial_in = counter(vllm, "prompt_tokens") - asked - sum(r.prompt_tokens or 0 for r in records)
    assert 0 < trial_out <= MAX_TOKENS
    assert 0 < trial_in < 400
    assert_prompts_are_counted_as_the_tokenizer_does(tmp_path / "run")

    check = slo("check", "run", "--slo", "slo.yaml", cwd=tmp_path)
    assert check.returncode == 0, check.stdout
    assert read_verdict(tmp_path / "run").result == "PASS"


def assert_prompts_are_counted_as_the_tokenizer_does(run: Path) -> None:
    code = (
        "import json, sys, transformers\n"
        "tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "texts = json.load(sys.stdin)\n"
        "ids = [tokenizer.apply_chat_template([{'role': 'user', 'content': text}],\n"
        "       add_generation_prompt=True, return_dict=False) for text in texts]\n"
        "print(json.dumps([len(each) for each in ids]))\n"
    )
    records = list(read_records(run))[:20]
    texts = json.dumps([prompt(record.prompt_id).text for record in records])
    counted = subprocess.run(
        [sys.executable, "-c", code, str(tiny_model())],
        input=texts,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(counted.stdout) == [record.prompt_tokens for record in records]
