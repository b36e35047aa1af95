"""Loading a transformers model as the options say, or saying in one line why that cannot be."""

import argparse
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from target.engines import EngineError, PromptError, Vocabulary
from target.random_model import RANDOM_NAME, random_model
from target.tiny_model import tiny_model


def refuse_missing(option: str, package: str, install: str | None = None) -> None:
    """Raise EngineError with what to install where a package is not there."""
    if importlib.util.find_spec(package) is None:
        what = install or package
        raise EngineError(f"{option}: {package} is not installed; pip install {what}")


def check(args: argparse.Namespace, device: str) -> None:
    """Refuse what cannot work before anything is loaded; raises EngineError."""
    cuda = device.startswith("cuda")
    if args.attention == "flash_attention_2":
        if not cuda:
            raise EngineError(f"--attention flash_attention_2: needs a GPU, not {device}")
        refuse_missing("--attention flash_attention_2", "flash_attn", "'flash-attn>=2.8.3'")
    if args.kv_cache in ("int8", "fp8") and args.mode != "dynamic":
        allowed = "allowed with --mode dynamic, or with --engine vllm"
        raise EngineError(f"--kv-cache {args.kv_cache}: {allowed}")
    if args.kv_cache == "int8":
        refuse_missing("--kv-cache int8", "hqq")
    if args.kv_cache == "fp8" and not knows_fp8_cache():
        have = importlib.import_module("transformers").__version__
        raise EngineError(
            f"--kv-cache fp8: transformers {have} has no such cache; pip install -U transformers"
        )
    precision = precision_of(args)
    if precision in ("int8", "w4"):
        if precision == "w4" and not cuda:
            raise EngineError(f"--weights {args.weights}: needs a GPU, not {device}")
        refuse_missing(f"--weights {args.weights}", "torchao")
    if cuda and args.threads != 1:
        raise EngineError("--threads: allowed with --device cpu")
    if args.kv_cache_gib is not None and not cuda:
        raise EngineError(f"--kv-cache-gib: needs a GPU, not {device}")
    if args.nvtx and not cuda:
        raise EngineError(f"--nvtx: needs a GPU, not {device}")


def knows_fp8_cache() -> bool:
    """Whether this transformers release keeps its cache in 8-bit floats."""
    import transformers.cache_utils

    return hasattr(transformers.cache_utils, "Fp8QuantizedLayer")


def precision_of(args: argparse.Namespace) -> str:
    """fp16, int8 or w4, beside `random`."""
    said = [part for part in (args.weights or "fp16").split(",") if part != "random"]
    return said[0] if said else "fp16"


def is_random(args: argparse.Namespace) -> bool:
    """Whether the full shape is built instead of loaded."""
    return "random" in (args.weights or "").split(",")


def load_model(args: argparse.Namespace, device: str, dtype: str) -> tuple[Any, Any, str]:
    """Tokenizer, network and the name that it is served under; raises EngineError."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    name = args.model or ("tiny" if not is_random(args) else RANDOM_NAME)
    place = tiny_model() if name == "tiny" else name
    if is_random(args):
        place = random_model(args.layers)
    kind = getattr(torch, dtype)
    attention = {} if args.attention is None else {"attn_implementation": args.attention}
    try:
        tokenizer = AutoTokenizer.from_pretrained(place)
        if is_random(args):
            network = random_network(Path(place), device, kind, args.attention)
        else:
            network = AutoModelForCausalLM.from_pretrained(place, dtype=kind, **attention)
            network = network.to(device)
        quantise(network, precision_of(args))
    except (OSError, ValueError, ImportError, torch.OutOfMemoryError) as error:
        why = str(error).strip().splitlines()[0]
        raise EngineError(f"--model {name}: {why}") from error
    return tokenizer, network.eval(), name


def random_network(place: Path, device: str, dtype: Any, attention: str | None) -> Any:
    """The full shape with random weights, drawn where it runs."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    config = AutoConfig.from_pretrained(place)
    more = {} if attention is None else {"attn_implementation": attention}
    with torch.device(device):
        network = AutoModelForCausalLM.from_config(config, dtype=dtype, **more)
    ends = {"bos_token_id": config.bos_token_id, "eos_token_id": config.eos_token_id}
    network.generation_config = GenerationConfig(
        do_sample=True, temperature=0.6, top_p=0.95, pad_token_id=config.eos_token_id, **ends
    )
    return network


def quantise(network: Any, precision: str) -> None:
    """Weights of the linear layers in 8 or 4 bits, in place; the head stays as it is."""
    if precision == "fp16":
        return
    from torchao.quantization import (  # type: ignore[import-not-found,unused-ignore]
        Int4WeightOnlyConfig,
        Int8WeightOnlyConfig,
        quantize_,
    )

    config = Int8WeightOnlyConfig() if precision == "int8" else Int4WeightOnlyConfig(group_size=128)
    quantize_(network.model.layers, config)


def cache_maker(network: Any, kind: str | None) -> Callable[[], Any]:
    """What makes the cache of a request; None leaves it to the model."""
    if kind in (None, "fp16"):
        return lambda: None
    from transformers import QuantizedCache

    config = network.config
    if kind == "fp8":
        return lambda: QuantizedCache("fp8", config)
    return lambda: QuantizedCache("hqq", config, nbits=8)


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


def gpu_memory(device: str) -> Callable[[], tuple[int, int] | None]:
    """What reads the bytes that torch has allocated and reserved; None on a CPU."""
    import torch

    if device == "cpu":
        return lambda: None
    return lambda: (torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device))


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
