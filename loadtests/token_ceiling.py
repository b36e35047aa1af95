"""The ceiling on tokens: nothing is started that could take the sum over it."""

import math

from loadtests.plan import Plan
from slo.record import Arrival, Failure, Record

_NOT_ASKED = (Failure.UNRESOLVED, Failure.REFUSED, Failure.CONNECT_TIMEOUT, Failure.TLS)

# Lengths are Qwen's: another tokenizer may need so much more, and a chat template some beside.
OTHERS, FRAME = 1.25, 16


class TokenCeiling:
    """One worker's part of --max-total-tokens."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._reserved: dict[int, int] = {}

    @classmethod
    def of(cls, plan: Plan, worker: int) -> "TokenCeiling | None":
        """A worker's part of the plan's ceiling, where it has one."""
        if plan.max_total_tokens is None:
            return None
        share, rest = divmod(plan.max_total_tokens, plan.workers)
        return cls(share + (worker < rest))

    def reserve(self, arrival: Arrival, request_bytes: int, said_tokens: int) -> bool:
        """Set aside the most that a request can take; false where too little is left.

        `said_tokens` are those of a session's earlier turns. Of a prompt whose length is not
        known, each byte may be a token.
        """
        known = arrival.input_class.isdecimal()
        prompt = request_bytes
        if known:
            prompt = said_tokens + math.ceil(OTHERS * int(arrival.input_class)) + FRAME
        most = arrival.max_tokens + prompt
        if most > self._left:
            return False
        self._left -= most
        self._reserved[arrival.seq] = most
        return True

    def spend(self, record: Record) -> None:
        """Give back what an ended request did not take, where the server said what it took."""
        reserved = self._reserved.pop(record.seq, 0)
        if record.sent_s is None or record.error in _NOT_ASKED:
            self._left += reserved
        elif record.tokens_from == "usage":
            self._left += reserved - (record.prompt_tokens or 0) - (record.output_tokens or 0)
