"""The wheel in an empty environment, with the core dependencies only and away from the source."""

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.slo.make_run import make_run

ROOT = Path(__file__).parent.parent

SLO_YAML = """version: 1
service: made
objectives:
  - {metric: ttft, percentile: 90, max: 2s}
"""


def test_the_wheel_judges_a_run_with_core_dependencies_and_names_the_extras_it_lacks(
    tmp_path: Path,
) -> None:
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path, ROOT], check=True)
    [wheel] = tmp_path.glob("tailgate-*.whl")
    inside = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in inside if "dist-info" not in name} == {
        "target", "loadtests", "slo", "reports",
    }  # fmt: skip
    assert "slo/demo_slo.yaml" in inside

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", wheel], check=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def slo(*arguments: object) -> "subprocess.CompletedProcess[str]":
        argv = [python.with_name("slo"), *map(str, arguments)]
        return subprocess.run(argv, cwd=elsewhere, capture_output=True, text=True, timeout=60)

    helped = slo("--help")
    assert helped.returncode == 0, helped.stderr
    for command in ("run", "check", "report", "validate", "demo"):
        assert f"\n  {command} " in helped.stdout

    missing = slo("run", "--target", "http://127.0.0.1:9", "--rate", "1/s", "--duration", "1s")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr == (
        "slo run: the load engine is not installed; pip install 'tailgate[load]'\n"
    )
    demo = slo("demo")
    assert demo.returncode == 2
    assert demo.stderr == (
        "slo demo: not installed: locust, fastapi, torch; pip install 'tailgate[load,serve,hf]'\n"
    )

    make_run(elsewhere / "run", [0.1] * 100)
    (elsewhere / "slo.yaml").write_text(SLO_YAML)
    judged = slo("check", "run", "--slo", "slo.yaml")
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "PASS" in judged.stdout
    assert (elsewhere / "run" / "report.html").exists()
