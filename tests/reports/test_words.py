"""Numbers and words that every format shares."""

import io
import shlex
from dataclasses import replace

import pytest
from rich.console import Console

from reports import html, interval, markdown, reproduce, terminal, words
from slo.quantities import show, show_interval, show_s
from slo.summary import LatencyLine
from slo.verdict import Check, Result
from tests.reports import samples


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.42, "s", "420 ms"),
        (1.5, "s", "1.50 s"),
        (0.013, "s", "13.0 ms"),
        (0.9996, "s", "1.00 s"),
        (0.00099996, "s", "1.00 ms"),
        (85e-6, "s", "85.0 us"),
        (1234.0, "s", "1,234 s"),
        (0.0, "1", "0 %"),
        (0.0042, "1", "0.420 %"),
        (0.9996, "1", "100 %"),
        (-0.1, "1", "-10.0 %"),
        (2.97, "1/s", "2.97/s"),
        (0.05, "1/h", "5.00 %/h"),
        (61_440.0, "MiB", "61,440 MiB"),
    ],
)
def test_a_number_has_three_digits_and_its_unit(value: float, unit: str, shown: str) -> None:
    assert show(value, unit) == shown


def test_an_interval_names_a_common_unit_once() -> None:
    assert show_interval(0.381, 0.412, "s") == "381 - 412 ms"
    assert show_interval(0.95, 1.04, "s") == "950 ms - 1.04 s"
    assert show_interval(2.9, 3.1, "1/s") == "2.90 - 3.10/s"
    assert show_interval(58.1, None, "s") == "> 58.1 s"
    assert show_interval(None, 0.3, "s") == "< 300 ms"
    assert show_interval(None, None, "s") is None


def test_a_duration_that_rounds_up_changes_its_unit() -> None:
    assert show_s(0.99951) == "1.00 s"
    assert show_s(0.0) == "0 s"


def test_a_percentile_among_failures_says_what_it_exceeds() -> None:
    row = samples.row(measured=None, low=None, high=None, censored=">60s")
    assert words.measured(row) == ">60 s (failures)"
    assert words.measured(replace(row, censored=None)) == "not measured"


def test_a_percentile_without_failures_or_value_is_not_measured() -> None:
    nothing = LatencyLine("all", "tpot", 5, 0, None, None, {95.0: None})
    assert words.percentile(nothing, 95.0, ">60 s (failures)") == "not measured"
    assert words.percentile(replace(nothing, failed=5), 95.0, ">60 s") == ">60 s"
    assert words.percentile(replace(nothing, n=0, failed=0), 95.0, ">60 s") == "not measured"


def test_hostile_text_loses_what_steers_a_terminal_and_keeps_the_rest() -> None:
    assert (
        words.clean("a\x1b[31m\x00b\r\nc\t算错了 \U0001f600")
        == "a\ufffd[31m\ufffdb c 算错了 \U0001f600"
    )
    assert words.clean("\ud800\u202e\uffff") == "\ufffd\ufffd\ufffd"


def test_the_limit_stands_in_the_middle_of_the_drawing() -> None:
    drawing = interval.draw(samples.row(measured=0.42, low=0.40, high=0.44, limit_value=0.42))
    assert drawing is not None
    assert drawing.dot == pytest.approx(50)
    assert drawing.low is not None
    assert drawing.high is not None
    assert 0 < drawing.low < 50 < drawing.high < 100
    assert 50 - drawing.low == pytest.approx(drawing.high - 50)
    assert not drawing.beyond
    assert not drawing.at_least


def test_what_lies_off_the_drawing_is_an_arrow_and_no_dot() -> None:
    far = interval.draw(samples.row(measured=9.0, low=8.0, high=None, limit_value=0.42))
    assert far is not None
    assert (far.dot, far.beyond, far.low) == (None, True, 100)
    censored = interval.draw(samples.row(measured=None, low=0.5, high=None, censored=">60s"))
    assert censored is not None
    assert (censored.dot, censored.beyond, censored.high) == (None, True, 100)
    assert interval.draw(samples.row(measured=None, low=None, high=None)) is None


