"""The OpenAI API as clients see it, over the simulated engine."""

import httpx
import pytest

from tests.serving import running_target
from tests.target.asking import QUESTION, chat, deltas, events, metric, said

CHUNK = {"id", "object", "created", "model", "choices"}


def test_a_stream_has_the_chunks_of_the_openai_api(sim: str) -> None:
    got = events(chat(sim, stream=True, stream_options={"include_usage": True}, max_tokens=10))
    first, *texts, ending, usage = got
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    for event in got[:-1]:
        assert set(event) == CHUNK
        assert event["object"] == "chat.completion.chunk"
        assert set(event["choices"][0]) == {"index", "delta", "logprobs", "finish_reason"}
    assert {event["id"] for event in got} == {first["id"]}
    assert [event["choices"][0]["finish_reason"] for event in texts] == [None] * len(texts)
    assert ending["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "length",
    }
    assert set(usage) == {*CHUNK, "usage", "timings"}
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 10
    assert usage["usage"]["completion_tokens_details"] == {"reasoning_tokens": 5}
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + 10
    assert set(usage["timings"]) == {
        "queue_ms",
        "tokenize_ms",
        "prefill_ms",
        "decode_ms",
        "detokenize_ms",
    }


def test_without_usage_the_timings_come_with_the_reason_for_the_end(sim: str) -> None:
    last = events(chat(sim, stream=True))[-1]
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["timings"]["prefill_ms"] >= 5
    assert "usage" not in last


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_usage_comes_with_each_chunk_where_it_is_asked_for(sim: str, path: str) -> None:
    wanted = {"include_usage": True, "continuous_usage_stats": True}
    asked = {"messages": QUESTION} if path.startswith("chat") else {"prompt": "Hello"}
    body = {**asked, "max_tokens": 8, "stream": True, "stream_options": wanted}
    got = events(httpx.post(f"{sim}/v1/{path}", json=body))
    counts = [event["usage"]["completion_tokens"] for event in got]
    first = [0] if path.startswith("chat") else []
    assert counts == sorted(counts)
    assert set(counts) == {*first, *range(1, 9)}
    assert counts[-3:] == [8, 8, 8]  # the last text, the reason for the end, the usage
    assert [event["choices"] for event in got[-1:]] == [[]]
    assert len({event["usage"]["prompt_tokens"] for event in got}) == 1
    thoughts = [event["usage"].get("completion_tokens_details") for event in got]
    assert thoughts[-1] == ({"reasoning_tokens": 4} if first else None)
    assert thoughts[:2] == ([None, {"reasoning_tokens": 1}] if first else [None, None])


def test_continuous_usage_alone_is_none_as_in_vllm(sim: str) -> None:
    got = events(chat(sim, stream=True, stream_options={"continuous_usage_stats": True}))
    assert all("usage" not in event for event in got)


def test_streamed_and_whole_answers_have_the_same_text(sim: str) -> None:
    streamed = "".join(deltas(chat(sim, stream=True, seed=7)))
    assert said(sim, seed=7) == streamed
    assert said(sim, seed=8) != streamed


def test_a_whole_answer_names_its_stages_in_the_server_timing_header(sim: str) -> None:
    answer = chat(sim)
    stages = dict(part.split(";dur=") for part in answer.headers["server-timing"].split(", "))
    assert set(stages) == {"queue", "tokenize", "prefill", "decode", "detokenize"}
    assert float(stages["prefill"]) >= 5
    assert answer.json()["object"] == "chat.completion"
    assert answer.json()["timings"]["decode_ms"] == float(stages["decode"])


@pytest.mark.parametrize("mode", ["tag", "prompt-opened", "field", "none"])
def test_reasoning_is_presented_as_the_switch_says(mode: str) -> None:
    think = ("--think-tokens", "3") if mode != "none" else ()
    with running_target("--engine", "sim", "--reasoning", mode, *think) as url:
        assert httpx.get(f"{url}/info").json()["reasoning"] == mode
        streamed = chat(url, stream=True, stream_options={"include_usage": True})
        content = "".join(deltas(streamed))
        reasoning = "".join(deltas(streamed, "reasoning_content"))
        usage = events(streamed)[-1]["usage"]
        message = chat(url).json()["choices"][0]["message"]
    assert content.startswith("<think>\n") == (mode == "tag")
    assert content.count("</think>") == (mode in ("tag", "prompt-opened"))
    assert len(reasoning.split()) == (3 if mode == "field" else 0)
    assert ("reasoning_content" in message) == (mode == "field")
    assert ("completion_tokens_details" in usage) == (mode != "none")
    assert usage["completion_tokens"] == 16


