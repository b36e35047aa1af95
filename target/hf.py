"""The transformers engine: the ladder of the source articles, from no cache to continuous batches.

`nocache` and `dynamic` compute one request at a time, as the articles' "before" does; `batch` puts
waiting requests together; `static-compile` has a cache of one size and a compiled decode step;
`continuous` is transformers' own continuous batching. The same code serves the tiny model and real
checkpoints, on CPU and on CUDA.
"""

import argparse
import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from target.engines import Engine, EngineError, Vocabulary
from target.faults import read_faults
from target.hf_continuous import build_continuous
from target.hf_decode import Model, Row, decode
from target.hf_load import (
    cache_key,
    cache_maker,
    check,
    describe_gpu,
    ends,
    gpu_memory,
    load_model,
    usable_device,
    vocabulary_of,
)
from target.hf_parts import Parts
from target.hf_static import compiles, decode_static
from target.hf_worker import Worker, generating
from target.profiling import Marks
from target.startup import Startup
from target.warming import warm

TINY_THINK_TOKENS = 32  # noise does not end its reasoning by itself
MAX_BATCH = 16
MODES = ("nocache", "dynamic", "static-compile", "batch", "continuous")


def build(args: argparse.Namespace, startup: Startup) -> Engine:
    """Load what `--model` names and run it once; raises EngineError where that cannot be."""
    args.mode = args.mode or "dynamic"
    if args.mode not in MODES:
        allowed = ", ".join(MODES)
        raise EngineError(f"--mode {args.mode}: allowed with --engine hf: {allowed}")
    with startup.phase("import"):
        import torch
        import transformers  # noqa: F401

        device = usable_device(args.device)
    alone = args.mode in ("nocache", "dynamic", "static-compile")
    if alone and args.max_running not in (None, 1):
        raise EngineError(f"--max-running {args.max_running}: allowed with --mode {args.mode}: 1")
    check(args, device)
    dtype = args.dtype or ("float32" if device == "cpu" else "bfloat16")
    if device == "cpu":
        torch.set_num_threads(args.threads)
    else:  # without cuDNN's attention a batch of 16 made 3 to 5 times the tokens on an H200
        torch.backends.cuda.enable_cudnn_sdp(False)
    with startup.phase("weights"):
        tokenizer, network, name = load_model(args, device, dtype)
    vocabulary = vocabulary_of(tokenizer)
    marks = Marks(path=profile_path(args), cuda=device.startswith("cuda"))  # not of the warm-up
    model = Model(
        network,
        cache_key(network),
        device,
        ends(network),
        vocabulary.think_close,
        cache_maker(network, args.kv_cache),
        marks,
    )
    context = network.config.max_position_embeddings
    if args.mode == "static-compile":
        context = min(context, args.max_cache_len)
    parts = (build_continuous if args.mode == "continuous" else build_worker)(args, model)
    with startup.phase("compile" if args.mode == "static-compile" else "warm-up"):
        asyncio.run(warm(parts.generate, vocabulary, args, parts.slots if parts.queues else 1))
    marks.nvtx, marks.requests = args.nvtx, args.profile or 0
    parts.arm(read_faults(args.fault, args.seed))
    return engine_of(args, model, vocabulary, parts, (name, dtype, context))


def build_worker(args: argparse.Namespace, model: Model) -> Parts:
    """The modes with a decoding thread of our own."""

    def work(rows: list[Row]) -> None:
        if args.mode == "static-compile":
            decode_static(model, rows[0], args.max_cache_len)
        else:
            decode(model, rows, use_cache=args.mode != "nocache")

    batching = args.mode == "batch"
    worker = Worker(
        work,
        model.device,
        max_batch=(args.max_batch or MAX_BATCH) if batching else 1,
        wait_s=args.batch_wait_ms / 1000 if batching else 0.0,
        by_length=batching and args.batch_by_length,
        marks=model.marks,
    )
    worker.start()
    flags: dict[str, object] = {}
    if batching:
        flags = {
            "max_batch": worker.max_batch,
            "batch_wait_ms": args.batch_wait_ms,
            "batch_by_length": args.batch_by_length,
        }
    if args.mode == "static-compile":
        flags = {"max_cache_len": args.max_cache_len, "compiled": compiles(model)}
    return Parts(
        generating(worker.submit, args.seed),
        slots=args.max_running or worker.max_batch,
        queues=batching,
        flags=flags,
        arm=worker.arm,
        gauges=worker.gauges if batching else dict,
        trouble=lambda: worker.dead,
        close=worker.close,
    )


def engine_of(
    args: argparse.Namespace,
    model: Model,
    vocabulary: Vocabulary,
    parts: Parts,
    about: tuple[str, str, int],
) -> Engine:
    """The engine from its parts."""
    name, dtype, context = about
    network: Any = model.network
    defaults = network.generation_config
    budget = args.think_tokens or (TINY_THINK_TOKENS if name == "tiny" else None)
    if args.mode == "continuous":  # its loop samples by itself
        budget = None
    flags: Mapping[str, object] = {
        "attention": network.config._attn_implementation,
        "kv_cache": args.kv_cache or "fp16",
        "weights": args.weights or "fp16",
        "threads": args.threads if model.device == "cpu" else None,
        "seed": args.seed,
        "fault": args.fault,
        **parts.flags,
    }
    return Engine(
        name="hf",
        model=name,
        mode=args.mode,
        dtype=dtype,
        device=model.device,
        context=context,
        slots=parts.slots,
        generate=parts.generate,
        vocabulary=vocabulary,
        temperature=1.0 if defaults.temperature is None else defaults.temperature,
        top_p=1.0 if defaults.top_p is None else defaults.top_p,
        think_tokens=budget,
        packages=("torch", "transformers", "tokenizers"),
        gpu=describe_gpu(model.device),
        flags=flags,
        queues=parts.queues,
        unsupported=parts.unsupported,
        gauges=parts.gauges,
        memory=gpu_memory(model.device),
        trouble=parts.trouble,
        close=parts.close,
    )


def profile_path(args: argparse.Namespace) -> Path | None:
    """Where the trace of --profile goes."""
    return Path(args.profile_out) if args.profile else None
