"""Numbers of fewer bits: each works on this machine, or is refused in one line that says why.

`make test-quant` brings the packages without which the first tests here are skipped.
"""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from target.__main__ import arguments
from target.engines import EngineError
from target.hf_load import cache_key, cache_maker, check, load_model
from tests.serving import ROOT
from tests.target.building import answers, built
from tests.target.test_modes import GREEDY, PROMPT, TINY

FIXED = replace(GREEDY, ignore_eos=True)


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package}: make test-quant brings it")


def network(*options: str) -> Any:
    return load_model(arguments().parse_args(["serve", *TINY, *options]), "cpu", "float32")[1]


@needs("torchao")
def test_weights_of_8_bits_are_kept_in_8_bits(tiny_cache: str) -> None:
    plain, small = network(), network("--weights", "int8")
    before, after = (one.model.layers[0].mlp.up_proj.weight for one in (plain, small))
    assert "Int8" in type(after).__name__ + str(getattr(after, "tensor_impl", ""))
    error = (after.dequantize() - before).abs().max() / before.abs().max()
    assert 0 < float(error) < 0.01
    assert type(small.lm_head.weight) is type(plain.lm_head.weight)


@needs("torchao")
@pytest.mark.parametrize("mode", ["dynamic", "static-compile", "batch", "continuous"])
def test_weights_of_8_bits_answer(tiny_cache: str, mode: str) -> None:
    engine = built(*TINY, "--mode", mode, "--weights", "int8")
    try:
        assert engine.flags["weights"] == "int8"
        assert len(answers(engine, [(PROMPT, FIXED)])[0]) == FIXED.max_tokens
    finally:
        engine.close()


@needs("hqq")
def test_a_cache_of_8_bits_is_kept_in_8_bits_and_answers(tiny_cache: str) -> None:
    import torch

    model = network()
    cache = cache_maker(model, "int8")()
    with torch.inference_mode():
        model(torch.tensor([[20 + n % 900 for n in range(400)]]), **{cache_key(model): cache})
    kept, _ = cache.layers[0]._quantized_keys
    assert kept.dtype == torch.uint8
    engine = built(*TINY, "--kv-cache", "int8")
    try:
        assert len(answers(engine, [([20, 21, *PROMPT] * 8, FIXED)])[0]) == FIXED.max_tokens
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("options", "device", "words"),
    [
        (["--weights", "w4"], "cpu", "--weights w4: needs a GPU, not cpu"),
        (["--weights", "random,w4"], "cpu", "--weights random,w4: needs a GPU, not cpu"),
        (["--attention", "flash_attention_2"], "cpu", "flash_attention_2: needs a GPU, not cpu"),
        (["--attention", "flash_attention_2"], "cuda", "pip install 'flash-attn>=2.8.3'"),
    ],
)
def test_what_this_machine_cannot_do_is_refused(
    options: list[str], device: str, words: str
) -> None:
    with pytest.raises(EngineError) as caught:
        check(arguments().parse_args(["serve", "--mode", "dynamic", *options]), device)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "package"),
    [
        (["--weights", "int8"], "torchao"),
        (["--weights", "w4", "--device", "cuda"], "torchao"),
        (["--kv-cache", "int8"], "hqq"),
    ],
)
def test_a_missing_package_is_named_with_how_to_install_it(
    options: list[str], package: str
) -> None:
    device = "cuda" if "cuda" in options else "cpu"
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is here")
    with pytest.raises(EngineError, match=f"{package} is not installed; pip install {package}"):
        check(arguments().parse_args(["serve", "--mode", "dynamic", *options]), device)


def test_the_server_ends_with_2_and_one_line() -> None:
    command = [sys.executable, "-m", "target", "serve", *TINY, "--weights", "w4", "--port", "0"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "target: --weights w4: needs a GPU, not cpu\n"
