"""The plain engine: transformers with a dynamic cache, one request at a time, no batching.

It is the honest "before" of a serving stack: a loop over the model's forward in one worker thread.
The same code serves the tiny model and real checkpoints, on CPU and on CUDA.
"""

import argparse
import asyncio
import gc
import inspect
import itertools
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

from target.engines import (
    Engine,
    EngineError,
    FinishReason,
    OutOfMemoryError,
    Params,
    PromptError,
    Step,
    Timings,
    Vocabulary,
)
from target.tiny_model import tiny_model

TINY_THINK_TOKENS = 32  # noise does not end its reasoning by itself


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded model and what its decoding needs."""

    network: Any
    cache_key: str  # forward's name for its cache: transformers renamed it within 5.x
    device: str
    eos: tuple[int, ...]
    think_close: int | None


def decode(
    model: Model, prompt: Sequence[int], params: Params, emit: Callable[[Step], None], stop: Event
) -> Timings:
    """Emit a step for each token until the end, or until `stop` is set."""
    import torch

    start = first = last = time.monotonic()
    generator = None
    if params.seed is not None:
        generator = torch.Generator(model.device).manual_seed(params.seed)
    tokens = torch.tensor([prompt], device=model.device)
    cache = None
    closed = params.think_tokens is None
    with torch.inference_mode():
        for n in range(params.max_tokens):
            if stop.is_set():
                break
            out = model.network(
                input_ids=tokens, use_cache=True, logits_to_keep=1, **{model.cache_key: cache}
            )
            cache = out[model.cache_key]
            if not closed and n == params.think_tokens and model.think_close is not None:
                token = model.think_close
            else:
                logits = out.logits[0, -1].float()
                if params.ignore_eos or n < params.min_tokens:
                    logits[list(model.eos)] = -torch.inf
                token = pick(logits, params, generator)
            closed = closed or token == model.think_close
            tokens = torch.tensor([[token]], device=model.device)
            last = time.monotonic()
            first = last if n == 0 else first
            finish: FinishReason | None = "length" if n + 1 == params.max_tokens else None
            finish = "stop" if token in model.eos else finish
            emit(Step((token,), last, finish))
            if finish:
                break
    return Timings(prefill_s=first - start, decode_s=last - first)


def pick(logits: Any, params: Params, generator: Any) -> int:
    """One token: the likeliest at temperature 0, else drawn from the nucleus of mass top_p."""
    import torch

    if params.temperature == 0:
        return int(logits.argmax())
    chances = torch.softmax(logits / params.temperature, -1)
    if params.top_p >= 1:
        return int(torch.multinomial(chances, 1, generator=generator))
    chances, order = chances.sort(descending=True)
    chances[chances.cumsum(-1) - chances >= params.top_p] = 0.0
    return int(order[torch.multinomial(chances, 1, generator=generator)])


def engine_of(model: Model, seed: int) -> Callable[..., AsyncGenerator[Step | Timings, None]]:
    """The engine's function over a loaded model."""
    pool = ThreadPoolExecutor(1, "hf")  # one thread: one request at a time
    numbers = itertools.count(seed)

    async def generate(
        prompt: Sequence[int], params: Params
    ) -> AsyncGenerator[Step | Timings, None]:
        loop = asyncio.get_running_loop()
        parts: asyncio.Queue[Step | Timings | Exception] = asyncio.Queue()
        stop = Event()

        def emit(part: Step | Timings | Exception) -> None:
            loop.call_soon_threadsafe(parts.put_nowait, part)

        drawn = params if params.seed is not None else replace(params, seed=next(numbers))
        job = loop.run_in_executor(
            pool, lambda: emit(attempt(lambda: decode(model, prompt, drawn, emit, stop)))
        )
        try:
            while not isinstance(part := await parts.get(), Timings):
                if isinstance(part, Exception):
                    raise part
                yield part
            yield part
        finally:  # the client may be gone: the thread looks at `stop` before each token
            stop.set()
            await asyncio.wait((job,))

    return generate


def attempt(work: Callable[[], Timings]) -> Timings | Exception:
    """The result or the exception of `work`; after a lack of memory, free what it held."""
    import torch

    try:
        return work()
    except torch.OutOfMemoryError as error:
        message = f"the device has no memory for this request: {str(error).splitlines()[0]}"
    except Exception as error:
        return error
    # Only here, since the traceback of the exception holds the tensors.
    gc.collect()
    torch.cuda.empty_cache()
    return OutOfMemoryError(message)


