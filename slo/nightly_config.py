"""nightly.yaml: which targets are measured each night, and how; mistakes are named by key."""

import re
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from slo import quantities
from slo.ending import UsageError
from slo.options import word
from slo.slo_nodes import yaml_mistake

_DAY_S = 86_400.0
_DAYS = re.compile(r"([1-9]\d{0,4})d$")


def _duration(written: object) -> float:
    text = str(written).strip()
    if found := _DAYS.match(text):
        return float(found[1]) * _DAY_S
    try:
        return quantities.positive_s(text)
    except ValueError as error:
        raise ValueError(f"{error}, or whole days as 30d") from None


Seconds = Annotated[float, BeforeValidator(_duration)]
Rate = Annotated[float, BeforeValidator(lambda written: quantities.rate_per_s(str(written)))]
Share = Annotated[float, BeforeValidator(lambda written: quantities.part(str(written), 0.001))]


class Capacity(BaseModel, extra="forbid", frozen=True):
    """A search each night."""

    budget: Seconds = 1200.0
    min: Rate | None = None
    max: Rate | None = None
    resolution: Share = 0.05
    shortest: Seconds = 10.0


class Fixed(BaseModel, extra="forbid", frozen=True):
    """A load at a rate that stays the same, so that nights can be compared finely."""

    rate: Rate
    duration: Seconds = 300.0


class Target(BaseModel, extra="forbid", frozen=True):
    """One server."""

    name: Annotated[str, AfterValidator(word)]
    url: str
    slo: Path
    capacity: Capacity | None = None
    fixed: Fixed | None = None
    api_key_env: str | None = None
    model: str | None = None
    sidecar: str = "local"
    ready_timeout: Seconds = 60.0


class Nightly(BaseModel, extra="forbid", frozen=True):
    """The whole file; paths in it count from its folder."""

    version: int = Field(ge=1, le=1)
    targets: list[Target] = Field(min_length=1)
    history: str = "nightly.db"
    out: Path = Path("runs/nightly")
    keep: Seconds = 30 * _DAY_S
    min_free_mib: float = Field(default=1024.0, ge=0)
    floor: Share = 0.03


def read_nightly(path: Path) -> Nightly:
    """Read nightly.yaml.

    Raises:
        UsageError: missing, no YAML, or with mistakes: all of them, one a line.
    """
    try:
        document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        config = Nightly.model_validate(document)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        lines = (_mistake(path, one) for one in error.errors(include_url=False))
        raise UsageError("\n".join(lines)) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}:{yaml_mistake(error)}") from None
    names = [target.name for target in config.targets]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{path}: targets: the name {twice[0]} stands twice")
    for target in config.targets:
        if target.capacity is None and target.fixed is None:
            raise UsageError(f"{path}: targets: {target.name}: has neither capacity nor fixed")
    return _beside(config, path.resolve().parent)


def _mistake(path: Path, detail: Any) -> str:
    key = ".".join(str(part) for part in detail["loc"]) or "the file"
    return f"{path}: {key}: {detail['msg']}, not {detail['input']!r:.60}"


def _beside(config: Nightly, folder: Path) -> Nightly:
    """With paths that do not depend on where the command is started: cron starts it anywhere."""
    history = config.history
    if "://" not in history:
        history = str(folder / history)
    targets = [one.model_copy(update={"slo": folder / one.slo}) for one in config.targets]
    return config.model_copy(
        update={"history": history, "out": folder / config.out, "targets": targets}
    )
