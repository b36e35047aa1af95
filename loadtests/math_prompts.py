"""Word problems whose answer is one whole number, in as many steps as the wanted length takes."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MathAnswer:
    """The one right value."""

    value: int


# Qwen tokens of the fixed part and of each step, by kind and language (docs/prompts.md).
TOKENS = {
    ("stock", "en"): (52.3, 23.8),
    ("stock", "zh"): (55.8, 22.7),
    ("walk", "en"): (62.9, 19.7),
    ("walk", "zh"): (54.7, 17.5),
    ("bill", "en"): (46.6, 21.7),
    ("bill", "zh"): (44.6, 20.0),
}

ASK = {
    "en": "Think it through step by step. On the last line write the result only: \\boxed{number}",
    "zh": "请逐步推理，并在最后一行只写结果，格式为 \\boxed{数字}。",
}

GOODS = {
    "en": ("pears", "bolts", "lamps", "books", "tiles", "cups", "ropes", "seeds"),
    "zh": ("梨", "螺栓", "台灯", "书", "瓷砖", "杯子", "绳子", "种子"),
}


def math_problem(rng: random.Random, lang: str, tokens: int) -> tuple[str, MathAnswer]:
    """A problem of about `tokens` tokens and its value."""
    kind = rng.choice(("stock", "walk", "bill"))
    fixed, each = TOKENS[kind, lang]
    steps = max(2, round((tokens - fixed) / each))
    text, value = PROBLEMS[kind](rng, lang, steps)
    return f"{text}\n{ASK[lang]}", MathAnswer(value)


def stock(rng: random.Random, lang: str, steps: int) -> tuple[str, int]:
    """Goods come in by the crate and go out one by one: how many are left?"""
    goods = rng.choice(GOODS[lang])
    left = rng.randrange(200, 900)
    en = lang == "en"
    lines = [
        f"A store holds {left} {goods} in the morning of day 0."
        if en
        else f"第0天早上，仓库里有{left}件{goods}。"
    ]
    numbers = rng.choices(range(3, 40), k=3 * steps)
    for day in range(1, steps + 1):
        crates, each, out = numbers[3 * day - 3 : 3 * day]
        left += crates * each - out
        lines.append(
            f"Day {day}: {crates} crates of {each} {goods} arrive, and {out} {goods} are sold."
            if en
            else f"第{day}天：运来{crates}箱，每箱{each}件，卖出{out}件{goods}。"
        )
    lines.append(
        f"How many {goods} are left after day {steps}?"
        if en
        else f"第{steps}天之后，仓库里还剩多少件{goods}？"
    )
    return "\n".join(lines), left


def walk(rng: random.Random, lang: str, steps: int) -> tuple[str, int]:
    """A robot walks on a grid: how far is it from its start, along the streets?"""
    names = ("north", "east", "south", "west") if lang == "en" else ("北", "东", "南", "西")
    moves = ((0, 1), (1, 0), (0, -1), (-1, 0))
    x = y = 0
    lines = [
        "A robot walks along the streets of a square grid, from crossing to crossing."
        if lang == "en"
        else "一个机器人沿着方格街道行走，从一个路口走到另一个路口。"
    ]
    ways = rng.choices(range(4), k=steps)
    numbers = rng.choices(range(2, 60), k=2 * steps)
    for step in range(steps):
        length, times = numbers[2 * step], 1 + numbers[2 * step + 1] % 4
        dx, dy = moves[ways[step]]
        x, y = x + dx * length * times, y + dy * length * times
        way = names[ways[step]]
        lines.append(
            f"Step {step + 1}: it goes {length} blocks {way}, {times} times in a row."
            if lang == "en"
            else f"第{step + 1}步：向{way}走{length}个街区，连续走{times}次。"
        )
    lines.append(
        "What is the least number of blocks that it must walk to come back to its start?"
        if lang == "en"
        else "它要回到起点，最少需要走多少个街区？"
    )
    return "\n".join(lines), abs(x) + abs(y)


def bill(rng: random.Random, lang: str, steps: int) -> tuple[str, int]:
    """A bill with reductions: what is to be paid, in cents?"""
    en = lang == "en"
    lines = ["A customer's bill lists these items." if en else "一位顾客的账单上有以下商品。"]
    total = 0
    goods = rng.choices(GOODS[lang], k=steps)
    numbers = rng.choices(range(2, 90), k=3 * steps)
    for item in range(steps):
        count, price, off = numbers[3 * item : 3 * item + 3]
        off = min(off, count * price)
        total += count * price - off
        lines.append(
            f"Item {item + 1}: {count} {goods[item]} at {price} cents each, less {off} cents."
            if en
            else f"商品{item + 1}：{count}件{goods[item]}，每件{price}分，优惠{off}分。"
        )
    lines.append(
        "How many cents does the customer pay in all?" if en else "这位顾客一共要付多少分？"
    )
    return "\n".join(lines), total


PROBLEMS = {"stock": stock, "walk": walk, "bill": bill}
