"""Changes of level in nights: found soon, named, and not seen where there are none."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from slo.change_points import change_points
from slo.history import Night, opened
from slo.trend import changes, regressed, series_of
from tests.cli.conftest import says_one_line, slo

YEAR = 365
NOISE = 0.02


def noisy(seed: int, nights: int = YEAR) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.random.default_rng(seed).normal(0, NOISE, nights)


def alarms(series: Sequence[float]) -> list[int]:
    """Nights of the rises that are told when the series is looked at after each night."""
    told: list[int] = []
    for night in range(10, len(series) + 1):
        start = max(0, night - 60)
        for point in change_points(series[start:night]):
            at = point.index + start
            if point.change > 0 and not any(abs(at - other) <= 3 for other in told):
                told.append(at)
    return told


def test_a_flat_year_alarms_at_most_once_in_the_mean() -> None:
    counts = [len(alarms(list(np.exp(noisy(seed))))) for seed in range(12)]
    assert np.mean(counts) <= 1.0


def test_a_regression_of_5_percent_is_found_within_5_nights() -> None:
    nights = []
    for seed in range(60):
        logs = noisy(seed, 60)
        logs[40:] += np.log(1.05)
        series = np.exp(logs)
        later = (
            count
            for count in range(1, 20)
            if any(
                abs(p.index - 40) <= 2 and p.change > 0 for p in change_points(series[: 40 + count])
            )
        )
        nights.append(next(later, 99))
    assert np.median(nights) <= 3
    assert np.mean(np.array(nights) <= 5) >= 0.85


def test_a_change_below_the_floor_is_not_told() -> None:
    series = [1.0 + 0.001 * (n % 3) + (0.02 if n >= 30 else 0.0) for n in range(60)]
    assert not change_points(series)
    assert [point.index for point in change_points(series, floor=0.01)] == [30]


def test_a_step_without_noise_is_found_where_it_is() -> None:
    (point,) = change_points([2.0] * 20 + [3.0] * 20)
    assert (point.index, round(point.change, 6)) == (20, 0.5)


def year_of_nights(seed: int) -> list[Night]:
    """TTFT gets 8 % worse as vLLM changes in night 120, capacity 10 % as the driver does in 290."""
    first = datetime(2026, 1, 1, 2, tzinfo=UTC)
    ttft, capacity = noisy(seed), noisy(seed + 1000)
    ttft[120:] += np.log(1.08)
    capacity[290:] += np.log(0.90)
    nights = []
    for n in range(YEAR):
        at = first + timedelta(days=n)
        if n in (50, 200):
            nights.append(Night("chat", at, "target down", "nothing listens there"))
            continue
        values = {"ttft.p50": 0.05 * np.exp(ttft[n]), "capacity": 12.0 * np.exp(capacity[n])}
        facts = {
            "target.versions.vllm": "0.30.0" if n < 120 else "0.31.0",
            "target.gpu.driver": "580.10" if n < 290 else "581.02",
            "client.kernel": "6.1",
        }
        nights.append(Night("chat", at, "measured", "", values, facts))
    return nights


def test_a_year_with_two_regressions_names_both_nights_and_what_changed(tmp_path: Path) -> None:
    nights = year_of_nights(7)
    with opened(str(tmp_path / "nightly.db")) as history:
        for night in nights:
            history.add(night)
        kept = history.nights("chat")
    assert kept == nights
    worse = {change.metric: change for change in changes(series_of(kept)) if change.worse}
    assert set(worse) == {"ttft.p50", "capacity"}
    days = {metric: datetime.fromisoformat(one.day) for metric, one in worse.items()}
    assert abs((days["ttft.p50"] - datetime(2026, 5, 1)).days) <= 1
    assert abs((days["capacity"] - datetime(2026, 10, 18)).days) <= 1
    assert worse["ttft.p50"].beside == ("target.versions.vllm: 0.30.0 -> 0.31.0",)
    assert worse["capacity"].beside == ("target.gpu.driver: 580.10 -> 581.02",)
    assert not regressed(list(worse.values()))  # both were long ago
    assert regressed(changes(series_of(kept), recent=100))

    done = slo(
        "trend", "--history", "nightly.db", "--recent", 100, "--html", "t.html", cwd=tmp_path
    )
    assert done.returncode == 1, done.stderr
    assert "capacity got" in done.stdout
    assert "target.gpu.driver: 580.10 -> 581.02" in done.stdout
    page = (tmp_path / "t.html").read_text()
    assert "nothing listens there" in page
    assert "<script" not in page
    assert slo("trend", "--history", "nightly.db", cwd=tmp_path).returncode == 0
    nowhere = slo("trend", "--history", "nightly.db", "--html", "none/t.html", cwd=tmp_path)
    assert nowhere.returncode == 2
    assert "none/t.html: cannot be written: No such file" in nowhere.stderr


def test_a_history_that_is_none_is_refused(tmp_path: Path) -> None:
    says_one_line(slo("trend", "--history", "nope.db", cwd=tmp_path), 2, "nope.db: no such history")
    assert not (tmp_path / "nope.db").exists()
    (tmp_path / "slo.yaml").write_text("version: 1\n" * 100)
    wrong = slo("trend", "--history", "slo.yaml", cwd=tmp_path)
    says_one_line(wrong, 2, "slo.yaml: file is not a database")
    says_one_line(slo("trend", "--recent", "-1", cwd=tmp_path), 2, "--recent: '-1' is out of range")
