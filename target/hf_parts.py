"""What a mode of the transformers engine gives to the engine around it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from target.engines import Generate
from target.faults import Faults


@dataclass(frozen=True, slots=True)
class Parts:
    """The fields of target.engines.Engine that differ from mode to mode."""

    generate: Generate
    slots: int
    queues: bool = False
    flags: Mapping[str, object] = field(default_factory=dict)
    unsupported: frozenset[str] = frozenset()
    gauges: Callable[[], Mapping[str, float]] = dict
    trouble: Callable[[], str | None] = lambda: None
    close: Callable[[], None] = lambda: None
    arm: Callable[[Faults], None] = lambda faults: None  # faults begin after the warm-up
