"""A night on record, whatever happens in it; and the files that start it."""

import configparser
import shlex
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from slo import nightly
from slo.ending import UsageError
from slo.history import Night, opened
from slo.nightly_config import read_nightly
from tests.cli.conftest import SLO, says_one_line, slo
from tests.serving import ROOT, running_target

FILES = ROOT / "docs" / "nightly"
PROMISE = """\
version: 1
service: sim
load: {max_tokens: 4, input_class: "128"}
objectives: [{metric: ttft, percentile: 95, max: 2s}]
"""
FIXED = (
    "{{name: {name}, url: '{url}', slo: slo.yaml, fixed: {{rate: 10/s, duration: {s}}}, {more}}}"
)
DOWN = FIXED.format(name="down", url="http://127.0.0.1:1", s="4s", more="ready_timeout: 0.1s")


def configured(folder: Path, targets: str, more: str = "") -> Path:
    (folder / "slo.yaml").write_text(PROMISE)
    path = folder / "nightly.yaml"
    path.write_text(f"version: 1\nmin_free_mib: 1\n{more}targets:\n{targets}")
    return path


def test_a_night_is_on_record_with_a_target_that_is_up_and_one_that_is_down(
    tmp_path: Path,
) -> None:
    with running_target("--engine", "sim", "--ttft-ms", "10", "--itl-ms", "2") as url:
        up = FIXED.format(name="up", url=url, s="3s", more="sidecar: 'off'")
        configured(tmp_path, f"  - {DOWN}\n  - {up}\n")
        done = slo("nightly", "--config", tmp_path / "nightly.yaml", cwd=Path("/"))
    assert done.returncode == 4, done.stderr
    with opened(str(tmp_path / "nightly.db")) as history:
        down, up_night = history.nights("down")[0], history.nights("up")[0]
    assert (down.status, down.values) == ("target down", {})
    assert "nothing listens there" in down.why
    assert up_night.status == "measured", up_night.why
    assert {"ttft.p50", "e2e.p95", "tokens_per_s"} <= set(up_night.values)
    assert up_night.fingerprint["target.engine"] == "sim"
    assert (Path(up_night.directory) / "fixed" / "run.json").exists()
    assert "nothing listens there" in (tmp_path / "runs/nightly/trend.html").read_text()


def test_two_nightlies_do_not_overlap(tmp_path: Path) -> None:
    path = configured(tmp_path, f"  - {DOWN}\n")
    with nightly.locked(tmp_path / "runs/nightly"):
        says_one_line(
            slo("nightly", "--config", path, cwd=tmp_path), 4, "another nightly", "process"
        )
    assert not (tmp_path / "nightly.db").exists()
    assert "down: target down" in slo("nightly", "--config", path, cwd=tmp_path).stderr


def test_a_full_disk_marks_the_night_and_starts_nothing(tmp_path: Path) -> None:
    config = read_nightly(configured(tmp_path, f"  - {DOWN}\n"))
    with nightly.locked(config.out), opened(config.history) as history:
        (night,) = nightly.night_of(config, history, Console(quiet=True), free=lambda _: 1000)
        assert history.nights() == [night]
    assert night.status == "no space"
    assert "0 MiB are free, needed are 1" in night.why


def test_old_runs_are_deleted_and_their_numbers_stay(tmp_path: Path) -> None:
    config = read_nightly(configured(tmp_path, f"  - {DOWN}\n", more="keep: 10d\n"))
    runs = config.out / "x"
    now = datetime(2026, 11, 30, tzinfo=UTC)
    with opened(config.history) as history:
        for days in (5, 15):
            folder = runs / str(days)
            folder.mkdir(parents=True)
            at = now - timedelta(days=days)
            history.add(Night("x", at, "measured", "", {"ttft.p50": 1.0}, {}, str(folder)))
        of_another = tmp_path / "other" / "20"
        of_another.mkdir(parents=True)
        history.add(Night("y", now - timedelta(days=20), "measured", directory=str(of_another)))
        gone = nightly.prune(config, history, now, Console(quiet=True))
        assert gone == [str(runs / "15")]
        assert [night.values for night in history.nights("x")] == [{"ttft.p50": 1.0}] * 2
        assert history.nights("y")[0].directory == str(of_another)
    assert of_another.is_dir()
    assert [path.name for path in runs.iterdir()] == ["5"]


