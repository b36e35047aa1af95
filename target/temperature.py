"""The articles' habit of choosing the temperature by the kind of the prompt, as an option."""

import re
from collections.abc import Mapping

KINDS = ("math", "code", "other")
Policy = Mapping[str, float]

CODE = re.compile(
    r"```|\b(def|class|import|function|python|javascript|rust|sql|bug|compile|refactor|unit test)\b"
    r"|代码|函数|编程|程序",
    re.IGNORECASE,
)
MATH = re.compile(
    r"\d\s*[-+*/^=×÷]\s*\d|\\(boxed|frac|sqrt|int|sum)\b"
    r"|\b(solve|prove|equation|integral|derivative|probability|how many|calculate|remainder)\b"
    r"|计算|方程|求解|证明|概率|多少",
    re.IGNORECASE,
)


def kind_of(prompt: str) -> str:
    """Code before math, since code is full of numbers; `other` where neither shows."""
    if CODE.search(prompt):
        return "code"
    return "math" if MATH.search(prompt) else "other"


def read_policy(text: str | None) -> Policy:
    """Read math=0.6,code=0.2,other=0.8; raises ValueError with what is allowed."""
    policy = {}
    for part in text.split(",") if text else ():
        kind, _, value = part.partition("=")
        try:
            temperature = float(value)
        except ValueError:
            temperature = -1.0
        if kind not in KINDS or not 0 <= temperature <= 2:
            allowed = ", ".join(KINDS)
            raise ValueError(f"{part!r}; allowed: {allowed}, each =TEMPERATURE from 0 to 2")
        policy[kind] = temperature
    return policy