def test_a_limit_of_zero_and_a_minimum_can_be_drawn() -> None:
    none_allowed = interval.draw(
        samples.row(unit="1", measured=0.01, low=0.0, high=0.02, limit="<= 0%", limit_value=0.0)
    )
    assert none_allowed is not None
    assert (none_allowed.low, none_allowed.left) == (50, "")
    minimum = interval.draw(samples.ROWS[3])
    assert minimum is not None
    assert minimum.at_least


def test_the_command_makes_the_run_again_and_tells_no_password() -> None:
    run = replace(samples.RUN, target_url="https://me:secret@host:8000", model="a model")
    again, check = reproduce.commands(run)
    assert "secret" not in again
    assert "--model 'a model' --rate 3/s --duration 120s --warmup 15s" in again
    assert "--mix math=0.6,code=0.4 --max-tokens 256 --temperature 0.6" in again
    assert check == "slo check runs/20261130T020000Z-math-3qps --slo slo.yaml"


@pytest.mark.parametrize("stretched", [None, True])
def test_a_replay_is_repeated_by_a_command_that_is_taken(stretched: bool | None) -> None:
    run = replace(
        samples.RUN, arrival="replay:t.csv", input_class=None, options={"stretched": stretched}
    )
    again = shlex.split(reproduce.commands(run)[0])
    assert ("--rate" in again) == bool(stretched)
    assert not {"--max-tokens", "--input-class", "--turns", "--stretched"} & set(again)


def test_what_a_trace_shares_is_no_option_to_repeat() -> None:
    shared = {"shared_prefix": 0.52, "shared_by": None, "turns": 1}
    assert "--shared-prefix 0.52" in reproduce.commands(replace(samples.RUN, options=shared))[0]
    of_trace = {**shared, "shared_by": "trace"}
    assert "shared" not in reproduce.commands(replace(samples.RUN, options=of_trace))[0]


def test_the_confidence_is_told_once_only_where_all_rows_share_it() -> None:
    verdict = samples.PASS[0]
    assert words.confidence(verdict) == "95 %"
    mixed = (samples.row(confidence=0.9), *verdict.rows)
    assert words.confidence(replace(verdict, rows=mixed)) == ""
    assert words.confidence(replace(verdict, rows=(), result=Result.INVALID)) == ""


def test_the_sentence_does_not_repeat_the_word() -> None:
    verdict = replace(samples.PASS[0], sentence="PASS: all 4 objectives are met.")
    assert words.sentence(verdict) == "All 4 objectives are met."


def test_objectives_with_one_reason_are_named_together() -> None:
    void = samples.INVALID[0]
    assert [names for names, _ in words.reasons(void)] == ["ttft p95, all; e2e p95, math"]
    assert words.reasons(samples.PASS[0]) == []
    assert len(words.reasons(samples.FAIL[0])) == 3


def test_a_check_that_is_noted_is_neither_held_nor_void() -> None:
    why = "The generator was late. What is said stands all the same."
    late = Check("lateness", "P99 40 ms", "<= 21 ms", "noted", why)
    verdict, summary, run = samples.PASS
    verdict = replace(verdict, validity=(late, *samples.CHECKS[1:]))
    said = words.validity(verdict)
    assert said.startswith("3 of 5 validity checks hold; 1 beyond the limit, without bearing on")
    console = Console(file=io.StringIO(), width=200)
    terminal.render(verdict, summary, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert f"noted  lateness: P99 40 ms, allowed <= 21 ms. {why}" in text
    assert "VOID" not in text
    assert "| lateness | noted | P99 40 ms |" in markdown.render(verdict, summary, run)
    assert ">noted</span>" in html.render(verdict, summary, run)
