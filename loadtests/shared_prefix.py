"""Text that all prompts of a run begin with, where a share of them is asked to be the same."""

import random
from functools import lru_cache

# Qwen tokens of a line with its end, by language.
TOKENS = {"en": 23.6, "zh": 24.5}


@lru_cache(maxsize=64)
def shared_text(lang: str, seed: str, tokens: int) -> str:
    """About so many tokens; a longer one begins with a shorter one."""
    rng = random.Random(f"shared-{lang}-{seed}")
    lines = []
    for number in range(1, round(tokens / TOKENS[lang]) + 1):
        shelf, bins, each = rng.randrange(100, 999), rng.randrange(10, 99), rng.randrange(10, 99)
        lines.append(
            f"Note {number}: shelf {shelf} holds {bins} bins of {each} parts, counted today.\n"
            if lang == "en"
            else f"备注{number}：{shelf}号货架有{bins}个箱子，每箱{each}件，今天清点。\n"
        )
    return "".join(lines)
