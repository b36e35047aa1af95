"""A run that no hardware could have done: more tokens than the roofline of its GPUs allows.

Every assumption errs towards the higher roofline: the fewest bits a weight may have, no prompt in
the context, and a step that gives as many tokens as a chunk carried.
"""

from dataclasses import dataclass

import numpy as np

from slo.latencies import Columns
from slo.machine import Found
from slo.roofline import ceiling_tokens_per_s, floor_step_s
from slo.rundir import Run
from slo.validity import passed, unchecked, voided
from slo.verdict import Check

IMPOSSIBLE_SHARE = 0.01  # a clock may step during one request


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast the answers came, against what is possible."""

    tokens_per_s: float
    ceiling: float
    impossible: int  # requests that alone were too fast
    answered: int


def roofline(run: Run, columns: Columns, found: Found) -> Check:
    """Whether the answers could have been computed as fast as they came."""
    speed = speed_of(run, columns, found)
    if speed is None:
        return unchecked("roofline", "<= the GPUs' roofline", f"Not known: {found.why}.")
    limit = f"<= {speed.ceiling:,.0f} tokens/s"
    shown = f"{speed.tokens_per_s:,.0f} tokens/s"
    if speed.tokens_per_s > speed.ceiling:
        why = "More tokens a second than the GPUs' memory and cores allow at this concurrency: "
        return voided("roofline", shown, limit, f"{why}token counts, model or GPU are not so.")
    if speed.impossible > IMPOSSIBLE_SHARE * speed.answered:
        why = f"{speed.impossible} of {speed.answered} answers came faster than the GPUs could "
        why += "decode them alone: token counts, model or GPU are not what they are said to be."
        return voided("roofline", f"{speed.impossible} impossible", limit, why)
    return passed("roofline", shown, limit, "The GPUs can do that.")


def speed_of(run: Run, columns: Columns, found: Found) -> Speed | None:
    """The speed of all completed requests; None without a roofline or an answer."""
    numbers = columns.numbers
    tokens, chunks = numbers["output_tokens"], numbers["chunks"]
    sent, last = numbers["sent_s"], numbers["last_token_s"]
    known = columns.completed & np.isfinite(tokens) & np.isfinite(sent) & (last > sent)
    if found.cautious is None or not known.any():
        return None
    tokens, sent, last, chunks = tokens[known], sent[known], last[known], chunks[known]
    # Speculative decoding gives several tokens a step; no step gives more than came at once.
    a_step = max(1.0, float(tokens.sum() / max(chunks.sum(), 1.0)))
    alone_s = floor_step_s(found.cautious, 1, 0) / a_step
    moments = np.concatenate((sent, last))
    order = np.argsort(moments, kind="stable")
    at_once = np.cumsum(np.where(order < len(sent), 1, -1)).max()
    ceiling = a_step * ceiling_tokens_per_s(found.cautious, float(at_once), 0)
    return Speed(
        tokens_per_s=float(tokens.sum() / (last.max() - sent.min())),
        ceiling=ceiling,
        impossible=int((tokens * alone_s > last - sent).sum()),
        answered=int(known.sum()),
    )
