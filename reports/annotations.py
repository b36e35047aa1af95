"""A verdict as GitHub's workflow commands: what did not pass stands beside the commit."""

from collections.abc import Iterator

from reports import words
from slo.verdict import Result, Verdict


def render(verdict: Verdict, path: str, inconclusive: str | None = None) -> str:
    """One command a line; `path` is the slo.yaml they are shown at.

    `inconclusive` is what --inconclusive asks for: with pass or warn, what is undecided warns.
    """
    taken = verdict.result is Result.INCONCLUSIVE and inconclusive in ("pass", "warn")
    return "".join(f"{line}\n" for line in _lines(verdict, path, taken=taken))


def _lines(verdict: Verdict, path: str, *, taken: bool) -> Iterator[str]:
    passed = verdict.result is Result.PASS
    level = "notice" if passed else "warning" if taken else "error"
    yield _command(level, path, f"SLO {verdict.result}", words.sentence(verdict))
    for row in verdict.rows:
        if row.outcome is Result.PASS:
            continue
        level = "warning" if taken or row.severity == "warn" else "error"
        title = f"{row.outcome}: {words.line(row).objective} {row.limit} ({row.scenario})"
        yield _command(level, path, title, f"{row.why} {row.next_step}".strip())
    for check in verdict.validity:
        if check.outcome == "void":
            said = f"{check.why} Voids {words.voids(check)}."
            yield _command(
                "warning" if passed or taken else "error", path, f"void: {check.check}", said
            )


def _command(level: str, path: str, title: str, message: str) -> str:
    place = f"file={_property(path)},title={_property(words.clean(title))}"
    return f"::{level} {place}::{_data(words.clean(message))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
