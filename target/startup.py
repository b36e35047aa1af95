"""How long a start takes, phase by phase."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PHASES = ("import", "weights", "compile", "warm-up")


@dataclass(slots=True)
class Startup:
    """The phases of one start; another thread may look at it meanwhile."""

    began_s: float = field(default_factory=time.monotonic)
    current: str = "import"
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block as part of a phase; a phase may have several blocks."""
        self.current = name
        start = time.monotonic()
        try:
            yield
        finally:
            spent = time.monotonic() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent

    def report(self) -> dict[str, float]:
        """Seconds of each phase, 0 where it had nothing to do, and of all of it until now."""
        phases = {f"{name}_s".replace("-", ""): self.seconds.get(name, 0.0) for name in PHASES}
        total = {"total_s": time.monotonic() - self.began_s}
        return {name: round(value, 3) for name, value in {**phases, **total}.items()}
