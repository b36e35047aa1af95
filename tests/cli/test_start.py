"""The command as it is installed, stopped while it still loads."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
