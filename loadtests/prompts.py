"""Prompts of our own: each unique from its first words on, of known length, with its answer.

A prompt is a pure function of its id, so that a run directory need not hold the texts:

    python -m loadtests.prompts math-zh-512-7-41     prints prompt 41 of seed 7, and its answer
    python -m loadtests.prompts --corpus             prints the corpus of the tiny model's tokenizer
"""

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loadtests.code_prompts import CodeAnswer, code_problem
from loadtests.math_prompts import MathAnswer, math_problem
from loadtests.shared_prefix import BLOCK, blocks_text, shared_text
from slo.input_lengths import CLASSES, LEAST

LANGS = ("zh", "en")

Problem = Callable[[random.Random, str, int], tuple[str, MathAnswer | CodeAnswer]]
SCENARIOS: dict[str, Problem] = {"math": math_problem, "code": code_problem}


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked, and how an answer is checked."""

    id: str
    text: str
    answer: MathAnswer | CodeAnswer


def prompt_id(
    scenario: str,
    lang: str,
    input_class: str,
    seed: int,
    index: int,
    shared: float = 0.0,
    blocks: Sequence[int] = (),
) -> str:
    """Name a prompt: "math-zh-512-7-41"; "math-zh-512-7-41-50" where half of it is shared.

    "math-zh-2000-7-41-b3_4.9" begins with the blocks 3, 4 and 9 of a trace.
    """
    name = f"{scenario}-{lang}-{input_class}-{seed}-{index}"
    if blocks:
        return f"{name}-b{_shortly(blocks)}"
    return f"{name}-{100 * shared:g}" if shared else name


def prompt(name: str) -> Prompt:
    """Make the prompt of an id.

    Raises:
        ValueError: no such id; says what is allowed.
    """
    parts = name.split("-")
    if (
        len(parts) not in (5, 6)
        or parts[0] not in SCENARIOS
        or parts[1] not in LANGS
        or not all(part.isascii() and part.isdecimal() for part in parts[2:5])
        or int(parts[2]) < LEAST
    ):
        raise ValueError(
            f"{name!r} is no prompt id; write {'|'.join(SCENARIOS)}-{'|'.join(LANGS)}"
            f"-TOKENS-SEED-INDEX, as in math-zh-512-7-41"
        )
    scenario, lang, tokens, seed = parts[0], parts[1], int(parts[2]), parts[3]
    said = parts[5] if len(parts) == 6 else "0"
    if said == "100":
        name = "-".join(parts[:4])  # whatever its index: the same text for all
    # A string seed is hashed in full: neighbouring ids share nothing, and no two Pythons differ.
    rng = random.Random(name)
    before, own = _beginning(said, lang, seed, tokens)
    text, answer = SCENARIOS[scenario](rng, lang, own)
    # The number comes first, so that no two prompts share even one block of a prefix cache.
    number = f"{rng.getrandbits(48):012x}"
    head = f"题号 {number}。" if lang == "zh" else f"Task {number}. "
    return Prompt(name, before + head + text, answer)


def _beginning(said: str, lang: str, seed: str, tokens: int) -> tuple[str, int]:
    """What stands before the task as the end of an id says, and the tokens left for the task."""
    if said.startswith("b"):
        blocks = _in_full(said[1:])
        rest = tokens - BLOCK * (len(blocks) - 1)
        last = min(BLOCK, max(0, rest - LEAST))
        return blocks_text(blocks, seed, last), max(LEAST, rest - last)
    share = float(said) / 100
    if share in (0, 1):
        return "", tokens
    return shared_text(lang, seed, round(tokens * share)), round(tokens * (1 - share))


def _shortly(blocks: Sequence[int]) -> str:
    """Numbers that follow one another by their first and last: "3_4.9"."""
    runs: list[list[int]] = []
    for block in blocks:
        if runs and block == runs[-1][-1] + 1:
            runs[-1][1:] = [block]
        else:
            runs.append([block])
    return ".".join("_".join(map(str, run)) for run in runs)


def _in_full(text: str) -> list[int]:
    runs = [list(map(int, run.split("_"))) for run in text.split(".")]
    return [block for run in runs for block in range(run[0], run[-1] + 1)]


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
        for input_class in CLASSES
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
