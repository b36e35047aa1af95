"""GitHub's workflow commands: one line each, whatever a text holds."""

from dataclasses import replace

from reports.annotations import render
from slo.verdict import Check, Result, Row, Verdict

ROW = Row("ttft p95", "ttft", "all", "s", 0.9, 0.8, 1.0, None, 300, "<= 420ms", 0.42, 0.95, "gate",
          Result.FAIL, "5 %, at most: 60 of 300\ndid.", "Lower the rate.")  # fmt: skip
VERDICT = Verdict(Result.FAIL, "FAIL: ttft p95 is 900 ms.", "s", "r", (ROW,), ())


def test_a_miss_is_an_error_at_the_slo_yaml() -> None:
    first, second = render(VERDICT, "a,b.yaml").splitlines()
    assert first == "::error file=a%2Cb.yaml,title=SLO FAIL::Ttft p95 is 900 ms."
    assert second.startswith(
        "::error file=a%2Cb.yaml,title=FAIL%3A ttft p95 <= 420ms (all)::5 %25,"
    )
    assert second.endswith("Lower the rate.")


def test_a_pass_is_a_notice_and_a_warning_stays_one() -> None:
    warn = replace(ROW, severity="warn")
    void = Check("token counts", "9", "1", "void", "Guessed.", ("tpot",))
    verdict = replace(VERDICT, result=Result.PASS, rows=(warn,), validity=(void,))
    levels = [line.split(" ")[0] for line in render(verdict, "slo.yaml").splitlines()]
    assert levels == ["::notice", "::warning", "::warning"]


def test_what_voids_a_run_is_an_error() -> None:
    void = Check("workers", "1 lost", "0", "void", "b never reported.", ("*",))
    verdict = replace(VERDICT, result=Result.INVALID, rows=(), validity=(void,))
    lines = render(verdict, "slo.yaml").splitlines()
    assert lines[1] == (
        "::error file=slo.yaml,title=void%3A workers::b never reported. Voids the whole run."
    )


def test_what_is_undecided_warns_where_it_is_taken_for_a_pass() -> None:
    row = replace(ROW, outcome=Result.INCONCLUSIVE)
    verdict = replace(VERDICT, result=Result.INCONCLUSIVE, rows=(row,))
    for asked, level in (
        ("pass", "warning"),
        ("warn", "warning"),
        ("fail", "error"),
        (None, "error"),
    ):
        said = render(verdict, "slo.yaml", asked).splitlines()
        assert {line.split(" ")[0] for line in said} == {f"::{level}"}
