"""verdict.json: written, read back, and refused where it is spoilt."""

import json
from pathlib import Path

import pytest

from slo.rundir import RunDirError
from slo.verdict_file import read_verdict, write_verdict
from tests.slo.judging import FAST, made, verdict_of


def test_a_verdict_reads_back_from_its_file(tmp_path: Path) -> None:
    directory = made(FAST, failures=30)(tmp_path)
    verdict = verdict_of(directory)
    write_verdict(directory, verdict)
    assert read_verdict(directory) == verdict
    document = json.loads((directory / "verdict.json").read_text())
    assert (document["schema"], document["result"]) == ("1.0", "FAIL")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "cut off"),
        ('{"schema": "2.0"}', "schema '2.0' is unknown"),
        ('{"schema": "1.0"}', "result"),
    ],
)
def test_a_spoilt_verdict_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "verdict.json").write_text(text)
    with pytest.raises(RunDirError, match=r"verdict\.json") as caught:
        read_verdict(tmp_path)
    assert says in str(caught.value)
