"""Runs recorded on one H200, replayed: each folder is named after the word that it must get.

no-load and host-bound came through `slo run` and the reference server (`dynamic`), the others from
tests/gpu/long_contexts.py. tests/gpu/record_evidence.sh makes them all.
"""

from pathlib import Path

import pytest

from slo.causes import causes
from slo.run_lint import lint_run

RUNS = sorted((Path(__file__).parents[1] / "recorded_runs").iterdir())


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_recorded_run_gets_its_word(run: Path) -> None:
    found = causes(run)
    assert found.gpu_absent is None
    assert found.diagnosis.word == run.name, found.diagnosis.rules
    assert found.signals.gpu is not None
    assert found.signals.gpu.samples >= 20


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_nothing_in_it_breaks_physics(run: Path) -> None:
    assert lint_run(run) == []


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_it_names_no_machine(run: Path) -> None:
    text = (run / "gpu.jsonl").read_text() + (run / "run.json").read_text()
    assert "GPU-00000000-0000-0000-0000-000000000000" in text
    assert '"processes": [{' not in text


def test_gpu_util_would_have_told_them_apart_wrongly() -> None:
    """Tensor cores at 53 % and memory at its limit both show full utilisation."""
    util = {run.name: causes(run).signals.gpu for run in RUNS}
    busy = [name for name, gpu in util.items() if gpu and (gpu.util_pct or 0) > 90]
    assert "compute-bound" in busy
