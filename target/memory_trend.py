"""GPU memory before and after each request, and whether it grows from one to the next."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

WINDOW = 200  # requests


@dataclass(slots=True)
class MemoryTrend:
    """Watches what `read` gives: allocated and reserved bytes; None where nobody can tell."""

    read: Callable[[], tuple[int, int] | None]
    before: tuple[int, int] | None = None  # of the request that ended last
    after: tuple[int, int] | None = None
    _ended: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @contextmanager
    def request(self) -> Iterator[None]:
        """Watch one request."""
        before = self.read()
        try:
            yield
        finally:
            after = self.read()
            if before is not None and after is not None:
                self.before, self.after = before, after
                self._ended.append(after[0])

    def slope(self) -> float | None:
        """Bytes of growth a request: least squares through what was allocated after each."""
        count = len(self._ended)
        if count < 2:
            return None
        middle = (count - 1) / 2
        mean = sum(self._ended) / count
        above = sum((n - middle) * (value - mean) for n, value in enumerate(self._ended))
        return above / (count * (count * count - 1) / 12)
