"""The verdict as a GitHub step summary."""

import re

import pytest

from reports import markdown
from tests.reports import samples


def tables(text: str) -> list[list[str]]:
    """Each run of lines that begin with a bar."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, flags=re.M)
    return [block.splitlines() for block in blocks]


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_every_row_of_a_table_has_as_many_cells(name: str) -> None:
    text = markdown.render(*samples.SAMPLES[name])
    for table in tables(text):
        cells = {len(re.findall(r"(?<!\\)\|", row)) for row in table}
        assert len(cells) == 1, table


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_the_verdict_is_a_word_in_the_heading(name: str) -> None:
    verdict = samples.SAMPLES[name][0]
    first = markdown.render(*samples.SAMPLES[name]).splitlines()[0]
    assert re.match(rf"## \S+ {verdict.result}: ", first)


def test_what_did_not_pass_says_why_and_what_next() -> None:
    text = markdown.render(*samples.FAIL)
    assert "- **ttft p95, all**: The whole interval lies above the limit" in text
    assert "Next: About 240 more requests would decide it." in text
    assert "| &gt;60 s (failures) |" in text
    assert "INCONCLUSIVE (warn)" in text
    assert "GPU: not measured (no NVML library)" in markdown.render(*samples.INCONCLUSIVE)


def test_hostile_text_stays_text() -> None:
    text = markdown.render(*samples.HOSTILE_SAMPLE)
    assert "<script" not in text
    assert not re.search(r"(?<!\\)\]\(", text)
    assert "http://" not in text
    assert "算错了" in text
    text.encode("utf-8")


@pytest.mark.parametrize(
    "text", ["- item", "1. item", "# head", "> quote", "---", "| a |", "= = ="]
)
def test_a_line_of_text_begins_no_block(text: str) -> None:
    assert not re.match(r"(?:[-+=#>|]|\d+[.)])", markdown.escape(text))


def test_a_number_is_not_escaped() -> None:
    assert markdown.escape("1.40 s") == "1.40 s"
