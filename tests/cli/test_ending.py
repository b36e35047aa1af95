"""The table of exit codes, and that a fault of our own is never taken for a missed SLO."""

from pathlib import Path

import pytest

from slo import ending
from slo.drive import DriveError
from slo.rundir import RunDirError
from slo.slofile import SloFileError
from slo.target_probe import TargetError
from slo.verdict import EXIT_CODE, Result
from tests.cli.conftest import slo


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ending.UsageError("x"), 2),
        (SloFileError("x"), 2),
        (TargetError("x"), 2),
        (DriveError("x"), 2),
        (DriveError("x", 70), 70),
        (RunDirError("x"), 4),
        (KeyboardInterrupt(), 130),
        (ValueError("x"), 70),
        (SystemError("x"), 70),
    ],
)
def test_each_end_has_its_code_and_one_line(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending.exit_code(error, "slo check", debug=False) == code
    told = capsys.readouterr().err
    assert told.startswith("slo check: ")
    assert len(told.splitlines()) == 1


def test_the_verdicts_have_the_codes_that_the_help_says() -> None:
    assert EXIT_CODE == {
        Result.PASS: 0,
        Result.FAIL: 1,
        Result.INCONCLUSIVE: 3,
        Result.INVALID: 4,
    }
    for result, code in EXIT_CODE.items():
        assert f"  {code}    {result}: " in ending.EXIT_CODES


def test_a_fault_of_our_own_says_where_its_traceback_lies(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ending.exit_code(ValueError("this\nand that"), "slo", debug=False)
    told = capsys.readouterr().err
    path = Path(told.rsplit("traceback: ", 1)[1].strip())
    assert "ValueError: this" in path.read_text()
    path.unlink()
    ending.exit_code(ValueError("this"), "slo", debug=True)
    assert "ValueError: this" in capsys.readouterr().err


def test_version_help_and_no_command_at_all(tmp_path: Path) -> None:
    version = slo("--version", cwd=tmp_path)
    assert (version.returncode, version.stdout) == (0, "slo 0.1.0\n")
    helped = slo("--help", cwd=tmp_path)
    assert helped.returncode == 0
    for line in ending.EXIT_CODES.splitlines()[1:]:
        assert line in helped.stdout
    assert slo("chekc", cwd=tmp_path).returncode == 2
    assert slo(cwd=tmp_path).returncode == 2
