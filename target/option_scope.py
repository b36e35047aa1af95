"""Which engine reads which option: one that it would have to ignore is refused, not dropped."""

import argparse
from collections.abc import Callable, Mapping

from target.engines import EngineError
from target.options import add_options

ALL = ("sim", "hf", "vllm")
PHYSICS, TIMES = "sim --gpu", "sim without --gpu"
OWN_LOOP = "hf --mode nocache|dynamic|static-compile|batch"

# An engine, or an engine in some of its modes, by the option's name in the parsed arguments.
READ_BY: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *("engine", "model", "host", "port", "reasoning", "max_running", "seed", "max_queue"),
            *("drain_timeout", "api_key_env", "replicas", "temperature_policy", "fault"),
            *("alert_p95_ms", "alert_window", "alert_clear"),
        ),
        ALL,
    ),
    "mode": ("hf", "vllm"),
    "think_tokens": ("sim", OWN_LOOP),
    "replica_devices": ("hf",),
    **dict.fromkeys(("ttft_ms", "itl_ms", "ttft_sigma", "itl_sigma"), (TIMES,)),
    **dict.fromkeys(("gpu", "answers"), ("sim",)),
    **dict.fromkeys(("host_ms", "kv_blocks"), (PHYSICS,)),
    **dict.fromkeys(("device", "threads", "attention"), ("hf",)),
    **dict.fromkeys(
        ("dtype", "layers", "warmup", "warmup_tokens", "warmup_answer"), ("hf", "vllm")
    ),
    **dict.fromkeys(("weights", "kv_cache"), (PHYSICS, "hf", "vllm")),
    "max_cache_len": ("hf --mode static-compile", "vllm"),
    "warmup_batch": ("hf --mode batch|continuous", "vllm"),
    **dict.fromkeys(("nvtx", "profile", "profile_out"), (OWN_LOOP,)),
    "max_batch": ("hf --mode batch|continuous",),
    **dict.fromkeys(("batch_wait_ms", "batch_by_length"), ("hf --mode batch",)),
    **dict.fromkeys(
        ("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization"), (PHYSICS, "vllm")
    ),
    "kv_cache_gib": ("hf --mode continuous", "vllm"),
    **dict.fromkeys(("enable_prefix_caching", "enforce_eager"), ("vllm",)),
}

# Options that say how another one is done.
NEEDS: Mapping[str, tuple[str, Callable[[argparse.Namespace], bool]]] = {
    "think_tokens": ("a --reasoning other than none", lambda args: args.reasoning != "none"),
    "profile_out": ("--profile", lambda args: args.profile is not None),
    "layers": ("--weights random", lambda args: "random" in (args.weights or "").split(",")),
    "replica_devices": ("--replicas of 2 or more", lambda args: args.replicas > 1),
    "alert_window": ("--alert-p95-ms", lambda args: args.alert_p95_ms is not None),
    "alert_clear": ("--alert-p95-ms", lambda args: args.alert_p95_ms is not None),
}


def refuse_ignored(args: argparse.Namespace) -> None:
    """Raise EngineError where an option is given that this engine, in this mode, never reads."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    for name, usual in vars(parser.parse_args([])).items():
        if getattr(args, name) == usual:
            continue
        flag = f"--{name.replace('_', '-')}"
        if not any(is_here(place, args) for place in READ_BY[name]):
            raise EngineError(f"{flag}: allowed with --engine {', '.join(READ_BY[name])}")
        needs, is_there = NEEDS.get(name, ("", lambda _: True))
        if not is_there(args):
            raise EngineError(f"{flag}: allowed with {needs}")


def is_here(place: str, args: argparse.Namespace) -> bool:
    """Whether the server that the options describe is what `place` says."""
    engine, _, rest = place.partition(" ")
    if engine != args.engine:
        return False
    if not rest:
        return True
    if engine == "sim":
        return (args.gpu is not None) == (place == PHYSICS)
    return (args.mode or "dynamic") in rest.removeprefix("--mode ").split("|")
