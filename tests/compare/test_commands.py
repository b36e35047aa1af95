"""`slo compare`, `slo grade` and `slo ab` as a person runs them, against real servers."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from loadtests.prompts import prompt
from slo import sandbox
from slo.rundir import SCHEDULE, read_schedule
from tests.cli.conftest import says_one_line, slo
from tests.compare.simulated import run
from tests.compare.test_grading import right_code
from tests.serving import running_target
from tests.slo.make_run import make_run

PAIRS = 4


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    return run(tmp_path / "a", 1, 1.0, 1, 1), run(tmp_path / "b", 1, 2.0, 2, 2)


def test_a_worse_server_exits_with_1_and_all_reports_are_written(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    files = ("--html", "c.html", "--markdown", "c.md", "--json", "c.json")
    done = slo("compare", *runs, *files, "--like", "001-t3", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("WORSE  Worse than allowed: ")
    assert "e2e.p95" in done.stdout
    assert "1820   1040" in done.stdout  # the claim beside ours
    document = json.loads((tmp_path / "c.json").read_text())
    assert document["result"] == "WORSE"
    page = (tmp_path / "c.html").read_text()
    assert page.count("<svg") == 4  # two shifts, each for a page and for a phone
    assert "<script" not in page
    assert "001-t3" in page
    assert (tmp_path / "c.md").read_text().startswith("## WORSE: made by a test against")


def test_better_exits_with_0_and_too_little_with_3(runs: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = runs
    gate = ("--gate", "e2e.p95")
    assert slo("compare", after, before, *gate, cwd=tmp_path).returncode == 0
    same = run(tmp_path / "c", 1, 1.04, 3, 3)
    assert slo("compare", before, same, *gate, cwd=tmp_path).returncode == 3


def test_other_loads_exit_with_4_and_name_what_differs(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    other = run(tmp_path / "c", 2, 1.0, 1, 1)
    done = slo("compare", runs[0], other, cwd=tmp_path)
    assert done.returncode == 4
    assert "NOT COMPARABLE" in done.stdout
    assert "seed: 1 against 2" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("compare", "none", "none"), 2, "none: no such run directory"),
        (("compare", "a", "file"), 2, "file: no such run directory"),
        (("compare", "a", "a", "--accept", "weather"), 2, "'weather' is no term; allowed: fin"),
        (("compare", "a", "a", "--like", "002"), 2, "'002' is no article; allowed: 001_"),
        (("compare", "a", "a", "--in-time", "p95=1s"), 2, "'p95' is no latency; allowed: ttft"),
        (("compare", "a", "a", "--gate", "p95"), 2, "'p95' is no metric; allowed are "),
        (("compare", "a", "a", "--gate", "ttft.p59"), 2, "ttft.p99"),
        (("compare", "a", "a", "--allow", "-5%"), 2, "'-5%' is negative; allowed: 0% or more"),
        (("compare", "a", "a", "--drift", "900%"), 2, "'900%' is not within 0% to 100%"),
        (("compare", ".", "empty"), 4, "empty: neither a run directory nor a folder of them"),
        (("compare", "a", "broken"), 4, "broken/run.json:1: cut off"),
        (("compare", "a", "a", "--json", "none/x"), 2, "none/x: cannot be written: No such file"),
        (("grade", "file"), 2, "file: no such run directory"),
        (("grade", "a"), 2, "only a run with --store-answers has it"),
        (
            ("ab", "--before", "http://127.0.0.1:1", "--after", "http://127.0.0.1:1",
             "--rate", "1/s", "--pairs", "3"), 2, "--pairs: 3 is no number of pairs",
        ),
        (
            ("ab", "--before", "http://127.0.0.1:1", "--after", "http://127.0.0.1:1",
             "--rate", "1/s", "--gate", "speed"), 2, "--gate: 'speed' is no metric",
        ),
        (
            ("ab", "--before", "http://127.0.0.1:1", "--after", "http://127.0.0.1:1",
             "--rate", "1/s", "--out", "old"), 2, "old: holds a comparison already",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], code: int, told: str
) -> None:
    make_run(tmp_path / "a", [0.1] * 20)
    (tmp_path / "empty").mkdir()
    make_run(tmp_path / "old" / "after" / "01", [0.1] * 20)
    (tmp_path / "file").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    says_one_line(slo(*arguments, cwd=tmp_path), code, told)


def answers(path: Path, schedules: list[Path]) -> Path:
    """What the simulated server is to say: the right answer to each prompt of the schedules."""
    lines = []
    for directory in schedules:
        for arrival in read_schedule(directory):
            asked = prompt(arrival.prompt_id)
            if arrival.scenario == "math":
                said = f"I add it up: \\boxed{{{asked.answer.value}}}"  # type: ignore[union-attr]
            else:
                known = {"function": asked.answer.function, "tests": asked.answer.tests}  # type: ignore[union-attr]
                said = right_code(known)
            lines.append(json.dumps({"prompt": asked.text, "answer": said}))
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, Path]:
    """A server against one that is a fifth faster, and wrong while more than 3 requests run."""
    from loadtests.schedule import Load, arrivals
    from slo.rundir import write_schedule

    folder = tmp_path_factory.mktemp("ab")
    planned = []
    for seed in range(7, 7 + PAIRS):
        load = Load(
            rate_per_s=20.0, duration_s=2.0, warmup_s=0.5, arrival="poisson",
            mix={"math": 0.8, "code": 0.2}, input_class="128", max_tokens=300, seed=seed,
        )  # fmt: skip
        (folder / str(seed)).mkdir()
        write_schedule(folder / str(seed), arrivals(load))
        planned.append(folder / str(seed))
    known = answers(folder / "answers.jsonl", planned)
    serve = ("--engine", "sim", "--answers", str(known), "--ttft-ms", "20", "--itl-sigma", "0.1",
             "--max-running", "64")  # fmt: skip
    with ExitStack() as stack:
        before = stack.enter_context(running_target(*serve, "--itl-ms", "2.5"))
        after = stack.enter_context(
            running_target(*serve, "--itl-ms", "2", "--fault", "wrong:above=3")
        )
        done = slo(
            "ab", "--before", before, "--after", after, "--rate", "20/s", "--duration", "2s",
            "--warmup", "0.5s", "--pairs", PAIRS, "--mix", "math=0.8,code=0.2", "--input-class",
            "128", "--max-tokens", 300, "--seed", 7, "--sidecar", "off", "--store-answers",
            "--in-time", "e2e=2s", "--out", "out", cwd=folder,
        )  # fmt: skip
    return done.returncode, done.stdout + done.stderr, folder / "out"


@pytest.mark.skipif(sandbox.refusal() is not None, reason="no sandbox here")
def test_a_server_that_answers_wrongly_under_load_is_caught_though_it_is_faster(
    measured: tuple[int, str, Path],
) -> None:
    code, said, out = measured
    assert code == 1, said
    assert "Worse than allowed: accuracy" in said
    document = json.loads((out / "comparison.json").read_text())
    lines = {(line["metric"], line["scenario"]): line for line in document["lines"]}
    assert lines["e2e.gmean", "all"]["outcome"] == "better"
    assert lines["accuracy", "all"]["before"] == 1.0
    assert lines["accuracy", "all"]["after"] < 0.8
    assert lines["accuracy", "code"]["before"] == 1.0  # its unit tests ran in the sandbox
    by_load = document["answers"]["by_load"]
    assert by_load[0]["after"]["part"] / by_load[0]["after"]["n"] > 0.6
    assert by_load[-1]["after"]["part"] / by_load[-1]["after"]["n"] < 0.4
    assert document["answers"]["pairs"]["all"]["won"] == 0
    assert document["answers"]["pairs"]["all"]["p"] < 1e-6


@pytest.mark.skipif(sandbox.refusal() is not None, reason="no sandbox here")
def test_the_blocks_are_interleaved_and_each_pair_has_one_schedule(
    measured: tuple[int, str, Path],
) -> None:
    _, _, out = measured
    started = sorted(
        (json.loads((run / "run.json").read_text())["t0_wall_ns"], run.parent.name)
        for run in out.glob("*/*")
        if run.is_dir()
    )
    assert "".join(side[0] for _, side in started) == "baabbaab"
    for pair in range(1, PAIRS + 1):
        texts = {
            (out / side / f"{pair:02d}" / SCHEDULE).read_text() for side in ("before", "after")
        }
        assert len(texts) == 1
    assert (out / "comparison.html").exists()