def test_mistakes_in_nightly_yaml_are_named_by_key(tmp_path: Path) -> None:
    path = configured(tmp_path, "  - {name: a b, url: x, slo: s, fixed: {rate: 3x}, max: 1}\n")
    with pytest.raises(UsageError) as said:
        read_nightly(path)
    for key in ("targets.0.name", "targets.0.fixed.rate", "targets.0.max"):
        assert f"{path}: {key}: " in str(said.value)
    with pytest.raises(UsageError, match="neither capacity nor fixed"):
        read_nightly(configured(tmp_path, "  - {name: a, url: x, slo: s}\n"))


def commands() -> dict[str, list[str]]:
    """The command of each file that schedules a night."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(FILES / "tailgate-nightly.service")
    cron = (FILES / "crontab").read_text().splitlines()[-1]
    job = yaml.safe_load((FILES / "cronjob.yaml").read_text())
    flow = yaml.safe_load((FILES / "github-actions.yml").read_text())
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    steps = [step["run"] for step in flow["jobs"]["nightly"]["steps"] if "run" in step]
    return {
        "systemd": shlex.split(unit["Service"]["ExecStart"]),
        "cron": shlex.split(cron.split(None, 5)[5].partition(">>")[0]),
        "kubernetes": pod["containers"][0]["command"],
        "github": shlex.split(steps[-1]),
    }


def test_every_scheduling_file_starts_the_same_command_and_it_runs(tmp_path: Path) -> None:
    config = configured(tmp_path, f"  - {DOWN}\n")
    for place, command in commands().items():
        assert command[0].rpartition("/")[2] == "slo", place
        assert command[1:3] == ["nightly", "--config"], place
        assert command[3].endswith("nightly.yaml"), place
    done = subprocess.run(
        [*SLO, *commands()["cron"][1:3], config], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 4, done.stderr
    job = yaml.safe_load((FILES / "cronjob.yaml").read_text())["spec"]
    assert job["concurrencyPolicy"] == "Forbid"
    assert job["schedule"] == "0 2 * * *"
    assert "jobTemplate" in job


def test_the_example_config_is_read(tmp_path: Path) -> None:
    config = read_nightly(FILES / "nightly.yaml")
    assert config.keep == 30 * 86_400
    assert config.targets[0].capacity is not None
    assert config.targets[0].capacity.budget == 1200


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_systemd_finds_no_mistake_in_the_units(tmp_path: Path) -> None:
    for name in ("tailgate-nightly.service", "tailgate-nightly.timer"):
        text = (FILES / name).read_text().replace("/opt/tailgate/bin/slo", "/bin/true")
        (tmp_path / name).write_text(text.replace("User=tailgate\n", ""))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / "tailgate-nightly.timer",
         tmp_path / "tailgate-nightly.service"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "tailgate-nightly" in line]
    assert not said
    calendar = subprocess.run(
        ["systemd-analyze", "calendar", "*-*-* 02:00:00"], capture_output=True, timeout=60
    )
    assert calendar.returncode == 0


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("keep: -1d", "keep: .*or whole days as 30d"),
        ("min_free_mib: -5", "min_free_mib: "),
        ("keep: infd", "keep: "),
        ("keep: 0d", "keep: "),
        ("floor: 0%", "floor: "),
    ],
)
def test_a_number_that_would_delete_or_alarm_for_ever_is_refused(
    tmp_path: Path, line: str, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        read_nightly(configured(tmp_path, f"  - {DOWN}\n", more=f"{line}\n"))
