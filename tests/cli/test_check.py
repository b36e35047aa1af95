"""`slo check` as a pipeline runs it: load and judge in one go, and the files of docs/ci."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slo import rundir
from tests.cli.conftest import says_one_line, slo

CI = Path(__file__).parent.parent.parent / "docs" / "ci"

EASY = """version: 1
service: sim
load: {rate: 30/s, arrival: constant, duration: 3s, warmup: 1s, mix: {math: 1}, max_tokens: 8}
objectives:
  - {metric: ttft, percentile: 75, max: 2s}
  - {metric: error_rate, max: 50%}
"""
HOPELESS = EASY.replace("duration: 3s", "duration: 60s").replace("75, max: 2s", "95, max: 1ms")
OPEN = EASY.replace("percentile: 75", "percentile: 99.9")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name, text in (("slo.yaml", EASY), ("hopeless.yaml", HOPELESS), ("open.yaml", OPEN)):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_check_loads_judges_and_names_a_baseline(sim: str, place: Path) -> None:
    loading = ("check", "--target", sim, "--slo", "slo.yaml", "--sidecar", "off", "--seed", "1")
    done = slo(*loading, "--out", "run", cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "run"
    assert rundir.read_run(place / "run").stopped is None
    assert slo("baseline", "set", "main", "run", cwd=place).returncode == 0
    assert slo("baseline", "list", cwd=place).stdout.startswith("main  run  sim  set ")
    assert "state    usable" in slo("baseline", "show", "main", cwd=place).stdout
    (place / "change.yaml").write_text(
        EASY.replace("max: 2s", "max_change: +900%").replace("service", "baseline: main\nservice")
    )
    done = slo("check", "run", "--slo", "change.yaml", cwd=place)
    assert done.returncode in (0, 3), done.stderr
    assert "ttft p75 change" in done.stdout
    judged = json.loads((place / "run" / "verdict.json").read_text())
    assert judged["rows"][0]["measured"] == pytest.approx(0)  # against itself
    shown = slo("baseline", "show", "other", cwd=place)
    says_one_line(shown, 2, "slo baseline: there is no baseline other")


def test_a_hopeless_run_ends_early_and_says_why(sim: str, place: Path) -> None:
    done = slo(
        "check", "--target", sim, "--slo", "hopeless.yaml", "--sidecar", "off", "--out", "run",
        "--annotations", "github", cwd=place,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "stopping: ttft p95 is missed for certain" in done.stderr
    run = rundir.read_run(place / "run")
    assert run.finished
    assert run.stopped is not None
    assert run.stopped.at_s < 40
    assert run.stopped.why.startswith("ttft p95 is missed for certain")
    assert "::error file=hopeless.yaml,title=SLO FAIL::" in done.stdout


def test_a_budget_ends_the_load_and_what_is_there_is_judged(sim: str, place: Path) -> None:
    text = EASY.replace("duration: 3s", "duration: 60s")
    (place / "long.yaml").write_text(text)
    done = slo(
        "check", "--target", sim, "--slo", "long.yaml", "--sidecar", "off", "--out", "run",
        "--budget", "5s", "--label", "short", "--store-answers", "--max-in-flight", "77", cwd=place,
    )  # fmt: skip
    assert done.returncode in (0, 3), done.stdout + done.stderr
    run = rundir.read_run(place / "run")
    assert run.stopped is not None
    assert run.stopped.why == "the budget of 5 s is spent"
    assert (run.label, run.max_in_flight) == ("short", 77)
    assert (place / "run" / rundir.ANSWERS).exists()


def test_what_an_undecided_verdict_does_to_a_pipeline_is_chosen(sim: str, place: Path) -> None:
    done = slo(
        "check", "--target", sim, "--slo", "open.yaml", "--sidecar", "off", "--out", "run",
        cwd=place,
    )  # fmt: skip
    assert done.returncode == 3
    assert "slo: warning: ttft p99.9 (max 2s): cannot pass: it needs 2,995 requests" in done.stderr
    for word, code in (("fail", 1), ("warn", 0)):
        done = slo("check", "run", "--slo", "open.yaml", "--inconclusive", word, cwd=place)
        assert done.returncode == code
        junit = (place / "run" / "junit.xml").read_text()
        assert f"(--inconclusive {word})" in junit
        assert ("<failure" in junit, "<error" in junit) == (code != 0, False)
        assert ("taken for a pass" in done.stderr) == (word == "warn")
    bad = slo("check", "run", "--slo", "open.yaml", "--inconclusive", "no", cwd=place)
    says_one_line(bad, 2, "--inconclusive: 'no' is not known; allowed: fail, pass, warn")


def test_a_run_or_a_target_and_not_both(place: Path) -> None:
    says_one_line(slo("check", "--slo", "slo.yaml", cwd=place), 2, "give a RUN directory, or")
    both = slo("check", "run", "--target", "http://x", "--slo", "slo.yaml", cwd=place)
    says_one_line(both, 2, "give a RUN directory, or --target URL")


@pytest.mark.parametrize("option", [("--budget", "5m"), ("--seed", "3"), ("--store-answers",)])
def test_what_says_how_to_load_is_refused_for_a_run_that_is_there(
    place: Path, option: tuple[str, ...]
) -> None:
    (place / "run").mkdir()
    done = slo("check", "run", "--slo", "slo.yaml", *option, cwd=place)
    says_one_line(done, 2, f"{option[0]}: RUN is there already; this goes with --target")


def test_a_budget_that_the_warm_up_uses_up_is_refused(place: Path) -> None:
    to = ("--target", "http://127.0.0.1:1", "--slo", "slo.yaml", "--budget", "1s")
    said = "--budget: 1 s are over before the warm-up of 1 s is"
    says_one_line(slo("check", *to, cwd=place), 2, said)


@pytest.mark.parametrize("name", ["", "..", "../x", "a b"])
def test_a_baseline_has_a_plain_name(place: Path, name: str) -> None:
    done = slo("baseline", "set", name, "run", cwd=place)
    says_one_line(done, 2, f"{name!r} is no name; allowed: letters, digits, - _ .")


def test_imports_are_commands(place: Path) -> None:
    foreign = Path(__file__).parent.parent / "slo" / "foreign" / "vllm.json"
    done = slo("import", foreign, "--out", "run", cwd=place)
    assert (done.returncode, done.stdout) == (0, "run\n")
    assert "25 requests of vllm bench serve, 1 failed; cannot be judged: ttfat" in done.stderr
    assert slo("check", "run", "--slo", "slo.yaml", cwd=place).returncode in (0, 3, 4)
    says_one_line(slo("import", "none.json", "--out", "r", cwd=place), 2, "cannot be read")
    bad = slo("import-openslo", "slo.yaml", cwd=place)
    says_one_line(bad, 2, "apiVersion None is not known here; allowed: openslo/v1")


def github() -> Iterator[str]:
    steps = yaml.safe_load((CI / "github-actions.yml").read_text())["jobs"]["check"]["steps"]
    yield from (step["run"] for step in steps if "run" in step and "pip" not in step["run"])


def gitlab() -> Iterator[str]:
    script = yaml.safe_load((CI / "gitlab-ci.yml").read_text())["slo"]["script"]
    yield from (line for line in script if "pip" not in line)


def kubernetes() -> Iterator[str]:
    _, job = yaml.safe_load_all((CI / "kubernetes-job.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    words = shlex.join([*container["command"], *container["args"]])
    yield (
        words.replace("http://llm:8000", '"$TARGET"').replace("/config/", "").replace("/runs", "r")
    )


@pytest.mark.parametrize("commands", [github, gitlab, kubernetes])
def test_the_commands_of_a_pipeline_run_against_a_server(
    sim: str, place: Path, commands: object
) -> None:
    bin_ = place / "bin"
    bin_.mkdir()
    (bin_ / "slo").write_text(f'#!/bin/sh\nexec {sys.executable} -m slo "$@"\n')
    (bin_ / "slo").chmod(0o755)
    paths = os.pathsep.join([str(bin_), os.environ["PATH"]])
    root = str(Path(__file__).parent.parent.parent)
    environment = os.environ | {"TARGET": sim, "PATH": paths, "PYTHONPATH": root}
    environment |= {"LLM_API_KEY": "", "GITHUB_STEP_SUMMARY": str(place / "summary.md")}
    for command in commands():  # type: ignore[operator]
        done = subprocess.run(
            ["bash", "-e", "-c", command],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    if commands is github:
        assert "PASS" in (place / "summary.md").read_text()
        assert "::notice file=slo.yaml,title=SLO PASS::" in done.stdout
    if commands is not kubernetes:
        assert "<testsuites" in (place / "junit.xml").read_text()