def test_reasoning_ends_within_half_of_a_short_answer(sim: str) -> None:
    usage = chat(sim, max_tokens=6).json()["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 3


def test_a_stop_string_ends_the_answer_and_is_not_shown(sim: str) -> None:
    whole = said(sim, seed=3, max_tokens=40)
    words = whole.split("</think>")[1].split(" ")
    stop = f"{words[4]} {words[5]}"  # across two tokens
    answer = chat(sim, seed=3, max_tokens=40, stop=stop)
    choice = answer.json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == whole[: whole.index(stop)]
    assert (
        "".join(deltas(chat(sim, seed=3, max_tokens=40, stop=[stop], stream=True)))
        == (whole[: whole.index(stop)])
    )
    late = chat(sim, seed=3, max_tokens=40, stop=stop, min_tokens=39).json()
    assert late["usage"]["completion_tokens"] >= 39


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"messages": None}, "messages", "list"),
        ({"messages": []}, "messages", "at least 1"),
        ({"max_tokens": "5"}, "max_tokens", "integer (got '5')"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"temprature": 0.5}, "temprature", "unknown key"),
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"stream": "yes"}, "stream", "boolean"),
        ({"stream_options": {"usage": True}}, "stream_options.usage", "unknown key"),
        ({"n": 2}, "n", "should be 1"),
        ({"min_tokens": 17}, "min_tokens", "17, more than max_tokens, 16"),
    ],
)
def test_a_wrong_body_is_refused_with_its_key(
    sim: str, change: dict[str, object], param: str, words: str
) -> None:
    before = metric(sim, 'tailgate_requests_total{outcome="invalid"}')
    answer = chat(sim, **change)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert words in error["message"]
    assert metric(sim, 'tailgate_requests_total{outcome="invalid"}') == before + 1


def test_all_mistakes_of_a_body_are_named_at_once(sim: str) -> None:
    message = chat(sim, tempo=1, max_tokens="x").json()["error"]["message"]
    assert "tempo: unknown key" in message
    assert "max_tokens: " in message


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_beyond_the_context_is_refused_with_both_numbers(sim: str, stream: bool) -> None:
    answer = chat(sim, max_tokens=40_000, stream=stream)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "32768 tokens" in error["message"]
    assert "40000 for the answer" in error["message"]


def test_other_mistakes_have_the_same_form(sim: str) -> None:
    assert chat(sim, model="gpt-4").json()["error"]["code"] == "model_not_found"
    assert chat(sim, model="sim").status_code == 200
    missing = httpx.get(f"{sim}/v1/nothing")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    method = httpx.get(f"{sim}/v1/chat/completions")
    assert (method.status_code, method.json()["error"]["code"]) == (405, "method_not_allowed")
    form = httpx.post(f"{sim}/v1/chat/completions", content=b"{}")
    assert form.status_code == 400
    assert "application/json" in form.json()["error"]["message"]


def test_text_parts_and_the_newer_names_are_taken(sim: str) -> None:
    parts = [{"role": "developer", "content": [{"type": "text", "text": "Be short."}]}, *QUESTION]
    answer = chat(sim, messages=parts, max_tokens=None, max_completion_tokens=4)
    assert answer.json()["usage"]["completion_tokens"] == 4


def test_completions_stream_and_do_not(sim: str) -> None:
    body = {"prompt": "1, 2, 3,", "max_tokens": 5, "seed": 1}
    whole = httpx.post(f"{sim}/v1/completions", json=body).json()
    assert whole["object"] == "text_completion"
    streamed = events(httpx.post(f"{sim}/v1/completions", json={**body, "stream": True}))
    assert all(event["object"] == "text_completion" for event in streamed)
    assert (
        "".join(event["choices"][0]["text"] for event in streamed) == (whole["choices"][0]["text"])
    )
    assert "think" not in whole["choices"][0]["text"]


def test_the_articles_routes_answer_as_the_articles_have_them(sim: str) -> None:
    body = {"prompt": "证明 1 + 1 = 2", "temperature": 0.6, "max_tokens": 12}
    answer = httpx.post(f"{sim}/generate", json=body).json()
    assert list(answer) == ["response"]
    assert len(answer["response"].split()) == 12
    with httpx.stream("POST", f"{sim}/generate_stream", json=body) as stream:
        lines = [httpx.Response(200, text=line).json() for line in stream.iter_lines() if line]
    assert [list(line) for line in lines[:-1]] == [["response"]] * 12
    assert lines[-1]["finish_reason"] == "length"


def test_the_server_says_what_it_is(sim: str) -> None:
    info = httpx.get(f"{sim}/info").json()
    assert (info["model"], info["engine"], info["mode"]) == ("sim", "sim", "fixed")
    assert info["versions"]["fastapi"]
    assert info["gpu"] is None
    assert httpx.get(f"{sim}/health").json() == {"status": "ready"}
    (model,) = httpx.get(f"{sim}/v1/models").json()["data"]
    assert (model["id"], model["object"], model["max_model_len"]) == ("sim", "model", 32768)


def test_the_clock_is_read_at_both_ends_of_the_answer(sim: str) -> None:
    clock = httpx.get(f"{sim}/clock").json()
    assert clock["receive_mono_ns"] < clock["send_mono_ns"]
    assert clock["receive_wall_ns"] <= clock["send_wall_ns"]
