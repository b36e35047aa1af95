"""What files of other tools hold, as far as it is read here; what they do not is named."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slo.ending import UsageError


class Shape(BaseModel):
    """Keys that are not read may be anything."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, populate_by_name=True)


class Vllm(Shape):
    """`vllm bench serve --save-result --save-detailed`; times in s."""

    start_times: tuple[float, ...]
    ttfts: tuple[float, ...]
    itls: tuple[tuple[float, ...], ...]
    input_lens: tuple[int, ...]
    output_lens: tuple[int, ...]
    errors: tuple[str | None, ...]
    latencies: tuple[float, ...] | None = None
    request_rate: float | str | None = None
    burstiness: float | None = None
    model_id: str | None = None


class GuidellmTimes(Shape):
    targeted_start: float | None = None
    resolve_start: float | None = None
    request_start: float | None = None
    first_token_iteration: float | None = None
    first_output_token_iteration: float | None = None
    last_token_iteration: float | None = None
    token_iterations: int | None = None
    request_end: float | None = None
    resolve_end: float | None = None


class GuidellmInfo(Shape):
    timings: GuidellmTimes
    error: Any = None


class GuidellmRequest(Shape):
    info: GuidellmInfo
    prompt_tokens: int | None = None
    output_tokens: int | None = None


class GuidellmRequests(Shape):
    successful: tuple[GuidellmRequest, ...] | None = None
    errored: tuple[GuidellmRequest, ...] | None = None
    incomplete: tuple[GuidellmRequest, ...] | None = None


class GuidellmBenchmark(Shape):
    requests: GuidellmRequests


class Guidellm(Shape):
    """GuideLLM's JSON report; times in s."""

    benchmarks: tuple[GuidellmBenchmark, ...]


class AiperfMetadata(Shape):
    request_start_ns: float
    request_end_ns: float
    credit_issued_ns: float | None = None
    benchmark_phase: str | None = None


class AiperfMetric(Shape):
    value: float | tuple[float, ...] | None = None


class AiperfMetrics(Shape):
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


class AiperfError(Shape):
    code: int | None = None
    type: str | None = None
    message: str | None = None


class Aiperf(Shape):
    """A line of AIPerf's profile_export.jsonl."""

    metadata: AiperfMetadata
    metrics: AiperfMetrics | None = None
    error: AiperfError | None = None


Count = Annotated[int, Field(ge=0)]


class LocustTotal(Shape):
    """A row of Locust's PREFIX_stats.csv."""

    name: str = Field(alias="Name")
    count: Count = Field(alias="Request Count")
    failed: Count = Field(alias="Failure Count")


class LocustSecond(Shape):
    """A row of Locust's PREFIX_stats_history.csv."""

    name: str = Field(alias="Name")
    at_s: float = Field(alias="Timestamp")
    count: Count = Field(alias="Total Request Count")
    failed: Count = Field(alias="Total Failure Count")


S = TypeVar("S", bound=Shape)


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
    for number, line in enumerate(_text(path).splitlines(), 1):
        yield shaped(_parsed(line, f"{path}:{number}"), shape, f"{path}:{number}")


def csv_rows(path: Path, shape: type[S]) -> Iterator[S]:
    """The rows of a file under its head.

    Raises:
        UsageError: a column is missing, or a row holds something else; names the line.
    """
    reader = csv.DictReader(_text(path).splitlines())
    wanted = [field.alias or name for name, field in shape.model_fields.items()]
    missing = [name for name in wanted if name not in (reader.fieldnames or ())]
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
        return shape.model_validate(document)
    except ValidationError as error:
        mistake = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(map(str, mistake["loc"])) or "the whole"
        what = f"{mistake['msg'][:1].lower()}{mistake['msg'][1:]}, not {mistake['input']!r:.60}"
        told = {"missing": "is missing", "model_type": "is no object"}.get(mistake["type"], what)
        raise UsageError(f"{where}: {key}: {told}; {_allowed(shape)}") from None


def _allowed(shape: type[Shape]) -> str:
    """What a shape is called, and what it must hold: a docstring is also for who meets the file."""
    said = (shape.__doc__ or "").split(";")[0].rstrip(".").replace("A ", "a ", 1)
    return f"allowed: {said} with {', '.join(_needed(shape))}"


def _needed(shape: type[Shape], before: str = "") -> Iterator[str]:
    for name, field in shape.model_fields.items():
        if not field.is_required():
            continue
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Shape):
            yield from _needed(inner, f"{before}{name}.")
        else:
            yield f"{before}{field.alias or name}"


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
