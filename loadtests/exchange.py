"""One request on the wire: when it was sent, and what came back when."""

from dataclasses import dataclass, field

from loadtests.http1 import AnswerReader
from slo.record import Arrival, Failure


@dataclass(slots=True, eq=False)
class Exchange:
    """Filled while a request is in flight, read when it ended. Times: CLOCK_MONOTONIC, ns."""

    arrival: Arrival | None = None  # None: a trial request
    sent_ns: int | None = None  # written, or on a connection of its own: began to connect
    connected_ns: int | None = None  # None on a connection that was open already
    ended_ns: int | None = None
    stamps_ns: list[int] = field(default_factory=list)  # one for each packet
    packets: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)  # what each packet held of the body, if read
    http: AnswerReader = field(default_factory=AnswerReader)
    broke: Failure | None = None  # why no more bytes came, where that was not the answer's end
    detail: str | None = None

    @property
    def received_bytes(self) -> int:
        """All bytes that came, framing included."""
        return sum(map(len, self.packets))

    def take(self, stamp_ns: int, packet: bytes) -> bool:
        """Note a packet; whether it ended the answer. All else is read when there is time.

        Raises:
            NotHttpError: bytes that are no HTTP answer.
        """
        self.stamps_ns.append(stamp_ns)
        self.packets.append(packet)
        # A chunked body ends with these bytes, if not all of them in one packet.
        if self.http.chunked and packet[-4:] != b"\r\n\r\n" and len(packet) > 3:
            return False
        return self.unframe()

    def unframe(self) -> bool:
        """Take the packets out of their HTTP framing; whether the answer ended.

        Raises:
            NotHttpError: bytes that are no HTTP answer.
        """
        feed, bodies = self.http.feed, self.bodies
        for packet in self.packets[len(bodies) :]:
            bodies.append(b"")  # in its place even where reading fails
            bodies[-1] = feed(packet)
        return self.http.ended
