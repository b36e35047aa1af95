"""Decoding with transformers' forward, token by token, for one request or a batch of them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from target.engines import FinishReason, Params, Step, Timings
from target.profiling import Marks
from target.sampling import draw


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded model and what its decoding needs."""

    network: Any
    cache_key: str  # forward's name for its cache: transformers renamed it within 5.x
    device: str
    eos: tuple[int, ...]
    think_close: int | None
    new_cache: Callable[[], Any] = lambda: None  # None: the model makes its own
    marks: Marks = field(default_factory=Marks)


@dataclass(slots=True, eq=False)
class Row:
    """One request inside the decoder."""

    prompt: Sequence[int]
    params: Params
    emit: Callable[[Step | Timings | Exception], None]
    number: int = 0
    stop: Event = field(default_factory=Event)
    received_s: float = field(default_factory=time.monotonic)
    started_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    produced: int = 0
    closed: bool = False  # its reasoning is
    done: bool = False
    generator: Any = None

    def take(self, token: int, eos: Sequence[int]) -> None:
        """Emit a token that was sampled."""
        self.last_s = time.monotonic()
        if self.produced == 0:
            self.first_s = self.last_s
        self.produced += 1
        finish: FinishReason | None = None
        if token in eos:
            finish = "stop"
        elif self.produced == self.params.max_tokens:
            finish = "length"
        self.done = finish is not None
        self.emit(Step((token,), self.last_s, finish))

    def end(self) -> None:
        """Tell where the time went; nothing comes after it."""
        self.done = True
        first = self.first_s or time.monotonic()
        self.emit(
            Timings(
                queue_s=self.started_s - self.received_s,
                prefill_s=first - self.started_s,
                decode_s=max(0.0, self.last_s - first),
            )
        )


def decode(model: Model, rows: list[Row], *, use_cache: bool = True) -> None:
    """Decode rows together until each ended or its `stop` is set; their ends are told as they come.

    A row that ended leaves the batch at once, and with it its part of the cache.
    """
    import torch

    begin(model, rows)
    batch = Batch(model, rows, use_cache)
    with torch.inference_mode():
        while batch.rows:
            with model.marks.range("prefill" if batch.fresh else "decode"):
                logits = batch.forward()
                tokens = choose(model, batch.rows, logits)
            kept = []
            for place, (row, token) in enumerate(zip(batch.rows, tokens, strict=True)):
                if not row.stop.is_set():
                    row.take(token, model.eos)
                if row.done or row.stop.is_set():
                    row.end()
                else:
                    kept.append(place)
            batch.keep(kept, tokens)


def begin(model: Model, rows: Sequence[Row]) -> None:
    """Note the start, and seed the draws of each row."""
    import torch

    for row in rows:
        row.started_s = time.monotonic()
        row.closed = row.params.think_tokens is None
        row.generator = torch.Generator(model.device)
        row.generator.manual_seed(row.params.seed or 0)


def choose(model: Model, rows: Sequence[Row], logits: Any) -> list[int]:
    """The next token of each row: drawn, or the mark that ends a reasoning that is long enough."""
    logits = logits.float()
    for place, row in enumerate(rows):
        if row.params.ignore_eos or row.produced < row.params.min_tokens:
            logits[place, list(model.eos)] = -float("inf")
    asked, generators = [row.params for row in rows], [row.generator for row in rows]
    tokens: list[int] = draw(logits, asked, generators).tolist()
    for place, row in enumerate(rows):
        if not row.closed and row.produced == row.params.think_tokens:
            tokens[place] = tokens[place] if model.think_close is None else model.think_close
        row.closed = row.closed or tokens[place] == model.think_close
    return tokens


class Batch:
    """Rows of one forward pass: prompts padded on the left, and the cache that they share."""

    def __init__(self, model: Model, rows: list[Row], use_cache: bool) -> None:
        import torch

        self.model = model
        self.rows = rows
        self.use_cache = use_cache
        self.fresh = True
        self.cache: Any = model.new_cache() if use_cache else None
        longest = max(len(row.prompt) for row in rows)
        pads = [longest - len(row.prompt) for row in rows]
        padded = [[0] * pad + list(row.prompt) for pad, row in zip(pads, rows, strict=True)]
        self.tokens = torch.tensor(padded, device=model.device)
        self.mask: Any = None
        self.positions: Any = None
        if any(pads):  # without padding the kernels need no mask
            self.mask = torch.ones_like(self.tokens)
            for place, pad in enumerate(pads):
                self.mask[place, :pad] = 0
            self.positions = (self.mask.cumsum(-1) - 1).clamp(min=0)

    def forward(self) -> Any:
        """Logits of the next token, one row each."""
        more: dict[str, Any] = {}
        if self.mask is not None:
            more = {"attention_mask": self.mask, "position_ids": self.positions}
        if self.use_cache:
            more[self.model.cache_key] = self.cache
        out = self.model.network(
            input_ids=self.tokens, use_cache=self.use_cache, logits_to_keep=1, **more
        )
        if self.use_cache:
            self.cache = out[self.model.cache_key]
        self.fresh = False
        return out.logits[:, -1]

    def keep(self, kept: list[int], tokens: list[int]) -> None:
        """Go on with these rows and their new tokens; the others leave the cache."""
        import torch

        device = self.model.device
        fewer = len(kept) < len(self.rows)
        self.rows = [self.rows[place] for place in kept]
        if not kept:
            return
        new = torch.tensor([[tokens[place]] for place in kept], device=device)
        chosen = torch.tensor(kept, device=device) if fewer else None
        if chosen is not None and self.cache is not None:
            self.cache.batch_select_indices(chosen)
        if not self.use_cache:
            old = self.tokens if chosen is None else self.tokens[chosen]
            self.tokens = torch.cat((old, new), -1)
        else:
            self.tokens = new
        if self.mask is not None:
            mask = self.mask if chosen is None else self.mask[chosen]
            self.mask = torch.cat((mask, torch.ones_like(new)), -1)
            positions = (self.mask.cumsum(-1) - 1).clamp(min=0)
            self.positions = positions[:, -1:] if self.use_cache else positions
