"""The command as it is installed, stopped while it still loads."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import SLO
from tests.slo.make_run import make_run

INSTALLED = Path(sys.executable).with_name("slo")


@pytest.mark.parametrize("loaded", ["typer", "pydantic"])
def test_ctrl_c_while_the_command_still_loads_is_one_line(tmp_path: Path, loaded: str) -> None:
    with subprocess.Popen(
        [INSTALLED, "run", "--target", "http://127.0.0.1:9", "--rate", "1/s"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"},  # it says what it has loaded
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.split()[-1] == loaded:
                process.send_signal(signal.SIGINT)
                break
        left = [line for line in process.stderr if not line.startswith("import time:")]
    assert left == ["slo: stopped\n"]
    assert process.returncode == 130


def test_nobody_who_reads_is_no_missed_slo(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0.1] * 400)
    objective = "{metric: ttft, percentile: 75, max: 2s}"
    text = f"version: 1\nservice: sim\nobjectives: [{objective}]\n"
    (tmp_path / "slo.yaml").write_text(text)
    check = shlex.join([*SLO, "check", str(run), "--slo", "slo.yaml"])
    for tail, code in (("| true; exit ${PIPESTATUS[0]}", 141), (">&-", 0)):
        done = subprocess.run(
            ["bash", "-c", f"{check} {tail}"], cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (code, ""), tail
