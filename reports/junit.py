"""A verdict as JUnit XML, for CI systems: red exactly when `slo check`'s exit code is not 0."""

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from reports import words
from slo.verdict import Check, Result, Row, Verdict


def render(verdict: Verdict, inconclusive: str | None = None) -> str:
    """One test case for each objective and each validity check.

    INCONCLUSIVE and INVALID are an <error>, never a skip: CI systems hide skips. `inconclusive` is
    what --inconclusive asks for instead: fail, or pass or warn, which tell it in the system-out.
    """
    suites = Element("testsuites", name="tailgate")
    suite = SubElement(suites, "testsuite", name=words.clean(verdict.service))
    properties = SubElement(suite, "properties")
    for name, value in (("run_id", verdict.run_id), ("result", verdict.result)):
        SubElement(properties, "property", name=name, value=words.clean(value))
    outcome, note = _taken(verdict.result, inconclusive)
    for row in verdict.rows:
        _objective(suite, row, inconclusive)
    for check in verdict.validity:
        _check(suite, check, outcome)
    if outcome is not Result.PASS and not _red(suite):
        _case(suite, "verdict", "verdict", outcome, verdict.sentence, note)
    for element in (suite, suites):
        element.set("tests", str(len(suite.findall("testcase"))))
        for kind in ("failure", "error"):
            element.set(f"{kind}s", str(len(suite.findall(f"testcase/{kind}"))))
        element.set("skipped", "0")
    indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(suites, encoding="unicode") + "\n"


def _red(suite: Element) -> bool:
    return any(suite.findall(f"testcase/{kind}") for kind in ("failure", "error"))


def _taken(result: Result, inconclusive: str | None) -> tuple[Result, str]:
    """What a result is shown as, and a word on it where that is not what it is."""
    if result is not Result.INCONCLUSIVE or inconclusive is None:
        return result, ""
    taken, name = (Result.FAIL, "failure") if inconclusive == "fail" else (Result.PASS, "pass")
    return taken, f"INCONCLUSIVE, taken for a {name} (--inconclusive {inconclusive})"


def _objective(suite: Element, row: Row, inconclusive: str | None) -> None:
    line = words.line(row)
    outcome, note = (Result.PASS, "") if line.warn else _taken(line.outcome, inconclusive)
    said = [
        *([note] if note else []),
        f"outcome: {line.outcome}{' (warn: it does not decide the verdict)' if line.warn else ''}",
        f"measured: {line.measured}",
        f"interval: {line.interval}",
        f"limit: {line.limit}",
        f"n: {line.n}",
        f"why: {line.why}",
        f"next: {line.next_step}",
    ]
    name = f"{line.objective} {line.limit} ({line.scenario})"
    _case(suite, "objective", name, outcome, line.why, "\n".join(said))


def _check(suite: Element, check: Check, result: Result) -> None:
    # A check may void metrics that nothing gates on: then the verdict is still a PASS.
    void = check.outcome == "void" and result is not Result.PASS
    said = [f"outcome: {check.outcome}", f"measured: {check.measured}", f"allowed: {check.limit}"]
    said += [f"why: {check.why}"] + ([f"voids: {words.voids(check)}"] if void else [])
    outcome = Result.INVALID if void else Result.PASS
    text = "\n".join(words.clean(line) for line in said)
    _case(suite, "validity", check.check, outcome, check.why, text)


def _case(suite: Element, kind: str, name: str, outcome: Result, message: str, text: str) -> None:
    case = SubElement(suite, "testcase", classname=f"tailgate.{kind}", name=words.clean(name))
    if outcome is Result.PASS:
        SubElement(case, "system-out").text = text
        return
    tag = "failure" if outcome is Result.FAIL else "error"
    found = SubElement(case, tag, type=outcome, message=words.clean(message))
    found.text = text
