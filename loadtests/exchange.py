"""One request on the wire: when it was sent, and what came back when."""

from dataclasses import dataclass, field

from loadtests.http1 import AnswerReader
from slo.record import Arrival, Failure


@dataclass(slots=True, eq=False)
class Exchange:
    """Filled while a request is in flight, read when it ended. Times: CLOCK_MONOTONIC, ns."""

    arrival: Arrival | None = None  # None: a trial request
    sent_ns: int | None = None
    connected_ns: int | None = None  # None on a connection that was open already
    ended_ns: int | None = None
    stamps_ns: list[int] = field(default_factory=list)  # one for each packet
    bodies: list[bytes] = field(default_factory=list)  # what each packet held of the body
    received_bytes: int = 0
    http: AnswerReader = field(default_factory=AnswerReader)
    broke: Failure | None = None  # why no more bytes came, where that was not the answer's end
    detail: str | None = None

    def take(self, stamp_ns: int, packet: bytes) -> bool:
        """Note a packet; whether it ended the answer. All else is read when there is time.

        Raises:
            NotHttpError: bytes that are no HTTP answer.
        """
        self.stamps_ns.append(stamp_ns)
        self.received_bytes += len(packet)
        self.bodies.append(b"")  # in its place even where reading fails
        self.bodies[-1] = self.http.feed(packet)
        return self.http.ended
