"""The options of `serve`."""

import argparse
from collections.abc import Callable

from target import temperature


def count(least: int) -> Callable[[str], int]:
    """An option's type: a whole number of at least `least`."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    return number


def port(text: str) -> int:
    """An option's type: a TCP port, or 0."""
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is no port; allowed: 0 to 65535")
    return value


def amount(text: str) -> float:
    """An option's type: a finite number that is not negative."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 on")
    return value


def share(text: str) -> float:
    """An option's type: a number above 0, at most 1."""
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return value


def policy(text: str) -> temperature.Policy:
    """An option's type: math=0.6,code=0.2,other=0.8."""
    try:
        return temperature.read_policy(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def weights(text: str) -> str:
    """An option's type: fp16, int8 or w4, or random, or random,int8 and the like."""
    parts = text.split(",")
    precise = [part for part in parts if part != "random"]
    if len(precise) > 1 or any(part not in ("fp16", "int8", "w4") for part in precise):
        raise argparse.ArgumentTypeError(f"{text}; allowed: fp16, int8, w4, random, random,w4, ...")
    return text


def add_options(serve: argparse.ArgumentParser) -> None:
    """All options of the server."""
    add = serve.add_argument
    add(
        "--engine",
        choices=("sim", "hf", "vllm"),
        default="hf",
        help="sim: no model, tokens at set times or by a GPU's physics (default: %(default)s)",
    )
    add(
        "--mode",
        help="hf: nocache, dynamic (default), static-compile, batch, continuous; "
        "vllm: vllm (default), vllm-fp8kv, vllm-w4",
    )
    add("--model", help="hf, vllm: tiny (default), a folder or a hub id; sim: a name")
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add(
        "--port",
        type=port,
        default=8000,
        help="0: a free one, named in the ready line (default: %(default)s)",
    )
    add(
        "--reasoning",
        choices=("tag", "prompt-opened", "field", "none"),
        default="tag",
        help="tag: <think>...</think> in the content; prompt-opened: only </think> is sent; "
        "field: as reasoning_content; none: the model is asked not to reason "
        "(default: %(default)s)",
    )
    add(
        "--think-tokens",
        type=count(1),
        help="close the reasoning after so many tokens, or half of max_tokens if that is less "
        "(default: 32 for sim and tiny, never for a real model)",
    )
    add("--max-running", type=count(1), help="requests computed at once (default: by the engine)")
    add("--seed", type=int, default=0, help="where a request has none (default: %(default)s)")
    add_server_options(serve)
    add_sim_options(serve)
    add_model_options(serve)
    add_batch_options(serve)


def add_server_options(serve: argparse.ArgumentParser) -> None:
    """What the server does around any engine."""
    add = serve.add_argument_group("server").add_argument
    add(
        "--max-queue",
        type=count(0),
        default=256,
        help="more requests that may wait; then 503 (default: %(default)s)",
    )
    add(
        "--drain-timeout",
        type=amount,
        default=30.0,
        help="seconds for running ones at SIGTERM (default: %(default)s)",
    )
    add("--api-key-env", metavar="NAME", help="environment variable with the key to ask for")
    add("--replicas", type=count(1), default=1, help="engines behind this port (default: 1)")
    add("--replica-devices", metavar="A,B", help="their devices in turn: cuda:0,cuda:1")
    add(
        "--temperature-policy",
        type=policy,
        metavar="KIND=T,...",
        help="where a request has none: math=0.6,code=0.2,other=0.8 (default: off)",
    )
    add("--alert-p95-ms", type=amount, metavar="MS", help="alarm when the rolling E2E P95 is over")
    add("--alert-window", type=amount, default=60.0, metavar="S", help="(default: %(default)s)")
    add(
        "--alert-clear",
        type=share,
        default=0.9,
        metavar="SHARE",
        help="the alarm ends under this share of the limit (default: %(default)s)",
    )
    add(
        "--fault",
        action="append",
        default=[],
        metavar="KIND:KEY=VALUE,...",
        help="a fault on demand (target/faults.py); may be given several times",
    )


def add_sim_options(serve: argparse.ArgumentParser) -> None:
    """The simulated engine's."""
    add = serve.add_argument_group("sim").add_argument
    add("--gpu", choices=("a10", "l4", "rtx4090", "h200"), help="simulate this GPU's physics")
    add(
        "--host-ms",
        type=amount,
        default=1.5,
        help="with --gpu: the host's part of each step (default: %(default)s)",
    )
    add("--kv-blocks", type=count(1), help="with --gpu: KV memory, in blocks of 16 tokens")
    add("--answers", metavar="FILE", help='known answers: {"prompt": ..., "answer": ...} lines')
    add("--ttft-ms", type=amount, default=50.0, help="without --gpu: (median) time to first token")
    add("--itl-ms", type=amount, default=10.0, help="without --gpu: (median) time between tokens")
    add("--ttft-sigma", type=amount, default=0.0, help="above 0: log-normal")
    add("--itl-sigma", type=amount, default=0.0, help="above 0: log-normal")


def add_model_options(serve: argparse.ArgumentParser) -> None:
    """How a model is loaded and watched."""
    add = serve.add_argument_group("hf and vllm").add_argument
    add("--device", help="cpu, cuda or cuda:N (default: cuda where there is one)")
    add(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        help="(default: float32 on cpu, bfloat16 on cuda)",
    )
    add("--threads", type=count(1), default=1, help="of torch, on cpu (default: %(default)s)")
    add(
        "--weights",
        type=weights,
        help="fp16 (as --dtype), int8, w4; random: the full 1.5B shape without a checkpoint",
    )
    add("--layers", type=count(1), help="with --weights random: fewer layers, for a quick look")
    add("--attention", choices=("eager", "sdpa", "flash_attention_2"), help="(default: sdpa)")
    add("--kv-cache", choices=("fp16", "int8", "fp8"), help="numbers in the cache")
    add(
        "--max-cache-len",
        type=count(64),
        default=2048,
        help="static-compile, vllm: prompt and answer together (default: %(default)s)",
    )
    add("--warmup", type=count(0), default=1, help="requests before it is ready (default: 1)")
    add("--warmup-tokens", type=count(1), help="prompt tokens of these (default: a few)")
    add("--warmup-answer", type=count(1), default=4, help="and their answers' (default: 4)")
    add(
        "--warmup-batch",
        type=count(1),
        default=1,
        help="warm batches of 2, 4, ... up to this too (default: %(default)s)",
    )
    add("--nvtx", action="store_true", help="name stretches of work for Nsight Systems")
    add("--profile", type=count(1), metavar="N", help="trace N requests with torch's profiler")
    add("--profile-out", default="trace.json", metavar="FILE", help="for ui.perfetto.dev")


def add_batch_options(serve: argparse.ArgumentParser) -> None:
    """How requests are put together."""
    add = serve.add_argument_group("batches").add_argument
    add("--max-batch", type=count(1), help="batch (default 16), continuous (default 256)")
    add(
        "--batch-wait-ms",
        type=amount,
        default=20.0,
        help="batch: how long the first waits for others (default: %(default)s)",
    )
    add(
        "--batch-by-length",
        action="store_true",
        help="batch: 8, 4 or 2 by prompt length, as the source article's table has it",
    )
    add("--max-num-seqs", type=count(1), help="sim --gpu (default 64), vllm")
    add("--max-num-batched-tokens", type=count(1), help="sim --gpu (default 2048), vllm")
    add("--gpu-memory-utilization", type=share, help="sim --gpu, vllm (default: 0.9)")
    add("--kv-cache-gib", type=amount, help="vllm, continuous: KV memory")
    add("--enable-prefix-caching", action="store_true", help="vllm: off here by default")
    add("--enforce-eager", action="store_true", help="vllm: neither compile nor CUDA graphs")
