"""Prompts: unique, of known length, the same for the same id, with answers that are right."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.code_prompts import CodeAnswer
from loadtests.math_prompts import MathAnswer
from loadtests.prompts import LANGS, SCENARIOS, corpus, prompt, prompt_id
from slo.input_lengths import CLASSES

ROOT = Path(__file__).parent.parent.parent


def ids(count: int, *, seed: int = 3, scenarios: tuple[str, ...] = ("math", "code")) -> list[str]:
    return [
        prompt_id(scenario, lang, size, seed, index)
        for scenario in scenarios
        for lang in LANGS
        for size in CLASSES
        for index in range(count)
    ]


def test_no_two_prompts_begin_alike() -> None:
    starts = [prompt(name).text[:20] for seed in (1, 2) for name in ids(100, seed=seed)]
    assert len(set(starts)) == len(starts)


def test_a_prompt_is_a_function_of_its_id_in_any_process() -> None:
    name = "code-zh-512-9-77"
    command = [sys.executable, "-m", "loadtests.prompts", name]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert shown.startswith(prompt(name).text)


def test_longer_classes_are_longer_in_proportion() -> None:
    for scenario in SCENARIOS:
        for lang in LANGS:
            sizes = [
                sum(len(prompt(prompt_id(scenario, lang, c, 1, i)).text) for i in range(40)) / 40
                for c in CLASSES
            ]
            assert 3.0 < sizes[1] / sizes[0] < 6.0
            assert 1.6 < sizes[2] / sizes[1] < 2.0


def test_languages_are_what_they_say() -> None:
    for name in ids(5):
        chinese = len(re.findall(r"[\u4e00-\u9fff]", prompt(name).text))
        assert (chinese > 20) == ("-zh-" in name)


def test_the_stock_problem_comes_out_as_the_text_says() -> None:
    for index in range(60):
        asked = prompt(prompt_id("math", "en", "128", 4, index))
        found = re.findall(r"(\d+) crates of (\d+) \w+ arrive, and (\d+)", asked.text)
        if not found:
            continue
        left = int(re.search(r"holds (\d+)", asked.text)[1])  # type: ignore[index]
        for crates, each, out in found:
            left += int(crates) * int(each) - int(out)
        assert asked.answer == MathAnswer(left)


def test_the_bill_and_the_walk_come_out_as_the_text_says() -> None:
    seen = set()
    for index in range(60):
        asked = prompt(prompt_id("math", "zh", "128", 4, index))
        x = y = total = 0
        for way, length, times in re.findall(r"向(.)走(\d+)个街区，连续走(\d+)次", asked.text):
            step = int(length) * int(times)
            x += {"东": step, "西": -step}.get(way, 0)
            y += {"北": step, "南": -step}.get(way, 0)
        for count, price, off in re.findall(r"(\d+)件\w+，每件(\d+)分，优惠(\d+)分", asked.text):
            total += int(count) * int(price) - int(off)
        if x or y or total:
            seen.add("walk" if x or y else "bill")
            assert asked.answer == MathAnswer(total or abs(x) + abs(y))
    assert seen == {"walk", "bill"}


def test_a_function_written_by_the_text_passes_its_tests() -> None:
    seen = set()
    for name in ids(15, scenarios=("code",)):
        asked = prompt(name)
        assert isinstance(asked.answer, CodeAnswer)
        assert f"{asked.answer.function}(" in asked.text
        kind = asked.answer.function.split("_")[0]
        seen.add(kind)
        rules = [line for line in asked.text.splitlines() if re.match(r"\d+\. ", line)]
        for (argument,), wanted in asked.answer.tests:
            assert by_the_text(kind, rules, argument) == wanted
    assert seen == {"pipeline", "score", "recode"}


def by_the_text(kind: str, rules: list[str], value: object) -> object:
    if kind == "score":
        points = [tuple(map(int, re.findall(r"\d+", rule)[1:])) for rule in rules]
        assert isinstance(value, list)
        return sum(earns for item in value for by, earns in points if item % by == 0)
    for rule in rules:
        if kind == "pipeline":
            by, add, modulus = map(int, re.findall(r"\d+", rule)[1:])
            assert isinstance(value, int)
            value = (value * by + add) % modulus
        else:
            old, new = re.findall(r"['“]([a-z])['”]", rule)
            assert isinstance(value, str)
            value = value.replace(old, new)[::-1]
    return value


@pytest.mark.parametrize(
    "name", ["", "math", "math-fr-128-1-1", "math-zh-99-1-1", "math-zh-128-a-1"]
)
def test_a_wrong_id_is_refused_with_what_is_allowed(name: str) -> None:
    with pytest.raises(ValueError, match="SEED-INDEX"):
        prompt(name)


def test_the_tiny_models_corpus_is_the_one_that_the_prompts_make() -> None:
    assert (ROOT / "target" / "tiny_corpus.txt").read_text(encoding="utf-8") == corpus()
