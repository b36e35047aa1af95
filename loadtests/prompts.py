"""Prompts of our own: each unique from its first words on, of known length, with its answer.

A prompt is a pure function of its id, so that a run directory need not hold the texts:

    python -m loadtests.prompts math-zh-512-7-41     prints prompt 41 of seed 7, and its answer
    python -m loadtests.prompts --corpus             prints the corpus of the tiny model's tokenizer
"""

import argparse
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass

from loadtests.code_prompts import CodeAnswer, code_problem
from loadtests.math_prompts import MathAnswer, math_problem

LANGS = ("zh", "en")
INPUT_CLASSES = ("128", "512", "896")  # about that many tokens, see docs/prompts.md

Problem = Callable[[random.Random, str, int], tuple[str, MathAnswer | CodeAnswer]]
SCENARIOS: dict[str, Problem] = {"math": math_problem, "code": code_problem}


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked, and how an answer is checked."""

    id: str
    text: str
    answer: MathAnswer | CodeAnswer


def prompt_id(scenario: str, lang: str, input_class: str, seed: int, index: int) -> str:
    """Name a prompt: "math-zh-512-7-41"."""
    return f"{scenario}-{lang}-{input_class}-{seed}-{index}"


def prompt(name: str) -> Prompt:
    """Make the prompt of an id.

    Raises:
        ValueError: no such id; says what is allowed.
    """
    parts = name.split("-")
    if (
        len(parts) != 5
        or parts[0] not in SCENARIOS
        or parts[1] not in LANGS
        or parts[2] not in INPUT_CLASSES
        or not (parts[3].isdecimal() and parts[4].isdecimal())
    ):
        raise ValueError(
            f"{name!r} is no prompt id; write {'|'.join(SCENARIOS)}-{'|'.join(LANGS)}"
            f"-{'|'.join(INPUT_CLASSES)}-SEED-INDEX, as in math-zh-512-7-41"
        )
    # A string seed is hashed in full: neighbouring ids share nothing, and no two Pythons differ.
    rng = random.Random(name)
    text, answer = SCENARIOS[parts[0]](rng, parts[1], int(parts[2]))
    # The number comes first, so that no two prompts share even one block of a prefix cache.
    number = f"{rng.getrandbits(48):012x}"
    head = f"题号 {number}。" if parts[1] == "zh" else f"Task {number}. "
    return Prompt(name, head + text, answer)


def check(name: str) -> dict[str, object]:
    """By what an answer to the prompt of an id is graded, as checks.jsonl holds it."""
    answer = prompt(name).answer
    if isinstance(answer, MathAnswer):
        return {"kind": "math", "value": answer.value}
    return {"kind": "code", "function": answer.function, "tests": answer.tests}


def corpus() -> str:
    """The text on which the tiny model's tokenizer is trained: prompts of all kinds."""
    names = [
        prompt_id(scenario, lang, input_class, 0, index)
        for scenario in SCENARIOS
        for lang in LANGS
        for input_class in INPUT_CLASSES
        for index in range(6)
    ]
    return "\n".join(prompt(name).text for name in names) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Print one prompt, or the corpus."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.prompts", description=__doc__)
    parser.add_argument("id", nargs="?", help="a prompt id, as schedule.csv has it")
    parser.add_argument("--corpus", action="store_true", help="print the tokenizer's corpus")
    options = parser.parse_args(arguments)
    if options.corpus:
        sys.stdout.write(corpus())
        return 0
    if options.id is None:
        parser.error("name a prompt id, or --corpus")
    try:
        asked = prompt(options.id)
    except ValueError as error:
        parser.error(str(error))
    sys.stdout.write(f"{asked.text}\n\n{asked.answer}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
