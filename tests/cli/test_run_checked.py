"""`slo check`, `slo report` and `slo validate` over a run that is there, whole or broken."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import EASY, SLO, says_one_line, slo


def broken(finished: Path, tmp_path: Path, name: str, cut: int | None) -> Path:
    """A copy of the run with a file missing, or cut off after so many bytes."""
    directory = tmp_path / "broken"
    shutil.copytree(finished, directory)
    if cut is None:
        (directory / name).unlink()
    else:
        (directory / name).write_bytes((directory / name).read_bytes()[:cut])
    return directory


def test_check_says_pass_and_leaves_the_verdict_and_the_reports(
    finished: Path, easy: Path, tmp_path: Path
) -> None:
    asked = {name: tmp_path / name for name in ("v.json", "j.xml", "m.md", "h.html")}
    copies = zip(("--json", "--junit", "--markdown", "--html"), asked.values(), strict=True)
    flags = [word for pair in copies for word in pair]
    done = slo("check", finished, "--slo", easy, *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout
    assert "ttft p75" in done.stdout
    assert json.loads((finished / "verdict.json").read_text())["result"] == "PASS"
    assert (finished / "report.html").read_text().startswith("<!doctype html>")
    for path, name in zip(
        asked.values(), ("verdict.json", "junit.xml", "report.md", "report.html"), strict=True
    ):
        assert path.read_text() == (finished / name).read_text()


def test_a_missed_target_ends_with_1_and_an_undecided_one_with_3(
    finished: Path, easy: Path, tmp_path: Path
) -> None:
    hard, undecided = tmp_path / "hard.yaml", tmp_path / "undecided.yaml"
    hard.write_text(EASY.replace("max: 2s", "max: 1ms"))
    undecided.write_text(EASY.replace("percentile: 75", "percentile: 99"))
    assert slo("check", finished, "--slo", hard, cwd=tmp_path).returncode == 1
    done = slo("check", finished, "--slo", undecided, cwd=tmp_path)
    assert done.returncode == 3, done.stdout
    assert "more" in done.stdout


def test_a_run_under_another_load_than_slo_yaml_asks_for_is_invalid(
    finished: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(EASY.replace("rate: 10/s", "rate: 20/s"))
    assert slo("check", finished, "--slo", other, cwd=tmp_path).returncode == 4


def test_report_draws_again_from_the_stored_verdict(
    finished: Path, easy: Path, tmp_path: Path
) -> None:
    slo("check", finished, "--slo", easy, cwd=tmp_path)
    drawn = (finished / "report.html").read_text()
    (finished / "report.html").unlink()
    done = slo("report", finished, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{finished / 'report.html'}\n")
    assert (finished / "report.html").read_text() == drawn


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("max: 2s", "max: 2s, maxx: 3s", (":5:", "objectives[0].maxx", "did you mean max?")),
        ("percentile: 75", "p95: 2s", (":5:", "objectives[0].p95", "write percentile: 95")),
        ("ttft,", "ttft_p95,", (":5:", "objectives[0].metric", "percentile: 95")),
    ],
)
def test_check_and_validate_name_the_line_and_the_key(
    finished: Path, tmp_path: Path, old: str, new: str, parts: tuple[str, ...]
) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text(EASY.replace(old, new))
    for done in (
        slo("check", finished, "--slo", path, cwd=tmp_path),
        slo("validate", path, cwd=tmp_path),
    ):
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        for part in (str(path), *parts):
            assert part in done.stderr


def test_validate_says_what_it_understood_and_goes_on_after_a_mistake(
    easy: Path, tmp_path: Path
) -> None:
    done = slo("validate", easy, tmp_path / "none.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "at 10.0/s, arrivals constant" in done.stdout
    assert "ttft p75 <= 2s: all requests, gate" in done.stdout
    assert "none.yaml: cannot be read: No such file or directory" in done.stderr


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("run.json", None),
        ("run.json", 100),
        ("schedule.csv", None),
        ("requests.jsonl", 1000),
        ("latency.hlog", None),
    ],
)
def test_a_broken_run_directory_names_its_file_and_ends_with_4(
    finished: Path, easy: Path, tmp_path: Path, name: str, cut: int | None
) -> None:
    directory = broken(finished, tmp_path, name, cut)
    done = slo("check", directory, "--slo", easy, cwd=tmp_path)
    says_one_line(done, 4, f"slo check: {directory / name}:")


def test_a_run_directory_that_does_not_exist_is_a_usage_error(easy: Path, tmp_path: Path) -> None:
    done = slo("check", tmp_path / "none", "--slo", easy, cwd=tmp_path)
    says_one_line(done, 2, f"slo check: {tmp_path / 'none'}: no such run directory")


def test_report_without_a_verdict_names_the_missing_file(
    finished: Path, easy: Path, tmp_path: Path
) -> None:
    slo("check", finished, "--slo", easy, cwd=tmp_path)
    directory = broken(finished, tmp_path, "verdict.json", None)
    says_one_line(
        slo("report", directory, cwd=tmp_path), 4, f"slo report: {directory / 'verdict.json'}"
    )


def test_a_pipe_that_closes_is_not_taken_for_a_missed_slo(easy: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:
        done = subprocess.run(
            [*SLO, "validate", easy], cwd=tmp_path, stdout=closed, stderr=subprocess.PIPE
        )
    assert done.returncode == 141
    assert b"Traceback" not in done.stderr
