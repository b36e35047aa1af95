"""Real inference: the plain engine over the tiny model."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from target import errors
from target.engines import EngineError, OutOfMemoryError, Params, Step, Timings
from target.hf_decode import Model, Row, decode
from target.hf_load import cache_key, usable_device, vocabulary_of
from target.hf_worker import article_batch, attempt
from target.sampling import draw
from target.tiny_model import tiny_model
from tests.serving import started_target
from tests.target.asking import QUESTION, chat, deltas, events, metric, said, until
from tests.target.test_sim_engine import cpu_s

GREEDY = Params(40, temperature=0.0)


DEVICES = ("cpu", "cuda") if Path("/dev/nvidiactl").exists() else ("cpu",)


@pytest.fixture(scope="module", params=DEVICES)
def model(tiny_cache: str, request: pytest.FixtureRequest) -> Model:
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(tiny_model(), dtype="float32")
    device: str = request.param
    return Model(network.to(device), cache_key(network), device, (1,), 99)


Emitted = list[Step | Timings | Exception]


def answers(model: Model, asked: list[tuple[list[int], Params]], **how: bool) -> list[list[int]]:
    """The tokens of requests that are decoded together."""
    emitted: list[Emitted] = [[] for _ in asked]
    rows = [Row(p, q, out.append) for (p, q), out in zip(asked, emitted, strict=True)]
    decode(model, rows, **how)
    for parts in emitted:
        *steps, timings = parts
        assert isinstance(timings, Timings)
        assert [bool(step.finish) for step in steps] == [False] * (len(steps) - 1) + [True]  # type: ignore[union-attr]
    return [[t for part in parts if isinstance(part, Step) for t in part.tokens]
            for parts in emitted]  # fmt: skip


def tokens(model: Model, prompt: list[int], params: Params, **how: bool) -> list[int]:
    return answers(model, [(prompt, params)], **how)[0]


def test_greedy_decoding_gives_what_transformers_generate_gives(model: Model) -> None:
    import torch

    prompt = list(range(20, 60))
    known = model.network.generate(
        torch.tensor([prompt], device=model.device),
        max_new_tokens=40,
        do_sample=False,
        temperature=None,
        top_p=None,
    )
    assert tokens(model, prompt, GREEDY) == known[0, len(prompt) :].tolist()


def test_an_end_token_ends_the_answer_unless_it_must_be_longer(model: Model) -> None:
    prompt = list(range(20, 60))
    free = tokens(model, prompt, GREEDY)
    ending = replace(model, eos=(free[5],))
    assert tokens(ending, prompt, GREEDY) == free[: free.index(free[5]) + 1]
    assert len(tokens(ending, prompt, replace(GREEDY, min_tokens=20))) > 20
    kept = tokens(ending, prompt, replace(GREEDY, ignore_eos=True))
    assert len(kept) == 40
    assert free[5] not in kept


def test_reasoning_is_closed_after_its_budget(model: Model) -> None:
    got = tokens(model, [20, 21], replace(GREEDY, think_tokens=7))
    assert got[7] == 99
    assert 99 not in got[:7]


def test_a_set_stop_ends_the_computation_before_the_next_token(model: Model) -> None:
    parts: Emitted = []
    row = Row([20, 21], GREEDY, parts.append)

    def emit(part: Step | Timings | Exception) -> None:
        parts.append(part)
        if len(parts) == 3:
            row.stop.set()

    row.emit = emit
    decode(model, [row])
    assert [type(part) for part in parts] == [Step, Step, Step, Timings]


def test_requests_of_a_batch_get_what_each_gets_alone(model: Model) -> None:
    asked = [
        (list(range(20, 60)), GREEDY),
        ([300, 301, 302], replace(GREEDY, max_tokens=7)),
        (list(range(900, 1000)), replace(GREEDY, think_tokens=3)),
        ([5], replace(GREEDY, max_tokens=1)),
    ]
    assert answers(model, asked) == [tokens(model, *one) for one in asked]


def test_a_request_that_leaves_a_batch_does_not_change_the_others(model: Model) -> None:
    prompts = [list(range(20, 40)), list(range(500, 530))]
    kept, gone = [], []
    rows = [Row(prompts[0], GREEDY, kept.append), Row(prompts[1], GREEDY, gone.append)]
    emit = gone.append

    def leave(part: Step | Timings | Exception) -> None:
        emit(part)
        if len(gone) == 5:
            rows[1].stop.set()

    rows[1].emit = leave
    decode(model, rows)
    assert len(gone) == 6
    got = [token for part in kept if isinstance(part, Step) for token in part.tokens]
    assert got == tokens(model, prompts[0], GREEDY)


def test_without_a_cache_the_tokens_are_the_same(model: Model) -> None:
    prompt = list(range(20, 60))
    assert tokens(model, prompt, GREEDY, use_cache=False) == tokens(model, prompt, GREEDY)


def test_the_seed_of_a_request_fixes_its_draws_in_any_company(model: Model) -> None:
    drawn = replace(GREEDY, temperature=0.9, top_p=1.0, seed=5)
    other = ([40] * 30, replace(drawn, seed=6))
    alone = tokens(model, [40] * 30, drawn)
    assert answers(model, [other, ([40] * 30, drawn)])[1] == alone
    assert tokens(model, *other) != alone


def test_the_articles_batch_sizes_follow_the_longest_prompt() -> None:
    sizes = [article_batch(tokens) for tokens in (1, 256, 257, 512, 513, 4000)]
    assert sizes == [8, 8, 4, 4, 2, 2]


def test_sampling_stays_within_the_nucleus() -> None:
    import torch

    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    generator = torch.Generator().manual_seed(0)

    def drawn(top_p: float, temperature: float = 1.0) -> set[int]:
        params = Params(1, temperature=temperature, top_p=top_p)
        rows = logits.repeat(400, 1)
        return set(draw(rows, [params] * 400, [generator] * 400).tolist())

    assert drawn(0.4) == {0}
    assert drawn(0.7) == {0, 1}
    assert drawn(1.0) == {0, 1, 2, 3}
    assert drawn(1.0, temperature=0.0) == {0}


def test_a_lack_of_memory_is_answered_503_and_the_engine_lives_on() -> None:
    import torch

    def exhausted() -> Any:
        raise torch.OutOfMemoryError("tried to allocate 2.00 GiB\nmore lines")

    error = attempt(exhausted)
    assert isinstance(error, OutOfMemoryError)
    answer = errors.as_answer(error)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert b"tried to allocate 2.00 GiB" in answer.body
    assert b"more lines" not in answer.body


def test_a_device_that_is_not_there_is_named() -> None:
    for device in ("cuda:7", "cuda:x", "tpu", "cpu:1"):
        with pytest.raises(EngineError, match=f"--device {device}: not here; allowed: cpu"):
            usable_device(device)


def test_the_served_text_is_valid_whole_and_as_long_as_asked(tiny: str) -> None:
    answer = chat(tiny, stream=True, max_tokens=120, stream_options={"include_usage": True})
    text = "".join(deltas(answer))
    usage = events(answer)[-1]["usage"]
    assert usage["completion_tokens"] == 120
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 32
    assert "\ufffd" not in text
    assert text.startswith("<think>\n")
    assert text.count("</think>") == 1
    assert len(deltas(answer)) == 121  # one chunk a token, and the mark that the prompt holds


def test_a_seed_fixes_the_answer(tiny: str) -> None:
    assert said(tiny, seed=5) == said(tiny, seed=5)
    assert said(tiny, seed=5) != said(tiny, seed=6)
    assert said(tiny) != said(tiny)
    assert said(tiny, temperature=0) == said(tiny, temperature=0)


def test_one_request_is_computed_at_a_time(tiny: str) -> None:
    start = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(chat, tiny, max_tokens=150) for _ in range(3)]
        stages = [job.result().json()["timings"] for job in jobs]
    wall_ms = (time.monotonic() - start) * 1000
    assert sum(stage["prefill_ms"] + stage["decode_ms"] for stage in stages) < wall_ms
    assert max(stage["queue_ms"] for stage in stages) > 20


def test_info_names_the_packages_that_decide_speed(tiny: str) -> None:
    info = httpx.get(f"{tiny}/info").json()
    assert (info["model"], info["mode"], info["dtype"]) == ("tiny", "dynamic", "float32")
    assert (info["device"], info["gpu"], info["flags"]["threads"]) == ("cpu", None, 1)
    assert {"torch", "transformers", "tokenizers"} <= set(info["versions"])


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(tiny: str) -> None:
    answer = chat(tiny, max_tokens=4096)
    assert answer.status_code == 400
    assert "the context is 4096 tokens" in answer.json()["error"]["message"]
    assert "4096 for the answer" in answer.json()["error"]["message"]


def test_nothing_is_computed_for_a_client_that_went_away(tiny_cache: str) -> None:
    with started_target("--engine", "hf", "--model", "tiny", "--device", "cpu") as target:
        url, pid = target.url, target.process.pid
        body = {"messages": QUESTION, "max_tokens": 3000, "stream": True}
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
            for _ in zip(range(20), answer.iter_lines(), strict=False):
                pass
        until(lambda: metric(url, "tailgate_requests_running") == 0)
        made, used = metric(url, "tailgate_output_tokens_total"), cpu_s(pid)
        Event().wait(0.5)  # nothing may happen meanwhile
        assert metric(url, "tailgate_output_tokens_total") == made < 2500
        assert cpu_s(pid) - used < 0.25


def test_a_folder_is_served_like_any_model_and_its_name_is_its_path(tiny_cache: str) -> None:
    folder = str(tiny_model())
    options = ("--engine", "hf", "--model", folder, "--device", "cpu", "--reasoning", "none")
    with started_target(*options) as target:
        info = httpx.get(f"{target.url}/info").json()
        assert (info["model"], info["think_tokens"]) == (folder, None)
        assert "think" not in said(target.url, model=folder, max_tokens=30)


def test_a_model_that_is_not_there_is_one_line(tmp_path: Any) -> None:
    with (
        pytest.raises(RuntimeError) as caught,
        started_target("--engine", "hf", "--model", str(tmp_path), "--device", "cpu"),
    ):
        pass
    _, line = str(caught.value).split("\n", 1)
    assert line.startswith(f"target: --model {tmp_path}: ")
    assert len(line.splitlines()) == 1


def test_a_character_waits_for_all_its_tokens(tiny_cache: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model())
    text = "a🙂b"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert len(ids) > len(text)
    decode_one = vocabulary_of(tokenizer).decoder()
    shown = [decode_one(token) for token in ids]
    assert "".join(shown) == text
    assert [part for part in shown if part] == list(text)


def test_a_chat_template_without_reasoning_in_it_closes_it(tiny_cache: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model())
    vocabulary = vocabulary_of(tokenizer)
    messages = json.loads(json.dumps(QUESTION))
    thinking, opened = vocabulary.encode_chat(messages, True)
    closed, still_open = vocabulary.encode_chat(messages, False)
    assert (opened, still_open) == (True, False)
    assert tokenizer.decode(thinking).endswith("<think>\n")
    assert tokenizer.decode(closed).endswith("<think>\n\n</think>\n\n")
