"""What files of other tools hold, as far as it is read here; what they do not is named."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from slo.ending import UsageError

# A time or a count; JSON of other tools has NaN and Infinity in it.
Number = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Vllm:
    """`vllm bench serve --save-result --save-detailed`; times in s."""

    start_times: tuple[Number, ...]
    ttfts: tuple[Number, ...]
    itls: tuple[tuple[Number, ...], ...]
    input_lens: tuple[int, ...]
    output_lens: tuple[int, ...]
    errors: tuple[str | None, ...]
    latencies: tuple[Number, ...] | None = None
    request_rate: Number | str | None = None
    burstiness: Number | None = None
    model_id: str | None = None


@dataclass(frozen=True, slots=True)
class GuidellmTimes:
    targeted_start: Number | None = None
    resolve_start: Number | None = None
    request_start: Number | None = None
    first_token_iteration: Number | None = None
    first_output_token_iteration: Number | None = None
    last_token_iteration: Number | None = None
    token_iterations: int | None = None
    request_end: Number | None = None
    resolve_end: Number | None = None


@dataclass(frozen=True, slots=True)
class GuidellmInfo:
    timings: GuidellmTimes
    error: Any = None


@dataclass(frozen=True, slots=True)
class GuidellmRequest:
    info: GuidellmInfo
    prompt_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class GuidellmRequests:
    successful: tuple[GuidellmRequest, ...] | None = None
    errored: tuple[GuidellmRequest, ...] | None = None
    incomplete: tuple[GuidellmRequest, ...] | None = None


@dataclass(frozen=True, slots=True)
class GuidellmBenchmark:
    requests: GuidellmRequests


@dataclass(frozen=True, slots=True)
class Guidellm:
    """GuideLLM's JSON report; times in s."""

    benchmarks: tuple[GuidellmBenchmark, ...]


@dataclass(frozen=True, slots=True)
class AiperfMetadata:
    request_start_ns: Number
    request_end_ns: Number
    credit_issued_ns: Number | None = None
    benchmark_phase: str | None = None


@dataclass(frozen=True, slots=True)
class AiperfMetric:
    value: Number | tuple[Number, ...] | None = None


@dataclass(frozen=True, slots=True)
class AiperfMetrics:
    """Times in ms."""

    request_latency: AiperfMetric | None = None
    time_to_first_token: AiperfMetric | None = None
    inter_chunk_latency: AiperfMetric | None = None
    input_sequence_length: AiperfMetric | None = None
    output_sequence_length: AiperfMetric | None = None
    output_token_count: AiperfMetric | None = None

    def number(self, name: str) -> float | None:
        value = getattr(self, name) and getattr(self, name).value
        return value if isinstance(value, float) else None

    def numbers(self, name: str) -> tuple[float, ...]:
        value = getattr(self, name) and getattr(self, name).value
        return value if isinstance(value, tuple) else ()


@dataclass(frozen=True, slots=True)
class AiperfError:
    code: int | None = None
    type: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Aiperf:
    """A line of AIPerf's profile_export.jsonl."""

    metadata: AiperfMetadata
    metrics: AiperfMetrics | None = None
    error: AiperfError | None = None


@dataclass(frozen=True, slots=True)
class LocustTotal:
    """A row of Locust's PREFIX_stats.csv."""

    name: Annotated[str, Field(alias="Name")]
    count: Annotated[Count, Field(alias="Request Count")]
    failed: Annotated[Count, Field(alias="Failure Count")]


@dataclass(frozen=True, slots=True)
class LocustSecond:
    """A row of Locust's PREFIX_stats_history.csv."""

    name: Annotated[str, Field(alias="Name")]
    at_s: Annotated[Number, Field(alias="Timestamp")]
    count: Annotated[Count, Field(alias="Total Request Count")]
    failed: Annotated[Count, Field(alias="Total Failure Count")]


S = TypeVar("S")


def json_file(path: Path) -> Any:
    """The document that a file holds.

    Raises:
        UsageError: it cannot be read, or is no JSON.
    """
    return _parsed(_text(path), str(path))


def json_lines(path: Path, shape: type[S]) -> Iterator[S]:
    """The lines of a file.

    Raises:
        UsageError: one of them is cut off, or another thing; names it.
    """
    text = _text(path).rstrip("\n")  # not splitlines(): U+2028 may stand in a JSON string
    for number, line in enumerate(text.split("\n") if text else (), 1):
        yield shaped(_parsed(line, f"{path}:{number}"), shape, f"{path}:{number}")


def csv_rows(path: Path, shape: type[S]) -> Iterator[S]:
    """The rows of a file under its head.

    Raises:
        UsageError: a column is missing, or a row holds something else; names the line.
    """
    reader = csv.DictReader(io.StringIO(_text(path), newline=""))
    missing = [name for name in _needed(shape) if name not in (reader.fieldnames or ())]
    if missing:
        raise UsageError(f"{path}:1: column {missing[0]} is missing; {_allowed(shape)}")
    for row in reader:
        yield shaped(row, shape, f"{path}:{reader.line_num}")


def shaped(document: Any, shape: type[S], where: str) -> S:
    """A document as what it should be.

    Raises:
        UsageError: it is another thing; names the key, and what is allowed.
    """
    try:
        found: S = _adapter(cast("Any", shape)).validate_python(document)
    except ValidationError as error:
        mistake = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(map(str, mistake["loc"])) or "the whole"
        what = f"{mistake['msg'][:1].lower()}{mistake['msg'][1:]}, not {mistake['input']!r:.60}"
        told = {"missing": "is missing", "dataclass_type": "is no object"}.get(
            mistake["type"], what
        )
        raise UsageError(f"{where}: {key}: {told}; {_allowed(shape)}") from None
    return found


@cache  # it takes longer to make than to read a line
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _allowed(shape: type[Any]) -> str:
    """What a shape is called, and what it must hold: a docstring is also for who meets the file."""
    said = (shape.__doc__ or "").split(";")[0].rstrip(".").replace("A ", "a ", 1)
    return f"allowed: {said} with {', '.join(_needed(shape))}"


def _needed(shape: type[Any], before: str = "") -> Iterator[str]:
    hints = get_type_hints(shape, include_extras=True)
    for field in fields(shape):
        hint = hints[field.name]
        if field.default is not MISSING:
            continue
        if is_dataclass(hint):
            yield from _needed(cast("type[Any]", hint), f"{before}{field.name}.")
        else:
            aliases = (getattr(one, "alias", None) for one in getattr(hint, "__metadata__", ()))
            yield f"{before}{next(filter(None, aliases), field.name)}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is no UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = "" if "\n" not in text.strip() else f":{error.lineno}"
        raise UsageError(f"{where}{line}: cut off or no JSON: {error.msg}") from None
    except RecursionError:
        raise UsageError(f"{where}: is nested too deep") from None
    except ValueError as error:  # a number of thousands of digits
        raise UsageError(f"{where}: cannot be read as JSON: {error}") from None
