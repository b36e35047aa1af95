"""The form of slo.yaml: pydantic models for the text in it, and the JSON Schema for editors."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_validator

from slo import arrival, input_lengths
from slo.objective_schema import RULES, STRICT, ObjectiveText, Share
from slo.objectives import written_text
from slo.quantities import duration_s, part, rate_per_s

_Duration = Annotated[object, WithJsonSchema({"type": "string", "examples": ["420ms", "10m"]})]
_Rate = Annotated[object, WithJsonSchema({"type": ["string", "number"], "examples": ["3/s"]})]
_InputClass = Annotated[object, WithJsonSchema({"type": ["string", "integer"]})]


class LoadText(BaseModel):
    """The load that the objectives hold at; a run under another load is INVALID."""

    model_config = STRICT

    rate: _Rate = Field(default=None, description="offered requests a second, e.g. 3/s or 90/m")
    arrival: str | None = Field(
        default=None, description=f"arrival process: {arrival.FORMS}", examples=["poisson"]
    )
    duration: _Duration = Field(default=None, description="measured window, at least")
    warmup: _Duration = Field(default=None, description="time before the measured window, at least")
    mix: dict[str, float] | None = Field(default=None, description="shares by scenario")
    input_class: _InputClass = Field(
        default=None, description=f"tokens of prompts: {input_lengths.FORMS}"
    )
    max_tokens: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="output tokens, most"
    )

    @field_validator("arrival")
    @classmethod
    def _arrival(cls, value: object) -> object:
        return _checked(value, arrival.parse)

    @field_validator("rate")
    @classmethod
    def _rate(cls, value: object) -> object:
        return _checked(value, rate_per_s)

    @field_validator("duration", "warmup")
    @classmethod
    def _duration(cls, value: object) -> object:
        return _checked(value, duration_s)

    @field_validator("input_class")
    @classmethod
    def _input_class(cls, value: object) -> object:
        return _checked(value, input_lengths.parse)

    @field_validator("mix")
    @classmethod
    def _mix(cls, value: dict[str, float] | None) -> dict[str, float] | None:
        if value is not None and (not value or min(value.values()) < 0 or sum(value.values()) <= 0):
            raise ValueError(f"{value!r} is no mix; write {{math: 0.6, code: 0.4}}")
        return value


class ValidityText(BaseModel):
    """When a run is too poor to be judged."""

    model_config = STRICT

    lateness: Share = Field(
        default="5%", description="due to sent, P99, of the tightest latency limit"
    )
    achieved_rate: Share = Field(default="99%", description="started requests of those offered")
    dropped: Annotated[int, Field(ge=0)] = Field(
        default=0, description="arrivals the generator dropped"
    )
    duration: _Duration = Field(default="0s", description="measured window, at least")
    token_doubt: Share = Field(default="1%", description="requests whose token count is in doubt")
    cache_hits: Share = Field(
        default="1%", description="requests with most of their prompt out of a prefix cache"
    )
    clock_step: _Duration = Field(default="50ms", description="step of the wall clock in mid-run")

    @field_validator("lateness", "achieved_rate", "token_doubt", "cache_hits")
    @classmethod
    def _share(cls, value: object) -> object:
        return _checked(value, part)

    @field_validator("duration", "clock_step")
    @classmethod
    def _duration(cls, value: object) -> object:
        return _checked(value, duration_s)


class SloText(BaseModel):
    """Targets of one service, and the load at which they hold."""

    model_config = STRICT | ConfigDict(title="Tailgate slo.yaml")

    version: Literal[1] = Field(description="of this form")
    service: Annotated[str, Field(min_length=1)] = Field(description="what is judged")
    include: str | None = Field(
        default=None, description="a slo.yaml that this one adds to and overrides"
    )
    baseline: str | None = Field(
        default=None, description="name of a baseline, or a run directory, for max_change"
    )
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
    schema["$defs"]["ObjectiveText"]["allOf"] = [_when(*rule) for rule in RULES]
    # One that includes another takes from it what it does not say.
    schema["required"] = ["version"]
    schema["anyOf"] = [{"required": ["include"]}, {"required": ["service", "objectives"]}]
    return schema


def json_schema_text() -> str:
    """docs/slo.schema.json."""
    return json.dumps(json_schema(), indent=2) + "\n"


def _when(
    metrics: tuple[str, ...], required: list[str], refused: list[str], one_of: list[str]
) -> dict[str, Any]:
    then: dict[str, Any] = {
        "required": required,
        "properties": dict.fromkeys(refused, False),
    }
    if one_of:
        then["oneOf"] = [{"required": [key]} for key in one_of]
    return {"if": {"properties": {"metric": {"enum": list(metrics)}}}, "then": then}


def _checked(value: object, parse: Any) -> object:
    """Check a text with a unit, and leave it as it is written."""
    if value is None:
        return None
    parse(written_text(value))
    return value
