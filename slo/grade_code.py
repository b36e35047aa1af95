"""Does the function that an answer defines return what it should?"""

import ast
import re
from collections.abc import Sequence

_BLOCK = re.compile(r"```[ \t]*(?:python3?|py)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.S | re.I)


def code_of(text: str, function: str) -> str | None:
    """The last code block that defines the function, or the text where it is code; else None."""
    for block in [*reversed(_BLOCK.findall(text)), text]:
        if _defines(block, function):
            return str(block)
    return None


def _defines(code: str, function: str) -> bool:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return any(isinstance(n, ast.FunctionDef) and n.name == function for n in tree.body)


def first_wrong(values: Sequence[object], tests: Sequence[Sequence[object]]) -> str | None:
    """The first call that did not return what it should, in words; None where all did."""
    for value, (arguments, right) in zip(values, tests, strict=True):
        if type(value) is not type(right) or value != right:
            return f"{arguments!r:.60} gave {value!r:.60}, not {right!r:.60}"
    return None
