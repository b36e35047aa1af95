"""The verdict as JUnit XML: a CI system must be red exactly when the exit code is not 0."""

from dataclasses import replace
from xml.etree.ElementTree import Element, fromstring

import pytest

from reports import junit
from slo.verdict import Check, Result
from tests.reports import samples


def suite(sample: samples.Sample, inconclusive: str | None = None) -> Element:
    text = junit.render(sample[0], inconclusive)
    root = fromstring(text.encode("utf-8"))
    assert root.tag == "testsuites"
    found = root.find("testsuite")
    assert found is not None
    return found


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_the_file_has_the_form_that_ci_systems_read(name: str) -> None:
    found = suite(samples.SAMPLES[name])
    cases = found.findall("testcase")
    assert int(found.get("tests", "")) == len(cases)
    assert int(found.get("failures", "")) == len(found.findall("testcase/failure"))
    assert int(found.get("errors", "")) == len(found.findall("testcase/error"))
    assert not found.findall("testcase/skipped")
    for case in cases:
        assert case.get("name")
        assert case.get("classname", "").startswith("tailgate.")
        assert [child.tag for child in case] in (["failure"], ["error"], ["system-out"])


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_it_is_red_exactly_when_the_exit_code_is_not_0(name: str) -> None:
    found = suite(samples.SAMPLES[name])
    red = bool(found.findall("testcase/failure") + found.findall("testcase/error"))
    assert red == (samples.SAMPLES[name][0].exit_code != 0)


def test_there_is_a_case_for_each_objective_and_each_check() -> None:
    verdict = samples.FAIL[0]
    cases = suite(samples.FAIL).findall("testcase")
    assert len(cases) == len(verdict.rows) + len(verdict.validity)
    assert [case.find("failure") is not None for case in cases[:5]] == [True, True] + [False] * 3
    assert "INCONCLUSIVE (warn" in (cases[3].findtext("system-out") or "")


def test_inconclusive_and_invalid_are_errors_and_never_skipped() -> None:
    errors = suite(samples.INCONCLUSIVE).findall("testcase/error")
    assert [error.get("type") for error in errors] == ["INCONCLUSIVE"] * 2
    errors = suite(samples.INVALID).findall("testcase/error")
    assert [error.get("type") for error in errors] == ["INVALID"] * 4


@pytest.mark.parametrize("name", samples.SAMPLES)
@pytest.mark.parametrize(("word", "code"), [("pass", 0), ("warn", 0), ("fail", 1)])
def test_it_is_as_red_as_what_is_asked_of_an_undecided_verdict(
    name: str, word: str, code: int
) -> None:
    verdict = samples.SAMPLES[name][0]
    expected = code if verdict.result is Result.INCONCLUSIVE else verdict.exit_code
    found = suite(samples.SAMPLES[name], word)
    red = bool(found.findall("testcase/failure") + found.findall("testcase/error"))
    assert red == (expected != 0)


@pytest.mark.parametrize("word", ["pass", "warn"])
def test_what_is_taken_for_a_pass_is_told_in_the_passing_case(word: str) -> None:
    found = suite(samples.INCONCLUSIVE, word)
    told = [out.text or "" for out in found.findall("testcase/system-out")]
    note = f"INCONCLUSIVE, taken for a pass (--inconclusive {word})\n"
    assert [text.startswith(note) for text in told].count(True) == 2
    void = Check("token counts", "4 differ", "equal", "void", "They differ.", ("tpot",))
    verdict = replace(samples.INCONCLUSIVE[0], validity=(void,))
    assert not suite((verdict, *samples.INCONCLUSIVE[1:]), word).findall("testcase/error")


def test_what_is_taken_for_a_failure_is_one() -> None:
    found = suite(samples.INCONCLUSIVE, "fail")
    assert not found.findall("testcase/error")
    failures = found.findall("testcase/failure")
    note = "INCONCLUSIVE, taken for a failure (--inconclusive fail)"
    assert [(one.text or "").splitlines()[0] for one in failures] == [note] * 2


def test_a_check_that_voids_only_ungated_metrics_leaves_a_pass_green() -> None:
    verdict, summary, run = samples.PASS
    voided = Check("token counts", "4 differ", "equal", "void", "They differ.", ("tpot",))
    found = suite((replace(verdict, validity=(voided,)), summary, run))
    assert not found.findall("testcase/error")


def test_a_verdict_with_no_lines_is_still_red() -> None:
    verdict = replace(samples.NO_DATA[0], result=Result.INCONCLUSIVE)
    error = suite((verdict, *samples.NO_DATA[1:])).find("testcase/error")
    assert error is not None
    assert error.get("message") == "No request was judged."


def test_characters_illegal_in_xml_are_replaced() -> None:
    text = junit.render(samples.HOSTILE_SAMPLE[0])
    assert not set(text) & set("\x00\x1b\ud800")
    assert "算错了" in text
