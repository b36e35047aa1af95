"""A static cache and a compiled decode step: `generate` with lengths that are fixed once.

On CUDA, transformers compiles the decode step by itself when the cache is static, with CUDA graphs;
a longer cache would be another compilation, so its length is an option and the same for all.
"""

from typing import Any

from target.hf_decode import Model, Row


def compiles(model: Model) -> bool:
    """Whether the decode step is compiled: transformers does so on CUDA alone."""
    return model.device.startswith("cuda")


class Streamer:
    """Takes tokens from `generate` as they come; the first are the prompt."""

    def __init__(self, model: Model, row: Row) -> None:
        self.model = model
        self.row = row
        self.prompt = True

    def put(self, value: Any) -> None:
        """Called by generate with a tensor of ids."""
        if self.prompt:
            self.prompt = False
        elif not self.row.done:
            self.row.take(int(value.reshape(-1)[0]), self.model.eos)

    def end(self) -> None:
        """Called by generate at its end."""


def decode_static(model: Model, row: Row, max_cache_len: int) -> None:
    """Answer one request; its steps are told as they come."""
    import time

    import torch

    row.started_s = time.monotonic()
    params = row.params
    ids = torch.tensor([list(row.prompt)], device=model.device)
    torch.manual_seed(params.seed or 0)
    sampling: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None}
    if params.temperature > 0:
        sampling = {"do_sample": True, "temperature": params.temperature, "top_p": params.top_p}

    def stopping(input_ids: Any, scores: Any, **more: Any) -> Any:
        return torch.full((input_ids.shape[0],), row.stop.is_set(), device=input_ids.device)

    def closing(input_ids: Any, scores: Any) -> Any:
        if params.think_tokens is None or model.think_close is None:
            return scores
        said = input_ids[0, len(row.prompt) :]
        if len(said) == params.think_tokens and model.think_close not in said.tolist():
            scores = torch.full_like(scores, -float("inf"))
            scores[:, model.think_close] = 0.0
        return scores

    with torch.inference_mode(), model.marks.range("generate"):
        model.network.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=params.max_tokens,
            min_new_tokens=params.max_tokens if params.ignore_eos else params.min_tokens or None,
            cache_implementation="static",
            max_cache_len=max_cache_len,
            streamer=Streamer(model, row),
            stopping_criteria=[stopping],
            logits_processor=[closing],
            **sampling,
        )
    row.end()
