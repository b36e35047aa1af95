"""Options that an engine would have to ignore are refused when it starts, in one line."""

import argparse
import subprocess
import sys

import pytest

from target.__main__ import arguments
from target.engines import EngineError
from target.option_scope import READ_BY, is_here, refuse_ignored
from target.options import add_options
from tests.serving import ROOT

HF_MODES = ("nocache", "dynamic", "static-compile", "batch", "continuous")
SERVERS = (
    ("sim",),
    ("sim", "--gpu", "l4"),
    ("hf",),
    *(("hf", "--mode", mode) for mode in HF_MODES),
    *(("vllm", "--mode", mode) for mode in ("vllm", "vllm-fp8kv", "vllm-w4")),
)


def parsed(*words: str) -> argparse.Namespace:
    return arguments().parse_args(["serve", "--engine", *words])


@pytest.mark.parametrize("words", SERVERS)
def test_defaults_are_never_refused(words: tuple[str, ...]) -> None:
    refuse_ignored(parsed(*words))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("sim --profile 3", "--profile: allowed with --engine hf --mode nocache|dynamic"),
        ("sim --nvtx", "--nvtx: allowed with --engine hf"),
        ("vllm --profile 3", "--profile: allowed with --engine hf"),
        ("vllm --nvtx", "--nvtx: allowed with --engine hf"),
        ("hf --mode continuous --profile 3", "--profile: allowed with --engine hf --mode nocache"),
        ("sim --mode batch", "--mode: allowed with --engine hf, vllm"),
        ("sim --kv-cache fp8", "--kv-cache: allowed with --engine sim --gpu, hf, vllm"),
        ("sim --weights w4", "--weights: allowed with --engine sim --gpu, hf, vllm"),
        ("sim --gpu l4 --ttft-ms 9", "--ttft-ms: allowed with --engine sim without --gpu"),
        ("sim --host-ms 9", "--host-ms: allowed with --engine sim --gpu"),
        ("sim --attention sdpa", "--attention: allowed with --engine hf"),
        ("sim --device cpu", "--device: allowed with --engine hf"),
        ("vllm --attention sdpa", "--attention: allowed with --engine hf"),
        ("vllm --threads 2", "--threads: allowed with --engine hf"),
        ("vllm --think-tokens 9", "--think-tokens: allowed with --engine sim, hf --mode nocache"),
        ("vllm --max-batch 9", "--max-batch: allowed with --engine hf --mode batch|continuous"),
        ("hf --max-batch 9", "--max-batch: allowed with --engine hf --mode batch|continuous"),
        ("hf --mode continuous --batch-wait-ms 9", "--batch-wait-ms: allowed with --engine hf"),
        ("hf --gpu l4", "--gpu: allowed with --engine sim"),
        ("hf --answers x", "--answers: allowed with --engine sim"),
        ("hf --max-num-seqs 9", "--max-num-seqs: allowed with --engine sim --gpu, vllm"),
        ("hf --kv-cache-gib 1", "--kv-cache-gib: allowed with --engine hf --mode continuous, vllm"),
        ("hf --max-cache-len 512", "--max-cache-len: allowed with --engine hf --mode static"),
        ("hf --warmup-batch 4", "--warmup-batch: allowed with --engine hf --mode batch|cont"),
        ("hf --enforce-eager", "--enforce-eager: allowed with --engine vllm"),
        ("hf --layers 2", "--layers: allowed with --weights random"),
        ("hf --profile-out x", "--profile-out: allowed with --profile"),
        ("hf --replica-devices cuda:0", "--replica-devices: allowed with --replicas of 2 or more"),
        ("sim --reasoning none --think-tokens 9", "--think-tokens: allowed with a --reasoning"),
        ("sim --alert-window 9", "--alert-window: allowed with --alert-p95-ms"),
    ],
)
def test_what_would_be_ignored_is_refused(words: str, says: str) -> None:
    with pytest.raises(EngineError) as caught:
        refuse_ignored(parsed(*words.split()))
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    "words",
    [
        "sim --gpu l4 --kv-cache fp8 --weights w4 --max-num-seqs 9 --host-ms 2",
        "hf --mode batch --max-batch 4 --batch-wait-ms 9 --warmup-batch 4 --profile 2 --nvtx",
        "hf --weights random,int8 --layers 2 --attention eager --kv-cache int8",
        "hf --mode continuous --max-batch 4 --kv-cache-gib 2",
        "hf --mode static-compile --max-cache-len 512",
        "hf --replicas 2 --replica-devices cuda:0,cuda:1",
        "vllm --mode vllm-w4 --weights random --layers 2 --enforce-eager --max-num-seqs 8",
    ],
)
def test_what_is_read_is_taken(words: str) -> None:
    refuse_ignored(parsed(*words.split()))


def test_every_option_has_its_place_and_every_place_is_one() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    assert set(READ_BY) == set(vars(parser.parse_args([])))
    servers = [parsed(*words) for words in SERVERS]
    places = {place for at in READ_BY.values() for place in at}
    assert all(any(is_here(place, args) for args in servers) for place in places)


def test_the_server_ends_with_2_and_one_line_before_it_loads_anything() -> None:
    command = [sys.executable, "-m", "target", "serve", "--engine", "sim", "--profile", "3"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr == (
        "target: --profile: allowed with --engine hf --mode nocache|dynamic|static-compile|batch\n"
    )
    assert ended.stdout == ""
