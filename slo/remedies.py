"""What a diagnosis means in a sentence, and what to try next."""

from slo.signals import Signals
from slo.thresholds import Limits

SENTENCES = {
    "no-load": "The server had next to nothing to do.",
    "throttled": "The GPU was slowed down by its power or temperature limits.",
    "kv-pressure": "The KV cache was full: sequences had to wait or were thrown out for room.",
    "compute-bound": "The tensor cores are the limit.",
    "bandwidth-bound": "Reading GPU memory is the limit.",
    "wasted-traffic": "GPU memory moves far more bytes than the model needs to decode.",
    "host-bound": "The GPU waits for the host: kernels come one by one with gaps between them.",
    "small-kernels": "The GPU is always busy and does little: kernels too small to fill it.",
    "queueing": "Requests wait for their turn; once served, they are as quick as ever.",
    "memory-growth": "Memory in use kept growing under a constant load.",
    "mixed": "No single limit stands out.",
    "not-measured": "What bounds the server cannot be said without GPU evidence.",
}

NEXT = {
    "no-load": "Raise the rate: at this one there is nothing to say about limits.",
    "throttled": "Check the power limit and cooling (nvidia-smi -q -d PERFORMANCE); until then"
    " compare this run with no other.",
    "kv-pressure": "Allow fewer sequences at once (max_num_seqs), store the KV cache in 8 bit,"
    " shorten max_tokens, or give the cache more memory.",
    "compute-bound": "Compute in FP8 or INT8, cut long prompts into chunks (chunked prefill) so"
    " that they delay others less, reuse prefixes, or take a bigger GPU.",
    "bandwidth-bound": "Quantise the weights, let more sequences share each read of them, store a"
    " long context's KV cache in 8 bit, or try speculative decoding.",
    "wasted-traffic": "Look for padding to the longest sequence, masks, a cache that is"
    " dequantised or copied whole at each step, and KV of sequences that have ended.",
    "host-bound": "Launch fewer, larger pieces of work: a static cache with torch.compile, CUDA"
    " graphs, or a server with continuous batching such as vLLM.",
    "small-kernels": "Batch more requests together, fuse kernels (torch.compile), or replay them"
    " as CUDA graphs.",
    "queueing": "Admit more at once if memory allows, add a replica, or lower the rate; a bound"
    " on the queue turns waiting into a quick refusal.",
    "memory-growth": "Find what is kept between requests (caches, histories, tensors in"
    " tracebacks) and run a soak test after the fix.",
    "mixed": "Read the numbers of each rule below, change the load in one direction, and compare.",
    "not-measured": "Run the sidecar on the GPU's host (slo run --sidecar URL, or local), for 20"
    " samples and 10 s at least.",
}


def next_step(word: str, signals: Signals, limits: Limits) -> str:
    """What to try next, with what this run adds to it."""
    if word == "host-bound":
        return NEXT[word] + _host_hint(signals, limits)
    server = signals.server
    if word == "memory-growth" and server and server.allocated is None and server.reserved is None:
        return f"{NEXT[word]} The server does not tell allocated memory: it may be its allocator."
    return NEXT[word]


def _host_hint(signals: Signals, limits: Limits) -> str:
    load, server = signals.load, signals.server
    if load.tokenize_share is not None and load.tokenize_share >= 0.3:
        return f" {load.tokenize_share:.0%} of TTFT goes to the tokenizer: look there first."
    if server and server.cpu_pct is not None and server.cpu_pct >= limits["busy_thread"]:
        return f" The server's process uses {server.cpu_pct:.0f} % of a core: one thread's limit."
    return ""
