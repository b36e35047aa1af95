"""Files that are no such thing: one line that names the file, never a word of Python's."""

from pathlib import Path

import pytest

from tests.cli.conftest import says_one_line, slo
from tests.slo.judging import SLO
from tests.slo.make_run import make_run


@pytest.mark.parametrize("text", ["[" * 5000, "a: " + "{b: " * 3000, "- " * 2000 + "x"])
@pytest.mark.parametrize("command", [("validate",), ("import-openslo",), ("nightly", "--config")])
def test_yaml_that_is_nested_too_deep(tmp_path: Path, command: tuple[str, ...], text: str) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text(text)
    done = slo(*command, path, cwd=tmp_path)
    says_one_line(done, 2, f"{path}:1:1: cannot be read as YAML: it is nested too deep")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "slo.yaml").write_text(SLO)
    return make_run(tmp_path / "run", [0.1] * 300)


LONG, DEEP = '{"n": ' + "1" * 5000 + "}", "[" * 100_000


@pytest.mark.parametrize(
    ("name", "text"),
    [("run.json", LONG), ("run.json", DEEP), ("target.json", DEEP), ("server.jsonl", LONG)],
    ids=["run-long", "run-deep", "target-deep", "server-long"],
)
def test_json_that_python_cannot_hold_spoils_the_run(run: Path, name: str, text: str) -> None:
    (run / name).write_text(text + "\n")
    done = slo("check", "run", "--slo", "slo.yaml", cwd=run.parent)
    assert done.returncode == 4, done.stderr
    assert name in done.stderr
    assert "no JSON for us" in done.stderr


def test_a_run_that_cannot_be_read_any_more_keeps_no_verdict_and_is_no_baseline(
    run: Path,
) -> None:
    assert slo("check", "run", "--slo", "slo.yaml", cwd=run.parent).returncode == 0
    requests = run / "requests.jsonl"
    requests.write_bytes(requests.read_bytes()[:-20])
    done = slo("baseline", "set", "main", "run", cwd=run.parent)
    says_one_line(done, 2, "requests.jsonl:300: the last line is cut off")
    (run / "run.json").write_text("{")
    done = slo("check", "run", "--slo", "slo.yaml", cwd=run.parent)
    says_one_line(done, 4, "run.json:1: cut off")
    kept = {path.name for path in run.iterdir()}
    assert not kept & {"verdict.json", "report.html", "report.md", "junit.xml"}


def test_drawn_again_an_undecided_verdict_is_what_the_pipeline_takes_it_for(run: Path) -> None:
    undecided = SLO.replace("max: 2%", "max: 0.1%")
    (run.parent / "slo.yaml").write_text(undecided)
    assert slo("check", "run", "--slo", "slo.yaml", cwd=run.parent).returncode == 3
    assert slo("report", "run", "--inconclusive", "fail", cwd=run.parent).returncode == 0
    assert "<failure" in (run / "junit.xml").read_text()


def test_a_terminal_that_knows_no_width_gets_the_verdict(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert "PASS" in slo("check", "run", "--slo", "slo.yaml", cwd=run.parent).stdout
