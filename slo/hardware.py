"""Shapes of models and peaks of GPUs: the numbers that a roofline is made of.

A name is looked up by its words, so that "NVIDIA A10" is no A100 and a path or an organisation
before a model's name does not matter. What is not in these tables has no roofline, and no guess.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """A dense decoder with grouped-query attention, as its config.json names its sizes."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    head_dim: int = 128
    qkv_bias: bool = False
    tied: bool = False  # one table for embedding and head

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer, its two norms included."""
        query, key_value = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = self.hidden * (2 * query + 2 * key_value)
        bias = (query + 2 * key_value) if self.qkv_bias else 0
        return attention + bias + 3 * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def head_parameters(self) -> int:
        """Parameters of the head, which are those of the embedding table."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters."""
        tables = 1 if self.tied else 2
        return self.layers * self.layer_parameters + self.hidden + tables * self.head_parameters

    @property
    def kv_values(self) -> int:
        """Numbers that the KV cache keeps of one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class Peak:
    """What one GPU can do at most: bytes/s from memory, dense 16-bit tensor FLOP/s."""

    bandwidth: float
    flops: float


# From the models' published config.json files; a test compares the sums with published counts.
SHAPES = {
    "deepseek-r1-distill-qwen-1.5b": Shape(1536, 8960, 28, 12, 2, 151_936, qkv_bias=True),
    "deepseek-r1-distill-qwen-7b": Shape(3584, 18_944, 28, 28, 4, 152_064, qkv_bias=True),
    "deepseek-r1-distill-llama-8b": Shape(4096, 14_336, 32, 32, 8, 128_256),
    "deepseek-r1-distill-qwen-14b": Shape(5120, 13_824, 48, 40, 8, 152_064, qkv_bias=True),
    "deepseek-r1-distill-qwen-32b": Shape(5120, 27_648, 64, 40, 8, 152_064, qkv_bias=True),
    "deepseek-r1-distill-llama-70b": Shape(8192, 28_672, 80, 64, 8, 128_256),
}
# Other names of the same shapes.
_SAME_SHAPE = {
    "qwen2.5-7b-instruct": "deepseek-r1-distill-qwen-7b",
    "llama-3.1-8b-instruct": "deepseek-r1-distill-llama-8b",
    "qwen2.5-14b-instruct": "deepseek-r1-distill-qwen-14b",
    "qwen2.5-32b-instruct": "deepseek-r1-distill-qwen-32b",
    "llama-3.3-70b-instruct": "deepseek-r1-distill-llama-70b",
}

# Datasheet figures (dense, 16 bit). Where NVML tells bus width and clock, that bandwidth is taken.
PEAKS = {
    "H200": Peak(4800e9, 989e12),
    "H100": Peak(3350e9, 989e12),
    "A100": Peak(2039e9, 312e12),
    "A10G": Peak(600e9, 125e12),
    "A10": Peak(600e9, 125e12),
    "L40S": Peak(864e9, 362e12),
    "L4": Peak(300e9, 121e12),
    "T4": Peak(320e9, 65e12),
    "4090": Peak(1008e9, 165.2e12),
}

# Bytes a weight of the layers takes; 4 bit in groups of 128 with a 16-bit scale and a 4-bit zero.
WEIGHT_BYTES = {
    "float32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "int8": 1.0,
    "fp8": 1.0,
    "w4": 0.5 + 2.5 / 128,
}


def shape_of(model: str | None) -> Shape | None:
    """The shape of a model by its name, whatever stands before a slash; None: not known here."""
    name = (model or "").lower().rstrip("/").rsplit("/", 1)[-1]
    return SHAPES.get(_SAME_SHAPE.get(name, name))


def peak_of(gpu: str | None) -> Peak | None:
    """The peaks of a GPU by its name as NVML says it ("NVIDIA A10"); None: not known here."""
    words = set(re.split(r"[\s\-_]+", (gpu or "").upper()))
    return next((peak for word, peak in PEAKS.items() if word in words), None)
