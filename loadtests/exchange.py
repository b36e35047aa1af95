"""One request on the wire: when it was sent, and the packets of its answer with their times."""

from dataclasses import dataclass, field

from slo.record import Failure


@dataclass(slots=True)
class Exchange:
    """Filled while a request is in flight, read when it ended. Times: CLOCK_MONOTONIC, ns."""

    sent_ns: int | None = None
    connected_ns: int | None = None  # None on a connection that was open already
    ended_ns: int | None = None
    stamps_ns: list[int] = field(default_factory=list)  # one for each packet
    packets: list[bytes] = field(default_factory=list)
    broke: Failure | None = None  # why no more bytes came, where that was not the answer's end
    detail: str | None = None
    closed: bool = False  # the peer closed the connection
