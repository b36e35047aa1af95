"""The roofline: how fast a GPU can decode and prefill a model at best, and what share was reached.

Pure arithmetic. A decode step reads all weights but the embedding table, and the KV cache of every
sequence in the batch; it cannot take less time than that takes, nor than its multiplications take.
"""

from dataclasses import dataclass

from slo.hardware import WEIGHT_BYTES, Peak, Shape


@dataclass(frozen=True, slots=True)
class Machine:
    """A model on GPUs: its shape, how its numbers are stored, and the peaks of all its GPUs."""

    shape: Shape
    peak: Peak
    weight_bytes: float = 2.0  # of a weight in the layers
    head_bytes: float = 2.0  # of a weight in the head
    kv_bytes: float = 2.0  # of a number in the KV cache


def read_bytes(machine: Machine) -> float:
    """Weights that one decode step reads: all layers, the last norm and the head."""
    shape = machine.shape
    layers = shape.layers * shape.layer_parameters * machine.weight_bytes
    return layers + (shape.hidden + shape.head_parameters) * machine.head_bytes


def memory_bytes(machine: Machine) -> float:
    """What the weights take in memory: those that a step reads, and the embedding table."""
    table = 0 if machine.shape.tied else machine.shape.head_parameters * machine.head_bytes
    return read_bytes(machine) + table


def kv_bytes_per_token(machine: Machine) -> float:
    """What the KV cache keeps of one token."""
    return machine.shape.kv_values * machine.kv_bytes


def step_bytes(machine: Machine, batch: float, context: float) -> float:
    """Bytes of one decode step: weights once; of each sequence its KV read, one token's written."""
    return read_bytes(machine) + batch * (context + 1) * kv_bytes_per_token(machine)


def decode_flops(machine: Machine, context: float) -> float:
    """FLOPs of one output token: each weight multiplies and adds; attention over the context."""
    shape = machine.shape
    weights = shape.layers * shape.layer_parameters + shape.hidden + shape.head_parameters
    return 2.0 * weights + 4.0 * shape.layers * shape.heads * shape.head_dim * context


def prefill_flops(machine: Machine, tokens: float) -> float:
    """FLOPs of one prompt: causal attention takes half of the square, the head runs once."""
    shape = machine.shape
    linear = 2.0 * shape.layers * shape.layer_parameters * tokens
    attention = 2.0 * shape.layers * shape.heads * shape.head_dim * tokens**2
    return linear + attention + 2.0 * shape.head_parameters


def floor_step_s(machine: Machine, batch: float, context: float) -> float:
    """Least time of one decode step of a batch, in seconds."""
    by_memory = step_bytes(machine, batch, context) / machine.peak.bandwidth
    by_compute = batch * decode_flops(machine, context) / machine.peak.flops
    return max(by_memory, by_compute)


def ceiling_tokens_per_s(machine: Machine, batch: float, context: float) -> float:
    """Most output tokens a second of a batch."""
    return batch / floor_step_s(machine, batch, context)


def least_bytes(weights: str | None) -> float:
    """Bytes a weight takes under a scheme; where that is not told, the fewest that any takes."""
    return WEIGHT_BYTES.get(weights or "", min(WEIGHT_BYTES.values()))
