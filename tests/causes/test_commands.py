"""`slo diagnose` and `slo lint` as a person runs them, and the section of the reports."""

import json
import random
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import reports.html
import reports.markdown
import reports.terminal
import slo as package
from slo import judge, slofile, summarise
from slo.record import Record
from slo.rundir import read_run
from tests.causes.evidence import evident_run, told
from tests.cli.conftest import says_one_line, slo
from tests.serving import running_target

CLAIMS = Path(package.__file__).parent / "data" / "claims.json"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all evidence there can be, whose slow requests fall together with a hot GPU."""
    rng = random.Random(1)
    timings = told(queue=3.0, tokenize=1.0, prefill=30.0, decode=390.0)

    def changed(record: Record) -> Record:
        slow = 0.5 if 30 <= record.due_s < 33 else 0.0
        return replace(
            timings(record),
            last_token_s=(record.last_token_s or 0) + slow,
            ended_s=(record.ended_s or 0) + slow,
            prompt_tokens=100 + record.seq,
            itl_ms=(),
            chunks=1,
        )

    return evident_run(
        tmp_path_factory.mktemp("causes") / "run",
        seconds=60,
        change=changed,
        gpu=lambda at_s: {
            "util_gpu_pct": 25,
            "dram_active_pct": 3.1 + rng.random() / 10,
            "tensor_active_pct": 0.4,
            "sm_clock_mhz": 900 if 30 <= at_s < 33 else 1980,
            "clocks_event_reasons": 0,
        },
        server=lambda at_s: {"running": 4.5, "waiting": 0, "kv_usage": 0.1},
    )


def test_the_word_and_its_numbers_as_text_and_as_json(run: Path, tmp_path: Path) -> None:
    done = slo("diagnose", run, "--json", "d.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("host-bound (high confidence): ")
    for part in ("Rules", "Where the time of a request went", "P95 against input length"):
        assert part in done.stdout
    document = json.loads((tmp_path / "d.json").read_text())
    assert document["word"] == "host-bound"
    assert document["run"] == "run"
    assert [rule["word"] for rule in document["rules"]][:3] == [
        "no-load",
        "throttled",
        "kv-pressure",
    ]
    stages = {stage["name"]: stage["mean_s"] for stage in document["stages"]}
    assert stages["prefill"] == pytest.approx(0.03)
    slow = {one["series"]: (one["slowest"], one["rest"]) for one in document["slowest"]}
    assert slow["SM clock"][0] < 1300 < 1900 < slow["SM clock"][1]
    strongest = document["correlations"][0]
    assert (strongest["latency"], strongest["series"]) == ("e2e", "SM clock")
    assert strongest["rho"] < -0.9
    assert document["by_input_length"][0]["label"] == "100 to 249 tokens"


def test_the_section_stands_in_every_report(run: Path) -> None:
    slo_file = run.parent / "slo.yaml"
    slo_file.write_text(
        "version: 1\nservice: s\nobjectives:\n- {metric: ttft, percentile: 50, max: 1s}\n"
    )
    verdict = judge.judge(run, slofile.load_slo(slo_file))
    summary = summarise.summarise(run)
    html = reports.html.render(verdict, summary, read_run(run))
    assert "What bounds the server?" in html
    assert "host-bound (high confidence)" in html
    assert "GPU activity, %" in html  # a panel of the time figure
    assert "Requests in the server" in html
    assert "P95 against input length" in html
    markdown = reports.markdown.render(verdict, summary, read_run(run))
    assert "**What bounds the server:** host-bound" in markdown
    assert "| host-bound | holds | requests open" in markdown
    out = StringIO()
    reports.terminal.render(verdict, summary, Console(file=out, width=100))
    assert "host-bound (high confidence)" in out.getvalue()
    assert "next        Launch fewer" in out.getvalue()


def test_what_cannot_be_diagnosed_is_one_line(tmp_path: Path) -> None:
    says_one_line(slo("diagnose", "nowhere", cwd=tmp_path), 2, "nowhere: no such run directory")
    (tmp_path / "empty").mkdir()
    says_one_line(slo("diagnose", "empty", cwd=tmp_path), 4, "run.json: missing")
    says_one_line(slo("lint", "nowhere", cwd=tmp_path), 2, "nowhere: no such file or directory")
    (tmp_path / "c.json").write_text("{}")
    says_one_line(slo("lint", "c.json", cwd=tmp_path), 4, "c.json: format None is unknown here")


def test_lint_exits_with_4_where_something_is_broken(run: Path, tmp_path: Path) -> None:
    broken = slo("lint", CLAIMS, "--json", "found.json", cwd=tmp_path)
    assert broken.returncode == 4
    assert broken.stdout.splitlines()[-1] == "8 broken, 2 doubtful"
    assert len(json.loads((tmp_path / "found.json").read_text())["findings"]) == 13
    sound = slo("lint", run, cwd=tmp_path)
    assert (sound.returncode, sound.stdout) == (0, "0 broken, 0 doubtful\n")


def test_a_crowd_before_one_slot_is_queueing(tmp_path: Path) -> None:
    serve = ("--engine", "sim", "--max-running", "1", "--ttft-ms", "20", "--itl-ms", "2")
    load = ("--rate", "40/s", "--duration", "4s", "--warmup", "1s", "--max-tokens", "8")
    with running_target(*serve) as url:
        done = slo("run", "--target", url, *load, "--sidecar", "off", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = slo("diagnose", "run", "--json", "d.json", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    document = json.loads((tmp_path / "d.json").read_text())
    assert document["word"] == "queueing"
    assert document["signals"]["server"]["waiting"] > 5
    assert document["absent"] == {"gpu": "no sidecar ran", "server": None}
