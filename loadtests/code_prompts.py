"""Programming tasks: a function to write, and unit tests that tell whether it is right."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeAnswer:
    """The function's name, and calls of it: arguments and the value that must come back."""

    function: str
    tests: tuple[tuple[tuple[object, ...], object], ...]


# Qwen tokens of the fixed part and of each rule, by kind and language (docs/prompts.md).
TOKENS = {
    ("pipeline", "en"): (56.0, 24.7),
    ("pipeline", "zh"): (62.0, 23.7),
    ("score", "en"): (64.5, 21.6),
    ("score", "zh"): (73.5, 15.6),
    ("recode", "en"): (59.9, 19.9),
    ("recode", "zh"): (62.9, 20.9),
}

ASK = {
    "en": "Use only the standard library. Answer with one Python code block that defines it.",
    "zh": "只使用标准库。请用一个 Python 代码块作答，其中定义该函数。",
}

TESTS = 5


def code_problem(rng: random.Random, lang: str, tokens: int) -> tuple[str, CodeAnswer]:
    """A task of about `tokens` tokens, and the tests of its function."""
    kind = rng.choice(("pipeline", "score", "recode"))
    fixed, each = TOKENS[kind, lang]
    rules = max(2, round((tokens - fixed) / each))
    name = f"{kind}_{rng.randrange(10_000, 100_000)}"
    text, tests = TASKS[kind](rng, lang, rules, name)
    return f"{text}\n{ASK[lang]}", CodeAnswer(name, tests)


Tests = tuple[tuple[tuple[object, ...], object], ...]


def pipeline(rng: random.Random, lang: str, rules: int, name: str) -> tuple[str, Tests]:
    """A whole number goes through steps of multiplying, adding and taking a remainder."""
    en = lang == "en"
    numbers = rng.choices(range(2, 98), k=3 * rules)
    steps = [
        (numbers[3 * rule], numbers[3 * rule + 1], 100 + 9 * numbers[3 * rule + 2])
        for rule in range(rules)
    ]
    lines = [
        f"Write a Python function {name}(n) for a whole number n. It changes n in this order:"
        if en
        else f"请编写 Python 函数 {name}(n)，n 为整数。函数按以下顺序改变 n："
    ]
    lines += [
        f"{at}. multiply by {by}, add {add}, keep the remainder after division by {modulus}"
        if en
        else f"{at}. 乘以{by}，加上{add}，再取除以{modulus}的余数"
        for at, (by, add, modulus) in enumerate(steps, 1)
    ]
    lines.append("It returns the last value." if en else "函数返回最后的值。")

    def right(n: int) -> int:
        for by, add, modulus in steps:
            n = (n * by + add) % modulus
        return n

    return "\n".join(lines), tuple(((n,), right(n)) for n in rng.choices(range(1000), k=TESTS))


def score(rng: random.Random, lang: str, rules: int, name: str) -> tuple[str, Tests]:
    """Each item of a list earns points by rules of divisibility."""
    en = lang == "en"
    numbers = rng.choices(range(2, 60), k=2 * rules)
    points = [(numbers[2 * rule], numbers[2 * rule + 1]) for rule in range(rules)]
    lines = [
        f"Write a Python function {name}(items) for a list of whole numbers. Items earn points:"
        if en
        else f"请编写 Python 函数 {name}(items)，items 为整数列表。每个元素按以下规则得分："
    ]
    lines += [
        f"{at}. if it can be divided by {divisor} without a remainder, add {earns} points"
        if en
        else f"{at}. 如果能被{divisor}整除，加{earns}分"
        for at, (divisor, earns) in enumerate(points, 1)
    ]
    lines.append(
        "All rules that hold count. It returns the sum of the points of all items."
        if en
        else "所有成立的规则都计分。函数返回所有元素得分的总和。"
    )

    def right(items: list[int]) -> int:
        return sum(earns for item in items for divisor, earns in points if item % divisor == 0)

    lists = [rng.choices(range(400), k=4) for _ in range(TESTS)]
    return "\n".join(lines), tuple(((items,), right(items)) for items in lists)


def recode(rng: random.Random, lang: str, rules: int, name: str) -> tuple[str, Tests]:
    """Letters of a text are exchanged by a list of pairs, in order."""
    en = lang == "en"
    letters = "abcdefghijklmnopqrstuvwxyz"
    chosen = rng.choices(letters, k=2 * rules)
    pairs = [(chosen[2 * rule], chosen[2 * rule + 1]) for rule in range(rules)]
    lines = [
        f"Write a Python function {name}(text) for a text of small letters. It does this in order:"
        if en
        else f"请编写 Python 函数 {name}(text)，text 由小写字母组成。函数依次执行："
    ]
    lines += [
        f"{at}. replace every '{old}' by '{new}' and then turn the whole text around"
        if en
        else f"{at}. 把每个“{old}”替换为“{new}”，然后把整个文本倒过来"
        for at, (old, new) in enumerate(pairs, 1)
    ]
    lines.append("It returns the text that came of it." if en else "函数返回最后得到的文本。")

    def right(text: str) -> str:
        for old, new in pairs:
            text = text.replace(old, new)[::-1]
        return text

    words = ["".join(rng.choices(letters, k=12)) for _ in range(TESTS)]
    return "\n".join(lines), tuple(((word,), right(word)) for word in words)


TASKS = {"pipeline": pipeline, "score": score, "recode": recode}
