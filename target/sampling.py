"""The next token of each row of a batch, without a loop over rows where none is needed."""

from collections.abc import Sequence
from typing import Any

from target.engines import Params


def draw(logits: Any, asked: Sequence[Params], generators: Sequence[Any]) -> Any:
    """Token ids, one a row: the likeliest at temperature 0, else drawn from the nucleus of top_p.

    `logits` are float32, rows x vocabulary; each row has a generator of its own.
    """
    import torch

    best = logits.argmax(-1)
    if all(params.temperature == 0 for params in asked):
        return best
    heat = [params.temperature or 1.0 for params in asked]
    chances = torch.softmax(logits / logits.new_tensor(heat).unsqueeze(1), -1)
    order = None
    if any(params.top_p < 1 for params in asked):
        chances, order = chances.sort(descending=True)
        mass = chances.new_tensor([params.top_p for params in asked]).unsqueeze(1)
        chances = chances.masked_fill(chances.cumsum(-1) - chances >= mass, 0.0)
    # The largest of chance / exponential noise is a draw from the chances.
    noise = torch.empty_like(chances)
    for row, generator in zip(noise, generators, strict=True):
        row.exponential_(generator=generator)
    drawn = (chances / noise).argmax(-1, keepdim=True)
    drawn = (drawn if order is None else order.gather(-1, drawn)).squeeze(-1)
    greedy = torch.tensor([params.temperature == 0 for params in asked], device=logits.device)
    return torch.where(greedy, best, drawn)
