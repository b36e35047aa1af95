"""One planned arrival and what came of it: the row of schedule.csv and the line of requests.jsonl.

All times are seconds on a monotonic clock from the run's start (`Run.t0_mono_ns`); `None` means
"not measured" or "did not happen", never 0.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Phase = Literal["warmup", "measured"]
TokensFrom = Literal["usage", "tokenizer", "chunks"]


class Failure(StrEnum):
    """Why a request has no latency. Each is over every latency target."""

    UNRESOLVED = "unresolved"  # the host name has no address
    REFUSED = "refused"  # nothing listens there
    CONNECT_TIMEOUT = "connect_timeout"
    TLS = "tls"
    RESET = "reset"  # the peer reset the connection
    TIMEOUT_BEFORE_HEADERS = "timeout_before_headers"
    TIMEOUT_MID_STREAM = "timeout_mid_stream"  # headers came, the end did not
    HTTP_STATUS = "http_status"  # the answer's status is in `status`
    NOT_HTTP = "not_http"  # bytes that are no HTTP answer
    NOT_A_STREAM = "not_a_stream"  # 200, but no text/event-stream
    CUT_MID_STREAM = "cut_mid_stream"  # the body ended inside a chunk or an event
    MISSING_DONE = "missing_done"  # a well-formed body that ended without [DONE]
    MALFORMED_EVENT = "malformed_event"  # an event whose data is no JSON object of the API
    ERROR_EVENT = "error_event"  # an error object inside an HTTP 200
    EMPTY_ANSWER = "empty_answer"  # [DONE] came, and no visible text before it
    IN_FLIGHT_CAP = "in_flight_cap"  # not sent: --max-in-flight requests were open already
    SKIPPED = "skipped"  # a turn whose earlier turn failed
    CANCELLED = "cancelled"  # in flight when the run was stopped early
    DROPPED = (
        "dropped"  # the generator itself could not start it: voids the run, no fault of the server
    )


@dataclass(frozen=True, slots=True)
class Arrival:
    """What was intended: one row of schedule.csv, written before the first request.

    `due_s` is None for a later turn of a session, which is due `think_s` after turn `after_seq`
    ended, and in a closed loop, where a request is due when another ended: when it is sent.
    """

    seq: int
    due_s: float | None
    phase: Phase
    scenario: str
    lang: str
    input_class: str
    prompt_id: str
    max_tokens: int
    session: int
    turn: int = 0
    after_seq: int | None = None
    think_s: float | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """What came of one arrival: one line of requests.jsonl, failures included.

    Latencies are not stored but derived (`slo.latencies`), so that there is one definition of each.
    """

    seq: int
    due_s: float
    phase: Phase
    scenario: str
    lang: str
    input_class: str
    prompt_id: str
    max_tokens: int
    session: int
    turn: int
    after_seq: int | None
    think_s: float | None
    worker: int
    sent_s: float | None = None  # on a connection of its own: when connecting began
    connected_s: float | None = None  # None on a connection that was open already
    first_event_s: float | None = None  # first SSE event of any kind
    first_token_s: float | None = None  # first visible text, reasoning or answer
    first_answer_token_s: float | None = None  # first visible text of the answer
    last_token_s: float | None = None
    ended_s: float | None = None  # end of the stream, or when the failure was known
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    tokens_from: TokensFrom | None = None
    chunks: int = 0  # events that carried visible text
    first_chunk_tokens: int | None = None
    itl_ms: tuple[float, ...] = ()  # gaps between those chunks: chunks - 1 of them
    finish_reason: str | None = None
    status: int | None = None
    error: Failure | None = None
    error_detail: str | None = None  # one line, for a person
    timings: dict[str, float] | None = None  # the server's own, as it sent them
    cached_tokens: int | None = None  # of the prompt, found in the server's prefix cache
    text_tokens: int | None = None  # of the text that came, by --tokenizer

    @property
    def completed(self) -> bool:
        """Whether it ended well, so that it has latencies."""
        return self.error is None
