"""What an engine is, and the table of them.

An engine is a function from prompt token ids and sampling parameters to an async iterator: one
`Step` for each moment at which tokens came, then one `Timings`. Closing the iterator early stops
the computation. What the server must know beside that function stands in `Engine`.
"""

import argparse
import importlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from target.startup import Startup

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Params:
    """How to sample one answer."""

    max_tokens: int
    temperature: float = 0.6
    top_p: float = 0.95
    seed: int | None = None
    ignore_eos: bool = False
    min_tokens: int = 0
    think_tokens: int | None = None  # reasoning is closed after so many tokens; None: never


@dataclass(frozen=True, slots=True)
class Step:
    """Tokens that came together, at `at_s` on the monotonic clock."""

    tokens: tuple[int, ...]
    at_s: float
    finish: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Timings:
    """Where a request's time went, in seconds."""

    queue_s: float = 0.0
    tokenize_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    detokenize_s: float = 0.0


Generate = Callable[[Sequence[int], Params], AsyncGenerator[Step | Timings, None]]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """How text becomes token ids, and token ids text."""

    encode: Callable[[str], list[int]]
    # Messages and whether to reason -> prompt, and whether the prompt itself opened the reasoning.
    encode_chat: Callable[[list[dict[str, str]], bool], tuple[list[int], bool]]
    # A fresh decoder takes one token and returns text; "" while a character is incomplete.
    decoder: Callable[[], Callable[[int], str]]
    think_open: int | None = None
    think_close: int | None = None  # None: this model has no mark for reasoning


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine, loaded and ready."""

    name: str
    model: str
    mode: str
    dtype: str
    device: str
    context: int  # prompt and answer together, in tokens
    slots: int  # requests that it computes at the same time
    generate: Generate
    vocabulary: Vocabulary
    temperature: float = 0.6  # where a request does not say
    top_p: float = 0.95
    think_tokens: int | None = None
    packages: tuple[str, ...] = ()
    gpu: Mapping[str, object] | None = None
    flags: Mapping[str, object] = field(default_factory=dict)
    queues: bool = False  # it takes more than `slots` and lets them wait inside
    prefix_caching: bool = False
    unsupported: frozenset[str] = frozenset()  # parameters that a request may not set
    # What it counts about itself, under the names in target.metrics; asked at each scrape.
    gauges: Callable[[], Mapping[str, float]] = dict
    # Bytes that are allocated and reserved on the GPU; None where nobody can tell.
    memory: Callable[[], tuple[int, int] | None] = lambda: None
    # Why it can answer nothing any more, in one line; None while it can.
    trouble: Callable[[], str | None] = lambda: None
    # Runs on the server's own event loop, before it is ready.
    warm_up: Callable[[], Awaitable[None]] | None = None
    close: Callable[[], None] = lambda: None


class EngineError(Exception):
    """An engine cannot be loaded as asked: one line for a person."""


class PromptError(Exception):
    """The messages cannot be made into a prompt: one line for a person."""


class OutOfMemoryError(Exception):
    """The device has no memory for this request; the engine lives on."""


class CutError(Exception):
    """The connection is to end here, without a word."""


# A name here is a module with `build(args, startup) -> Engine`, imported when it is asked for.
ENGINES = {"sim": "target.sim", "hf": "target.hf", "vllm": "target.vllm_engine"}


def load(args: argparse.Namespace, startup: Startup) -> Engine:
    """Build the engine that `args.engine` names; may take minutes."""
    with startup.phase("import"):
        module = importlib.import_module(ENGINES[args.engine])
    build: Callable[[argparse.Namespace, Startup], Engine] = module.build
    return build(args, startup)
