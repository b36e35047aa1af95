"""The ceiling on tokens: nothing is started that could take the sum over it."""

from loadtests.options import Plan
from slo.record import Arrival, Record


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

    def reserve(self, arrival: Arrival) -> bool:
        """Set aside the most that a request can take; false where too little is left."""
        most = int(arrival.input_class) + arrival.max_tokens
        if most > self._left:
            return False
        self._left -= most
        self._reserved[arrival.seq] = most
        return True

    def spend(self, record: Record) -> None:
        """Give back what an ended request did not take, where the server said what it took."""
        reserved = self._reserved.pop(record.seq, 0)
        if record.sent_s is None:
            self._left += reserved
        elif record.tokens_from == "usage":
            self._left += reserved - (record.prompt_tokens or 0) - (record.output_tokens or 0)