def vocabulary_of(tokenizer: Any) -> Vocabulary:
    """Encoding, chat template and incremental decoding of a transformers tokenizer."""
    from jinja2 import TemplateError
    from tokenizers.decoders import DecodeStream

    backend = tokenizer.backend_tokenizer

    def encode(text: str) -> list[int]:
        return list(backend.encode(text).ids)

    def encode_chat(messages: list[dict[str, str]], think: bool) -> tuple[list[int], bool]:
        try:
            text = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except (TemplateError, ValueError) as error:
            raise PromptError(f"messages: the chat template refuses them: {error}") from error
        opened = text.rstrip().endswith("<think>")
        if opened and not think:
            text += "\n</think>\n\n"
        return list(backend.encode(text, add_special_tokens=False).ids), opened and think

    def decoder() -> Callable[[int], str]:
        stream = DecodeStream(skip_special_tokens=True)
        return lambda token: stream.step(backend, token) or ""

    return Vocabulary(
        encode,
        encode_chat,
        decoder,
        backend.token_to_id("<think>"),
        backend.token_to_id("</think>"),
    )


def build(args: argparse.Namespace) -> Engine:
    """Load what `--model` names and run it once; raises EngineError where that cannot be."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, logging

    if args.max_running not in (None, 1):
        raise EngineError(f"--max-running {args.max_running}: allowed with --engine hf: 1")
    name = args.model or "tiny"
    device = usable_device(args.device)
    dtype = args.dtype or ("float32" if device == "cpu" else "bfloat16")
    if device == "cpu":
        torch.set_num_threads(args.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    place = tiny_model() if name == "tiny" else name
    try:
        tokenizer = AutoTokenizer.from_pretrained(place)
        network = AutoModelForCausalLM.from_pretrained(place, dtype=getattr(torch, dtype))
        network = network.to(device).eval()
    except (OSError, ValueError, torch.OutOfMemoryError) as error:
        why = str(error).strip().splitlines()[0]
        raise EngineError(f"--model {name}: {why}") from error
    vocabulary = vocabulary_of(tokenizer)
    model = Model(network, cache_key(network), device, ends(network), vocabulary.think_close)
    # Once, since the first use of the template and of each kernel is slow.
    with suppress(PromptError):  # a model without a chat template still completes text
        vocabulary.encode_chat([{"role": "user", "content": "1 + 1 = 2"}], True)
    decode(model, vocabulary.encode("1 + 1 = 2"), Params(4), lambda step: None, Event())
    defaults = network.generation_config
    return Engine(
        name="hf",
        model=name,
        mode="dynamic",
        dtype=dtype,
        device=device,
        context=network.config.max_position_embeddings,
        slots=1,
        generate=engine_of(model, args.seed),
        vocabulary=vocabulary,
        temperature=1.0 if defaults.temperature is None else defaults.temperature,
        top_p=1.0 if defaults.top_p is None else defaults.top_p,
        think_tokens=args.think_tokens or (TINY_THINK_TOKENS if name == "tiny" else None),
        packages=("torch", "transformers", "tokenizers"),
        gpu=describe_gpu(device),
        flags={
            "attention": network.config._attn_implementation,
            "threads": torch.get_num_threads() if device == "cpu" else None,
            "seed": args.seed,
        },
    )


def usable_device(asked: str | None) -> str:
    """The device to run on; raises EngineError where it is not there."""
    import torch

    device = asked or ("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = device.partition(":")
    there = {"cpu": 1, "cuda": torch.cuda.device_count()}.get(kind, 0)
    if int(index if index.isdecimal() else 0) >= there or (index and not index.isdecimal()):
        gpus = ", ".join(f"cuda:{n}" for n in range(torch.cuda.device_count()))
        raise EngineError(f"--device {device}: not here; allowed: cpu{gpus and ', ' + gpus}")
    return device


def cache_key(network: Any) -> str:
    """`cache` since transformers 5.2x, `past_key_values` before."""
    names = inspect.signature(network.forward).parameters
    return "cache" if "cache" in names else "past_key_values"


def ends(network: Any) -> tuple[int, ...]:
    """Ids of the tokens that end an answer."""
    eos = network.generation_config.eos_token_id
    return (eos,) if isinstance(eos, int) else tuple(eos or ())


def describe_gpu(device: str) -> dict[str, object] | None:
    """The GPU's name and size, or None on a CPU."""
    import torch

    if device == "cpu":
        return None
    found = torch.cuda.get_device_properties(device)
    return {
        "name": found.name,
        "memory_total_mib": found.total_memory // 2**20,
        "compute_capability": f"{found.major}.{found.minor}",
        "cuda": torch.version.cuda,
    }
