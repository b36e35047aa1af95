"""The form of slo.yaml: pydantic models for the text in it, and the JSON Schema for editors."""

import json
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from slo.objectives import BOUND_OF, LATENCIES, METRICS, confidence_of, limit_of
from slo.quantities import duration_s, rate_per_s, share

_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
_NOT_YET = ("goodput", "accuracy")
_NOT_YET_STARTS = ("gpu_", "server_")

# What people write as text with a unit; checked by our own code, so that messages are ours.
_Duration = Annotated[object, WithJsonSchema({"type": "string", "examples": ["420ms", "10m"]})]
_Rate = Annotated[object, WithJsonSchema({"type": ["string", "number"], "examples": ["3/s"]})]
_Share = Annotated[object, WithJsonSchema({"type": ["string", "number"], "examples": ["0.5%"]})]
_Limit = Annotated[
    object, WithJsonSchema({"type": ["string", "number"], "examples": ["420ms", "0.5%", "3/s"]})
]
_Percentile = Annotated[
    object, WithJsonSchema({"type": "number", "minimum": 1, "exclusiveMaximum": 100})
]
_Metric = Annotated[str, WithJsonSchema({"type": "string", "enum": list(METRICS)})]
_InputClass = Annotated[object, WithJsonSchema({"type": ["string", "integer"]})]


class LoadText(BaseModel):
    """The load that the objectives hold at; a run under another load is INVALID."""

    model_config = _STRICT

    rate: _Rate = Field(default=None, description="offered requests a second, e.g. 3/s or 90/m")
    arrival: Literal["poisson", "constant"] | None = Field(
        default=None, description="arrival process"
    )
    duration: _Duration = Field(default=None, description="measured window, at least")
    warmup: _Duration = Field(default=None, description="time before the measured window, at least")
    mix: dict[str, float] | None = Field(default=None, description="shares by scenario")
    input_class: _InputClass = Field(default=None, description="prompt length class, or mixed")
    max_tokens: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="output tokens, most"
    )

    @field_validator("rate")
    @classmethod
    def _rate(cls, value: object) -> object:
        return _checked(value, rate_per_s)

    @field_validator("duration", "warmup")
    @classmethod
    def _duration(cls, value: object) -> object:
        return _checked(value, duration_s)

    @field_validator("mix")
    @classmethod
    def _mix(cls, value: dict[str, float] | None) -> dict[str, float] | None:
        if value is not None and (not value or min(value.values()) < 0 or sum(value.values()) <= 0):
            raise ValueError(f"{value!r} is no mix; write {{math: 0.6, code: 0.4}}")
        return value


