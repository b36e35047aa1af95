"""The folder that vLLM loads: a checkpoint, or a shape whose weights are random."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from target.engines import EngineError
from target.hf_load import is_random, precision_of
from target.random_model import RANDOM_NAME, random_model
from target.tiny_model import tiny_model


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
        return Checkpoint(random_model(args.layers, w4), name, True)
    name = args.model or "tiny"
    if name == "tiny":
        return Checkpoint(tiny_model(), name, False) if not w4 else refuse(name)
    if w4 and "quantization_config" not in config_of(name):
        return refuse(name)
    return Checkpoint(name, name, False)


def refuse(name: str) -> Checkpoint:
    """No W4 checkpoint: say how to get one."""
    raise EngineError(
        f"--mode vllm-w4: {name} is no 4-bit checkpoint; make one (pip install llmcompressor, in "
        "an environment of its own), or take --weights random"
    )


def config_of(name: str) -> dict[str, Any]:
    """config.json of a folder or a hub id; raises EngineError."""
    from transformers import AutoConfig

    try:
        found: dict[str, Any] = AutoConfig.from_pretrained(name).to_dict()
    except (OSError, ValueError) as error:
        raise EngineError(f"--model {name}: {str(error).strip().splitlines()[0]}") from error
    return found
