"""The folder that vLLM loads: a checkpoint, or a shape whose weights are random."""

import argparse
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from target.engines import EngineError
from target.hf_load import RANDOM_NAME, RANDOM_SHAPE, is_random, precision_of
from target.tiny_model import cache_folder, tiny_model

# 4-bit weights in groups of 128, as llm-compressor writes them.
W4 = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4,
                "type": "int",
                "symmetric": True,
                "strategy": "group",
                "group_size": 128,
            },
            "input_activations": None,
            "output_activations": None,
        }
    },
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is served, and whether its weights are drawn at load time."""

    place: str | Path
    name: str
    random: bool


def checkpoint_of(args: argparse.Namespace) -> Checkpoint:
    """The checkpoint of the options; raises EngineError where there is none of that kind."""
    w4 = args.mode == "vllm-w4" or precision_of(args) == "w4"
    if precision_of(args) == "int8":
        raise EngineError(f"--weights {args.weights}: allowed with --engine vllm: fp16, w4, random")
    if is_random(args):
        name = args.model or RANDOM_NAME
        return Checkpoint(shape_folder(args.layers, w4), name, True)
    name = args.model or "tiny"
    if name == "tiny":
        return Checkpoint(tiny_model(), name, False) if not w4 else refuse(name)
    if w4 and "quantization_config" not in config_of(name):
        return refuse(name)
    return Checkpoint(name, name, False)


def refuse(name: str) -> Checkpoint:
    """No W4 checkpoint: say how to get one."""
    raise EngineError(
        f"--mode vllm-w4: {name} is no 4-bit checkpoint; make one (pip install llmcompressor, in an "
        "environment of its own), or take --weights random"
    )


def config_of(name: str) -> dict[str, Any]:
    """config.json of a folder or a hub id; raises EngineError."""
    from transformers import AutoConfig

    try:
        found: dict[str, Any] = AutoConfig.from_pretrained(name).to_dict()
    except (OSError, ValueError) as error:
        raise EngineError(f"--model {name}: {str(error).strip().splitlines()[0]}") from error
    return found


def shape_folder(layers: int | None, w4: bool) -> Path:
    """A folder with the full shape's config.json and the tiny tokenizer; made where it is not."""
    from transformers import Qwen2Config

    tiny = tiny_model()
    ends = json.loads((tiny / "config.json").read_text())
    shape = {**RANDOM_SHAPE, **({} if layers is None else {"num_hidden_layers": layers})}
    keys = {key: ends[key] for key in ("bos_token_id", "eos_token_id")}
    config = Qwen2Config(**shape, **keys, architectures=["Qwen2ForCausalLM"], dtype="bfloat16")
    if w4:
        config.quantization_config = W4
    folder = cache_folder() / f"random-qwen2-1.5b-{layers or 28}{'-w4' if w4 else ''}-{tiny.name}"
    making = Path(tempfile.mkdtemp(prefix=".making-", dir=cache_folder()))
    try:
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(tiny / file, making)
        config.save_pretrained(making)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(making, folder)
    except OSError:
        if not folder.is_dir():  # another process may have been first
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder
