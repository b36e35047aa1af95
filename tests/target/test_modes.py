"""The ladder of modes over the tiny model: the same answers, each in its own way."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from target.engines import Engine, EngineError, OutOfMemoryError, Params
from target.hf_load import knows_fp8_cache
from target.random_model import SHAPE, random_model
from tests.target.building import answer, answers, built

TINY = ("--engine", "hf", "--model", "tiny", "--device", "cpu")
PROMPT = list(range(20, 60))
OTHERS = [[300, 301, 302], list(range(900, 1000)), list(range(1100, 1133))]
GREEDY = Params(24, temperature=0.0)

Build = Callable[..., Engine]


@pytest.fixture
def build(tiny_cache: str) -> Iterator[Build]:
    """Engines that are closed at the end of the test."""
    made: list[Engine] = []

    def make(*options: str) -> Engine:
        made.append(built(*TINY, *options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture(scope="module")
def known(tiny_cache: str) -> list[list[int]]:
    """What the plain mode answers to each prompt."""
    engine = built(*TINY)
    tokens = [answers(engine, [(prompt, GREEDY)])[0] for prompt in (PROMPT, *OTHERS)]
    engine.close()
    return tokens


@pytest.mark.parametrize("mode", ["nocache", "static-compile", "batch", "continuous"])
def test_every_mode_gives_the_same_answers(build: Build, known: list[list[int]], mode: str) -> None:
    engine = build("--mode", mode)
    assert (engine.mode, engine.flags["kv_cache"]) == (mode, "fp16")
    assert answers(engine, [(prompt, GREEDY) for prompt in (PROMPT, *OTHERS)]) == known


@pytest.mark.skipif(not knows_fp8_cache(), reason="this transformers has no fp8 cache")
def test_an_8_bit_cache_answers_too(build: Build) -> None:
    engine = build("--kv-cache", "fp8")
    assert len(answers(engine, [(PROMPT, replace(GREEDY, ignore_eos=True))])[0]) == 24


@pytest.mark.parametrize("mode", ["dynamic", "static-compile", "batch", "continuous"])
def test_a_client_that_goes_away_leaves_nothing_behind(
    build: Build, known: list[list[int]], mode: str
) -> None:
    engine = build("--mode", mode)

    async def leave_and_ask() -> tuple[list[int], float]:
        await asyncio.gather(
            *(answer(engine, p, replace(GREEDY, max_tokens=1500), most=3) for p in OTHERS)
        )
        start = time.monotonic()
        tokens, _ = await answer(engine, PROMPT, GREEDY)
        return tokens, time.monotonic() - start

    tokens, seconds = asyncio.run(leave_and_ask())
    assert tokens == known[0]
    assert seconds < 3  # 3 x 1,500 tokens would take far longer


def tokens_per_s(engine: Engine) -> float:
    """Of 16 requests that come at once."""
    fixed = Params(48, temperature=0.6, ignore_eos=True)
    asked = [([20 + n, *PROMPT], fixed) for n in range(16)]
    start = time.monotonic()
    made = sum(len(tokens) for tokens in answers(engine, asked))
    return made / (time.monotonic() - start)


def test_a_batch_beats_one_request_at_a_time(build: Build) -> None:
    alone, together = build(), build("--mode", "batch")
    tokens_per_s(together)  # warm
    assert tokens_per_s(together) > 2.5 * tokens_per_s(alone)  # on a GPU: more than 5
    assert together.gauges()["batch"] > 8


def test_a_batch_by_the_articles_table_is_smaller_for_long_prompts(build: Build) -> None:
    engine = build("--mode", "batch", "--batch-by-length", "--batch-wait-ms", "200")
    long = [[20 + n] * 600 for n in range(4)]
    answers(engine, [(prompt, Params(4)) for prompt in long])
    assert engine.gauges()["batch"] == 2


def test_without_memory_a_batch_gets_smaller_and_the_engine_lives_on(
    build: Build, known: list[list[int]]
) -> None:
    fault = "out-of-memory:share=0.2"  # with this seed some of the first sixteen
    engine = build("--mode", "batch", "--fault", fault, "--seed", "3", "--batch-wait-ms", "200")

    async def sixteen() -> list[object]:
        jobs = (answer(engine, PROMPT, GREEDY) for _ in range(16))
        return list(await asyncio.gather(*jobs, return_exceptions=True))

    got = asyncio.run(sixteen())
    assert all(isinstance(one, OutOfMemoryError) for one in got)
    assert engine.gauges()["max_batch"] == 8
    assert engine.trouble() is None
    after = [one for one in asyncio.run(sixteen()) if not isinstance(one, OutOfMemoryError)]
    assert all(one == (known[0], one[1]) for one in after)  # type: ignore[index]


def test_a_batching_loop_that_died_is_built_again(build: Build, known: list[list[int]]) -> None:
    engine = build("--mode", "continuous", "--fault", "out-of-memory:share=0.3", "--seed", "1")

    async def one_by_one() -> list[object]:
        got: list[object] = []
        for _ in range(8):
            try:
                got.append((await answer(engine, PROMPT, GREEDY))[0])
            except OutOfMemoryError as error:
                got.append(error)
        return got

    got = asyncio.run(one_by_one())
    died = sum(isinstance(one, OutOfMemoryError) for one in got)
    assert 0 < died < 6
    assert engine.gauges()["rebuilds"] == died
    assert [one for one in got if not isinstance(one, Exception)] == [known[0]] * (8 - died)
    assert engine.trouble() is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--mode", "turbo"], "allowed with --engine hf: nocache, dynamic, static-compile"),
        (["--attention", "flash_attention_2"], "needs a GPU, not cpu"),
        (["--kv-cache", "int8"], "pip install hqq"),
        (["--kv-cache", "fp8", "--mode", "batch"], "allowed with --mode dynamic"),
        (["--weights", "int8"], "pip install torchao"),
        (["--max-running", "2"], "allowed with --mode dynamic: 1"),
        (["--nvtx"], "--nvtx: needs a GPU"),
        (["--mode", "continuous", "--kv-cache-gib", "2"], "--kv-cache-gib: needs a GPU, not cpu"),
        (["--engine", "sim", "--gpu", "l4", "--weights", "random"], "fp16, int8, w4"),
        (["--engine", "vllm", "--mode", "vllm-fp8kv", "--kv-cache", "int8"], "vllm-fp8kv is fp8"),
        (["--engine", "vllm", "--mode", "vllm-w4", "--weights", "fp16"], "vllm-w4 is w4"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    build: Build, options: list[str], words: str
) -> None:
    with pytest.raises(EngineError) as caught:
        build(*options)
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_trace_of_the_first_requests_is_written(build: Build, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    engine = build("--profile", "2", "--profile-out", str(trace))
    answers(engine, [(PROMPT, Params(3))])
    assert not trace.exists()
    answers(engine, [(PROMPT, Params(3)), (PROMPT, Params(3))])
    names = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"prefill", "decode", "aten::linear"} <= names


def test_the_full_shape_has_a_word_for_every_id(tiny_cache: str) -> None:
    from transformers import AutoTokenizer

    folder = random_model()
    assert folder == random_model()
    config = json.loads((folder / "config.json").read_text())
    assert {key: config[key] for key in SHAPE if key != "rope_theta"} == {
        key: value for key, value in SHAPE.items() if key != "rope_theta"
    }
    assert not list(folder.glob("*.safetensors"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode([151_935, 3100]) == " w151935 w3100"
    quantised = json.loads((random_model(2, w4=True) / "config.json").read_text())
    assert quantised["num_hidden_layers"] == 2
    assert quantised["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] == 4
