"""The verdict on a terminal, against text that was read by a person."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from reports import terminal
from tests.reports import samples

GOLDEN = Path(__file__).parent / "golden"


def rendered(sample: samples.Sample, width: int, **how: object) -> str:
    options: dict[str, object] = {"color_system": None, **how}
    console = Console(file=io.StringIO(), width=width, **options)  # type: ignore[arg-type]
    terminal.render(sample[0], sample[1], console)
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", ["pass", "fail", "inconclusive", "invalid", "no data"])
def test_the_terminal_says_what_was_agreed(name: str, width: int) -> None:
    """To renew after a look: python -m tests.reports.test_terminal."""
    golden = GOLDEN / f"{name.replace(' ', '-')}-{width}.txt"
    assert rendered(samples.SAMPLES[name], width) == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_the_verdict_comes_first_and_no_line_is_too_long(name: str) -> None:
    lines = rendered(samples.SAMPLES[name], 80).splitlines()
    assert lines[0].startswith(f"{samples.SAMPLES[name][0].result}  ")
    assert max(map(len, lines)) <= 80


def test_hostile_text_cannot_steer_the_terminal() -> None:
    text = rendered(samples.HOSTILE_SAMPLE, 100)
    assert not any(ord(character) < 32 for character in text.replace("\n", ""))
    assert "<script>" in text


@pytest.mark.parametrize("width", [50, 80])
def test_a_narrow_terminal_cuts_neither_numbers_nor_outcomes(width: int) -> None:
    text = rendered(samples.INCONCLUSIVE, width)
    assert "\u2026" not in text
    assert width < 80 or text.count("INCONCLUSIVE") == 1 + 2 + 2


def test_hostile_markup_is_not_read_as_rich_markup() -> None:
    verdict, summary, run = samples.PASS
    marked = replace(verdict, sentence="[red]not a colour[/red] [/]")
    assert "[red]not a colour[/red] [/]" in rendered((marked, summary, run), 100)


def test_colour_is_used_where_there_is_a_terminal() -> None:
    text = rendered(samples.FAIL, 100, color_system="standard", force_terminal=True)
    assert "\x1b[" in text
    assert "FAIL" in text.splitlines()[0]


def test_a_terminal_of_ascii_takes_every_character() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    console = Console(file=out, width=80)
    terminal.render(samples.HOSTILE_SAMPLE[0], samples.HOSTILE_SAMPLE[1], console)
    out.flush()
    assert b"FAIL" in raw.getvalue()


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name in ("pass", "fail", "inconclusive", "invalid", "no data"):
        for width in (80, 100):
            path = GOLDEN / f"{name.replace(' ', '-')}-{width}.txt"
            path.write_text(rendered(samples.SAMPLES[name], width), encoding="utf-8")
