"""Counts our prompts with a Qwen tokenizer; how, says docs/prompts.md.

python -m tests.loadtests.prompt_tokens qwen.tiktoken          the table of docs/prompts.md
python -m tests.loadtests.prompt_tokens qwen.tiktoken --fit    the TOKENS tables of the prompts
"""

import base64
import random
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import tiktoken

from loadtests import code_prompts, math_prompts, prompts
from slo import input_lengths

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def encoding(path: str) -> tiktoken.Encoding:
    lines = Path(path).read_bytes().splitlines()
    pairs = (line.split() for line in lines if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
    return tiktoken.Encoding("qwen", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})


def table(qwen: tiktoken.Encoding) -> Iterator[str]:
    yield "| scenario | language | class | mean tokens | least | most |\n|---|---|---|---|---|---|"
    for scenario in prompts.SCENARIOS:
        for lang in prompts.LANGS:
            for size in input_lengths.CLASSES:
                ids = (prompts.prompt_id(scenario, lang, size, 0, index) for index in range(200))
                counts = [len(qwen.encode(prompts.prompt(name).text)) for name in ids]
                mean = statistics.mean(counts)
                cells = (scenario, lang, size, f"{mean:.0f}", min(counts), max(counts))
                yield f"| {' | '.join(map(str, cells))} |"


def fit(qwen: tiktoken.Encoding) -> Iterator[str]:
    for module, kinds in (
        (math_prompts, math_prompts.PROBLEMS),
        (code_prompts, code_prompts.TASKS),
    ):
        for kind, lang in module.TOKENS:
            steps, counts = [], []
            for step in (3, 10, 25, 40):
                for index in range(30):
                    rng = random.Random(f"{kind}{lang}{step}{index}")
                    named = kinds is code_prompts.TASKS
                    name = [f"{kind}_{rng.randrange(10_000, 100_000)}"] if named else []
                    text = kinds[kind](rng, lang, step, *name)[0]
                    head = "题号 123456789abc。" if lang == "zh" else "Task 123456789abc. "
                    steps.append(step)
                    counts.append(len(qwen.encode(f"{head}{text}\n{module.ASK[lang]}")))
            line = statistics.linear_regression(steps, counts)
            yield f'    ("{kind}", "{lang}"): ({line.intercept:.1f}, {line.slope:.1f}),'


if __name__ == "__main__":
    qwen = encoding(sys.argv[1])
    print("\n".join(fit(qwen) if "--fit" in sys.argv else table(qwen)))