class ObjectiveText(BaseModel):
    """One objective: a percentile of a latency, or a rate, with its limit."""

    model_config = _STRICT | ConfigDict(validate_default=True)

    metric: _Metric = Field(description="what is judged")
    percentile: _Percentile = Field(default=None, description="of a latency, e.g. 95")
    max: _Limit = Field(default=None, description="upper limit, e.g. 420ms or 0.5%")
    min: _Limit = Field(default=None, description="lower limit, e.g. 99% or 3/s")
    scenario: str = Field(default="all", description="judge the requests of one scenario only")
    severity: Literal["gate", "warn"] = Field(
        default="gate", description="warn never turns the result"
    )
    confidence: _Share = Field(default=0.95, description="with which PASS and FAIL are said")
    min_samples: Annotated[int, Field(ge=0)] = Field(
        default=0, description="fewer are inconclusive"
    )

    @field_validator("metric")
    @classmethod
    def _metric(cls, value: str) -> str:
        if value in METRICS:
            return value
        allowed = f"allowed: {', '.join(METRICS)}"
        if value in _NOT_YET or value.startswith(_NOT_YET_STARTS):
            raise ValueError(f"{value} is not supported yet; {allowed}")
        percentile = next((part for part in value.split("_") if _is_percentile(part)), None)
        if percentile:
            rest = value.replace(percentile, "").strip("_")
            metric = rest if rest in LATENCIES else "ttft"
            number = percentile[1:]
            hint = f"write metric: {metric}, percentile: {number}"
            raise ValueError(f"{value!r} is no metric; {hint}; {allowed}")
        near = get_close_matches(value, METRICS, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"{value!r} is no metric; {hint}{allowed}")

    @field_validator("percentile")
    @classmethod
    def _percentile(cls, value: object, info: ValidationInfo) -> object:
        metric = info.data.get("metric")
        if metric is not None and metric not in LATENCIES:
            if value is not None:
                raise ValueError(f"is not for {metric}; it is for {', '.join(LATENCIES)}")
            return None
        if value is None:
            if metric is not None:
                raise ValueError(f"is missing; {metric} is judged by a percentile, e.g. 95")
            return None
        if isinstance(value, str) and _is_percentile(value):
            raise ValueError(f"{value!r} is no number; write percentile: {value[1:]}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{value!r} is no number; allowed: 1 to below 100, e.g. 95")
        if not 1 <= value < 100:
            hint = f"did you mean {value * 100:g}? " if 0 < value < 1 else ""
            raise ValueError(f"{value} is out of range; {hint}allowed: 1 to below 100")
        return value

    @field_validator("max", "min")
    @classmethod
    def _limit(cls, value: object, info: ValidationInfo) -> object:
        metric, bound = info.data.get("metric"), info.field_name
        if metric is None:
            return value
        if BOUND_OF[metric] != bound:
            if value is not None:
                raise ValueError(f"is not for {metric}; write {BOUND_OF[metric]}")
            return None
        if value is None:
            raise ValueError(f"is missing; {metric} needs its limit")
        limit_of(metric, value)
        return value

    @field_validator("confidence")
    @classmethod
    def _confidence(cls, value: object) -> object:
        confidence_of(value)
        return value


class ValidityText(BaseModel):
    """When a run is too poor to be judged."""

    model_config = _STRICT

    lateness: _Share = Field(
        default="5%", description="due to sent, P99, of the tightest latency limit"
    )
    achieved_rate: _Share = Field(default="99%", description="started requests of those offered")
    dropped: Annotated[int, Field(ge=0)] = Field(
        default=0, description="arrivals the generator dropped"
    )

    @field_validator("lateness", "achieved_rate")
    @classmethod
    def _share(cls, value: object) -> object:
        checked = _checked(value, share)
        if not 0 <= share(str(checked)) <= 1:
            raise ValueError(f"{value!r} is not within 0% to 100%")
        return checked


class SloText(BaseModel):
    """Targets of one service, and the load at which they hold."""

    model_config = _STRICT | ConfigDict(title="Tailgate slo.yaml")

    version: Literal[1] = Field(description="of this form")
    service: Annotated[str, Field(min_length=1)] = Field(description="what is judged")
    load: LoadText = LoadText()
    objectives: Annotated[list[ObjectiveText], Field(min_length=1)]
    validity: ValidityText = ValidityText()


# Allowed keys by the place in the document.
KEYS: dict[tuple[str, ...], tuple[str, ...]] = {
    (): tuple(SloText.model_fields),
    ("load",): tuple(LoadText.model_fields),
    ("objectives",): tuple(ObjectiveText.model_fields),
    ("validity",): tuple(ValidityText.model_fields),
}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of slo.yaml, with which editors complete and check it."""
    schema = SloText.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["$defs"]["ObjectiveText"]["allOf"] = [
        _when(LATENCIES, ["percentile", "max"], ["min"]),
        _when(("error_rate",), ["max"], ["min", "percentile"]),
        _when(("achieved_rate", "output_tokens_per_s"), ["min"], ["max", "percentile"]),
    ]
    return schema


def json_schema_text() -> str:
    """docs/slo.schema.json."""
    return json.dumps(json_schema(), indent=2) + "\n"


def _when(metrics: tuple[str, ...], required: list[str], refused: list[str]) -> dict[str, Any]:
    return {
        "if": {"properties": {"metric": {"enum": list(metrics)}}},
        "then": {"required": required, "properties": dict.fromkeys(refused, False)},
    }


def _is_percentile(text: str) -> bool:
    return text[:1] in "pP" and text[1:].replace(".", "", 1).isdigit()


def _checked(value: object, parse: Any) -> object:
    """Check a text with a unit, and leave it as it is written."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is no quantity; write a number with its unit")
    parse(str(value))
    return value
