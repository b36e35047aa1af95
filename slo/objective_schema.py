"""The form of one objective in slo.yaml, and what is allowed in it."""

from difflib import get_close_matches
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from slo.objectives import (
    BOUNDS,
    LATENCIES,
    METRICS,
    PER_REQUEST,
    change_of,
    confidence_of,
    limit_of,
)
from slo.resources import FOLDS, RESOURCE_METRICS, RESOURCES

STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

# What people write as text with a unit; checked by our own code, so that messages are ours.
Limit = Annotated[
    object, WithJsonSchema({"type": ["string", "number"], "examples": ["420ms", "0.5%", "3/s"]})
]
Share = Annotated[object, WithJsonSchema({"type": ["string", "number"], "examples": ["0.5%"]})]
# Each quantity of a resource once, with its folds.
_ALLOWED = (
    *(name for name in METRICS if name not in RESOURCE_METRICS),
    *(f"{name}_{'|'.join(FOLDS)}" for name in RESOURCES),
)
_Change = Annotated[object, WithJsonSchema({"type": "string", "examples": ["+10%", "-5%"]})]
_Percentile = Annotated[
    object, WithJsonSchema({"type": "number", "minimum": 1, "exclusiveMaximum": 100})
]
_Metric = Annotated[str, WithJsonSchema({"type": "string", "enum": list(METRICS)})]
_Meets = Annotated[
    object,
    WithJsonSchema(
        {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": False,
            "properties": {name: {"type": "string"} for name in PER_REQUEST},
        }
    ),
]


class ObjectiveText(BaseModel):
    """One objective: a percentile of a latency, a share, a rate or a resource, with its limit."""

    model_config = STRICT | ConfigDict(validate_default=True)

    metric: _Metric = Field(description="what is judged")
    percentile: _Percentile = Field(default=None, description="of a latency, e.g. 95")
    meets: _Meets = Field(
        default=None, description="of goodput: the latencies that a good request meets"
    )
    max_change: _Change = Field(
        default=None, description="against the baseline, e.g. +10%, instead of max or min"
    )
    max: Limit = Field(default=None, description="upper limit, e.g. 420ms or 0.5%")
    min: Limit = Field(default=None, description="lower limit, e.g. 99% or 3/s")
    scenario: str = Field(default="all", description="judge the requests of one scenario only")
    severity: Literal["gate", "warn"] = Field(
        default="gate", description="warn never turns the result"
    )
    confidence: Share = Field(default=0.95, description="with which PASS and FAIL are said")
    min_samples: Annotated[int, Field(ge=0)] = Field(
        default=0, description="fewer are inconclusive"
    )

    @field_validator("metric")
    @classmethod
    def _metric(cls, value: str) -> str:
        if value in METRICS:
            return value
        allowed = f"allowed: {', '.join(_ALLOWED)}"
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

    @field_validator("meets")
    @classmethod
    def _meets(cls, value: object, info: ValidationInfo) -> object:
        metric = info.data.get("metric")
        if metric != "goodput":
            if value is not None and metric is not None:
                raise ValueError(f"is not for {metric}; it is for goodput")
            return None
        if not isinstance(value, dict) or not value:
            raise ValueError("is missing; write {ttft: 420ms, e2e: 1.5s}")
        for name, limit in value.items():
            if name not in PER_REQUEST or name == "itl":
                allowed = ", ".join(one for one in PER_REQUEST if one != "itl")
                raise ValueError(f"{name!r} is no latency of one request; allowed: {allowed}")
            limit_of(name, limit)
        return value

    @field_validator("max_change")
    @classmethod
    def _change(cls, value: object, info: ValidationInfo) -> object:
        metric = info.data.get("metric")
        if value is not None and metric is not None:
            change_of(metric, value)
        return value

    @field_validator("max", "min")
    @classmethod
    def _limit(cls, value: object, info: ValidationInfo) -> object:
        metric, bound = info.data.get("metric"), info.field_name
        if metric is None or "max_change" not in info.data:
            return value  # one mistake is enough
        allowed = BOUNDS[metric]
        if info.data["max_change"] is not None:
            if value is not None:
                raise ValueError("stands beside max_change; write one of them")
            return None
        if bound not in allowed:
            if value is not None:
                raise ValueError(f"is not for {metric}; write {allowed[0]}")
            return None
        other = info.data.get("max") is not None
        if bound == "min" and value is not None and other:
            raise ValueError("stands beside max; write one objective for each")
        if bound == allowed[-1] and value is None and not other:
            raise ValueError(f"is missing; {metric} needs its limit")
        if value is not None:
            limit_of(metric, value)
        return value

    @field_validator("confidence")
    @classmethod
    def _confidence(cls, value: object) -> object:
        confidence_of(value)
        return value


# What JSON Schema must know of metrics: which keys each needs, and which it refuses.
RULES = [
    (LATENCIES, ["percentile"], ["min", "meets"], ["max", "max_change"]),
    (("error_rate",), ["max"], ["min", "percentile", "meets", "max_change"], []),
    (("goodput",), ["min", "meets"], ["max", "percentile", "max_change"], []),
    (("achieved_rate", "accuracy"), ["min"], ["max", "percentile", "meets", "max_change"], []),
    (("output_tokens_per_s",), [], ["max", "percentile", "meets"], ["min", "max_change"]),
    (
        tuple(name for name, bounds in BOUNDS.items() if len(bounds) > 1),
        [],
        ["percentile", "meets", "max_change"],
        ["max", "min"],
    ),
]


def _is_percentile(text: str) -> bool:
    return text[:1] in "pP" and text[1:].replace(".", "", 1).isdigit()
