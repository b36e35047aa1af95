"""Counts the tokens of an answer's text with the model's own tokenizer, where one is named."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

Counter = Callable[[str], int]


@lru_cache(maxsize=2)
def counter(name: str | None) -> Counter | None:
    """The counter of a tokenizer: a tokenizer.json, a folder that holds one, or a Hub id.

    Raises:
        ValueError: the package is not installed, or there is no such tokenizer.
    """
    if name is None:
        return None
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ValueError("--tokenizer needs a package; pip install 'tailgate[tokens]'") from None
    path = Path(name)
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        if file.exists():
            tokenizer: Any = Tokenizer.from_file(str(file))
        else:
            tokenizer = Tokenizer.from_pretrained(name)
    except Exception as error:  # tokenizers raises bare Exceptions of its own
        said = " ".join(str(error).split())[:200]
        raise ValueError(f"--tokenizer {name!r}: no such file and no such model: {said}") from None
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
