"""The highest rate at which the simulated server's queue does not grow, computed.

A server that is always full runs `seats` sequences. Each needs a step a token, and a step does
beside them the prompts of those that took the places of ended ones: a random number of them, since
places become free at random. So the rate is seats / (steps x mean time of a step).
"""

import math

from target.physics import BLOCK, Setup, step_s


def stable_capacity(setup: Setup, prompt: int, output: int) -> float:
    """Requests a second for prompts and answers of these lengths, in tokens."""
    blocks_each = (prompt + (output + 1) / 2) / BLOCK + 0.5  # half grown; half a block unused
    seats = max(1, min(setup.max_num_seqs, int(setup.blocks / blocks_each)))
    return min(_by_seats(setup, seats, prompt, output), _by_tokens(setup, prompt, output))


def _by_seats(setup: Setup, seats: int, prompt: int, output: int) -> float:
    """All places are taken, and a step has room for every prompt that comes."""
    mean = seats / output  # prompts in a step
    most = max(1, (setup.max_batched_tokens - seats) // prompt + 1)
    shares = [math.exp(-mean) * mean**k / math.factorial(k) for k in range(most)]
    shares.append(1.0 - sum(shares))
    times = [_time_s(setup, seats, k, prompt, output) for k in range(most + 1)]
    mean_s = sum(share * time for share, time in zip(shares, times, strict=True)) + setup.host_s
    return seats / (output * mean_s)


def _time_s(setup: Setup, seats: int, prompts: int, prompt: int, output: int) -> float:
    """A step that computes so many prompts, and a token of everybody else."""
    decoding = max(0, seats - prompts)
    room = max(0, setup.max_batched_tokens - decoding)
    tokens = min(prompts * prompt, room)
    read = decoding * (prompt + output / 2)
    return step_s(setup, decoding + tokens, read + tokens * prompt / 2, read, seats)


def _by_tokens(setup: Setup, prompt: int, output: int) -> float:
    """Every step is as large as it may be: more places would not help."""
    full = setup.max_batched_tokens
    served = full / (prompt + output - 1)  # requests a step
    read = served * (output - 1) * (prompt + output / 2)
    pairs = served * prompt * prompt / 2 + read
    return served / (step_s(setup, full, pairs, read, math.ceil(served * output)) + setup.host_s)
