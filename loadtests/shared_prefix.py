"""Text that prompts of a run begin with: the same for all, or by the blocks that a trace names."""

import math
import random
from collections.abc import Sequence
from functools import lru_cache

BLOCK = 512  # tokens, as the Mooncake traces count them

# Qwen tokens of a line with its end, by language, and of the code that a block begins with.
TOKENS = {"en": 23.6, "zh": 24.5}
CODE = 11.0


@lru_cache(maxsize=64)
def shared_text(lang: str, seed: str, tokens: int) -> str:
    """About so many tokens; a longer one begins with a shorter one."""
    return _notes(random.Random(f"shared-{lang}-{seed}"), lang, round(tokens / TOKENS[lang]))


def blocks_text(blocks: Sequence[int], seed: str, last_tokens: int) -> str:
    """The text of blocks, each of 512 tokens but the last one, which may have fewer.

    A block's text depends on its name and the seed only, so that prompts share what they should.
    """
    whole = "".join(_block(name, seed, BLOCK) for name in blocks[:-1])
    return whole + _block(blocks[-1], seed, last_tokens)


@lru_cache(maxsize=4096)
def _block(name: int, seed: str, tokens: int) -> str:
    """About so many tokens; a longer one begins with a shorter one, but for its last character."""
    if tokens <= CODE:
        return ""
    rng = random.Random(f"block-{name}-{seed}")
    lang = rng.choice(tuple(TOKENS))
    code = f"{rng.getrandbits(48):012x}\n"  # first, so that two blocks differ from there on
    lines = (tokens - CODE) / TOKENS[lang]
    text = _notes(rng, lang, math.ceil(lines))
    return f"{code}{text[: round(len(text) * lines / math.ceil(lines)) - 1]}\n"


def _notes(rng: random.Random, lang: str, lines: int) -> str:
    notes = []
    for number in range(1, lines + 1):
        shelf, bins, each = rng.randrange(100, 999), rng.randrange(10, 99), rng.randrange(10, 99)
        notes.append(
            f"Note {number}: shelf {shelf} holds {bins} bins of {each} parts, counted today.\n"
            if lang == "en"
            else f"备注{number}：{shelf}号货架有{bins}个箱子，每箱{each}件，今天清点。\n"
        )
    return "".join(notes)
