"""Traces that say what their prompts share: which text is the same, and how long it is."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from loadtests.prompts import prompt
from loadtests.schedule import Load, arrivals, of_worker, sessions
from loadtests.shared_prefix import BLOCK, CODE, TOKENS, blocks_text
from loadtests.trace import shared_share, trace_rows
from tests.loadtests.fault_server import fault_server
from tests.loadtests.locust_runs import load as run_load
from tests.loadtests.loops import LOAD

ROWS: tuple[tuple[int, list[int]], ...] = (
    (2000, [7, 8, 9, 12]),
    (1800, [7, 8, 9, 40]),
    (1400, [7, 20, 30]),
    (900, [50, 8]),  # 8 again, but after another beginning
    (700, []),
    (1100, [7, 8, 9]),  # its last block has no more than 76 tokens
    (2000, [7, 8, 9, 12]),
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    rows = (
        {"timestamp": 100 * at, "input_length": tokens, "output_length": 8, "hash_ids": ids}
        for at, (tokens, ids) in enumerate(ROWS)
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def replayed(trace: Path, **changes: object) -> Load:
    return replace(LOAD, arrival=f"replay:{trace}", mix={"math": 0.5, "code": 0.5}, **changes)


def texts(load: Load) -> list[str]:
    return [prompt(arrival.prompt_id).text for arrival in arrivals(load)]


def alike(one: str, other: str) -> int:
    """How many characters two texts begin with that are the same."""
    both = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(both) if a != b), min(len(one), len(other)))


def test_prompts_share_the_text_of_the_ids_that_they_begin_with(trace: Path) -> None:
    asked = texts(replayed(trace))
    for a in range(len(ROWS)):
        for b in range(a):
            first, second = ROWS[a][1], ROWS[b][1]
            common = alike("".join(map(chr, first)), "".join(map(chr, second)))
            whole = common < min(len(first), len(second)) or common == 0
            if not whole:  # the last block of one of them is shorter, to leave room for its task
                common -= 1
            shared = blocks_text(first[:common], "5", BLOCK) if common else ""
            assert asked[a].startswith(shared)
            assert asked[b].startswith(shared)
            if whole:  # by chance two codes, or heads, begin with the same character
                assert alike(asked[a], asked[b]) <= len(shared) + 3
    assert len(set(asked)) == len(ROWS)


def test_another_seed_shares_nothing_with_this_one(trace: Path) -> None:
    first, second = texts(replayed(trace)), texts(replayed(trace, seed=6))
    assert alike(first[0], second[0]) <= 3


@pytest.mark.parametrize("tokens", [60, 200, 412, BLOCK])
def test_a_block_has_its_length(tokens: int) -> None:
    for name in range(40):
        text = blocks_text([name], "5", tokens)
        code, notes = text.split("\n", 1)
        lines = notes.count("\n")  # the last of them was cut where the tokens ended
        each = TOKENS["zh" if "备注" in notes else "en"]
        assert len(code) == 12
        assert CODE + each * (lines - 1) - 1 <= tokens <= CODE + each * lines + 1


def test_a_replayed_prompt_has_about_the_tokens_of_the_trace(trace: Path) -> None:
    for (tokens, ids), text in zip(ROWS, texts(replayed(trace)), strict=True):
        if not ids:
            continue
        lines = {"en": len(re.findall(r"(?m)^Note ", text)), "zh": len(re.findall("备注", text))}
        noted = sum(TOKENS[lang] * count for lang, count in lines.items())
        own = max(100, tokens - BLOCK * len(ids))
        whole = max(tokens, BLOCK * (len(ids) - 1) + 100)
        assert noted + CODE * len(ids) + own == pytest.approx(whole, rel=0.05)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_any_number_of_workers_asks_the_same(trace: Path, workers: int) -> None:
    load = replayed(trace)
    parts = [of_worker(sessions(load), worker, workers) for worker in range(workers)]
    asked = sorted(
        (turn.seq, prompt(turn.prompt_id).text)
        for part in parts
        for session in part
        for turn in session
    )
    assert [text for _, text in asked] == texts(load)


def test_a_row_without_ids_and_later_turns_begin_apart(trace: Path) -> None:
    load = replayed(trace, turns=2)
    names = [arrival.prompt_id for arrival in arrivals(load)]
    assert names[0].endswith("-0-b7_9.12")
    assert names[1].endswith("-1")
    assert names[8].endswith("-8")


def test_the_share_that_had_stood_before_is_known(trace: Path) -> None:
    rows = trace_rows(str(trace))
    shared = 3 * 512 + 512 + 0 + 0 + 1000 + 1900  # a task of 100 tokens is always its own
    assert shared_share(rows, 10.0) == pytest.approx(shared / sum(n for n, _ in ROWS))
    assert shared_share(rows, 0.05) == 0.0


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([1, 2, 3], ":1: 3 hash_ids; 1000 tokens have 2 blocks of 512"),
        (["a"], ":1: hash_ids"),
        (7, ":1: hash_ids 7 is no list"),
        ([-1], ":1: hash_ids"),
    ],
)
def test_ids_that_cannot_be_are_named(tmp_path: Path, ids: object, words: str) -> None:
    path = tmp_path / "trace.jsonl"
    row = {"timestamp": 0, "input_length": 1000, "output_length": 8, "hash_ids": ids}
    path.write_text(json.dumps(row))
    with pytest.raises(ValueError, match=words):
        trace_rows(str(path))


def test_a_run_sends_them_and_says_how_much_was_shared(trace: Path, tmp_path: Path) -> None:
    options = ("--arrival", f"replay:{trace}", "--duration", "1s", "--warmup", "0s", "--seed", "5")
    api = ("--api-path", "/ok", "--reasoning", "none", "--model", "m")
    with fault_server() as (url, seen):
        ended = run_load(tmp_path / "run", "--host", url, *options, *api)
        refused = run_load(tmp_path / "no", "--host", url, *options, *api, "--shared-prefix", "20%")
    assert ended.code == 0, ended.stderr
    bodies = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in seen.requests[-7:]]
    sent = {body["messages"][0]["content"] for body in bodies}
    assert sent == {prompt(record.prompt_id).text for record in ended.records}
    assert ended.run.options is not None
    assert ended.run.options["shared_prefix"] == pytest.approx(0.4998, abs=0.001)
    assert ended.run.options["shared_by"] == "trace"
    assert refused.code == 2
    assert "leave it away" in refused.complaint[0]
