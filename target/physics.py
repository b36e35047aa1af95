"""How long one step of continuous batching takes on a GPU, and how much KV memory it has.

Pure arithmetic. A step reads all weights once and the KV cache of every sequence in it, and
multiplies each new token with each weight: it lasts as long as the slower of the two, and a host
overhead. The shape is that of DeepSeek-R1-Distill-Qwen-1.5B.
"""

from dataclasses import dataclass, field

LAYERS, HEADS, HEAD_DIM = 28, 12, 128
LAYER_PARAMETERS = 46_797_824
HEAD_PARAMETERS = 151_936 * 1536  # as many as the embedding table
NORM_PARAMETERS = 1536  # the last one, before the head
KV_VALUES = 2 * LAYERS * 2 * HEAD_DIM  # kept of one token
BLOCK = 16  # tokens of KV memory that are given out together
WORKSPACE_BYTES = 1.0e9  # activations and allocator slack beside weights and KV
W4_BYTES = 0.5 + 2.5 / 128  # groups of 128 with a 16-bit scale and a 4-bit zero


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU by its datasheet: bytes/s, dense 16-bit FLOP/s, bytes."""

    name: str
    bandwidth: float
    flops: float
    memory: float


GPUS = {
    "a10": Gpu("A10", 600e9, 125e12, 24e9),
    "l4": Gpu("L4", 300e9, 121e12, 24e9),
    "rtx4090": Gpu("RTX 4090", 1008e9, 165.2e12, 24e9),
    "h200": Gpu("H200", 4.8e12, 989e12, 141e9),
}


@dataclass(frozen=True, slots=True)
class Setup:
    """A server to simulate: its GPU and the settings of its scheduler."""

    gpu: Gpu
    max_num_seqs: int = 64
    max_batched_tokens: int = 2048
    memory_utilization: float = 0.9
    host_s: float = 1.5e-3  # of each step, whatever is in it
    weight_bytes: float = 2.0  # of a weight in the layers; the head stays at 2
    kv_bytes: float = 2.0  # of a number in the KV cache
    kv_blocks: int | None = field(default=None)  # None: what the memory has left

    @property
    def blocks(self) -> int:
        """Blocks of KV memory."""
        if self.kv_blocks is not None:
            return self.kv_blocks
        left = self.gpu.memory * self.memory_utilization - weight_memory(self) - WORKSPACE_BYTES
        return max(0, int(left / (BLOCK * self.kv_token_bytes)))

    @property
    def kv_token_bytes(self) -> float:
        """KV memory of one token."""
        return KV_VALUES * self.kv_bytes


def read_bytes(setup: Setup) -> float:
    """Weights that a step reads: the layers, the last norm and the head."""
    return LAYERS * LAYER_PARAMETERS * setup.weight_bytes + 2.0 * (
        HEAD_PARAMETERS + NORM_PARAMETERS
    )


def weight_memory(setup: Setup) -> float:
    """Weights in memory: those that a step reads, and the embedding table."""
    return read_bytes(setup) + 2.0 * HEAD_PARAMETERS


def step_s(setup: Setup, new: int, pairs: float, held: float, sampled: int) -> float:
    """Seconds of a step without the host's part.

    `new` tokens are computed over `pairs` of query and key, `held` tokens of KV are read, and the
    head runs for `sampled` sequences.
    """
    moved = read_bytes(setup) + (held + new) * setup.kv_token_bytes
    layers = 2.0 * (LAYERS * LAYER_PARAMETERS + NORM_PARAMETERS) * new
    attention = 4.0 * LAYERS * HEADS * HEAD_DIM * pairs
    head = 2.0 * HEAD_PARAMETERS * sampled
    return max(moved / setup.gpu.bandwidth, (layers + attention + head) / setup.gpu.flops)


def decode_step_s(setup: Setup, batch: int, context: float) -> float:
    """Seconds of a step that adds one token to each of `batch` sequences of `context` tokens."""
    return step_s(setup, batch, batch * context, batch * context, batch)


def prefill_s(setup: Setup, tokens: int) -> float:
    """Seconds to compute one prompt alone."""
    return step_s(setup, tokens, tokens * tokens / 2, 0, 1)
