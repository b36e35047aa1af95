"""Runs recorded on one H200, replayed: each folder is named after the word that it must get.

no-load and host-bound came through `slo run` and the reference server (`dynamic`), the others from
tests/gpu/long_contexts.py. tests/gpu/record_evidence.sh makes them all.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from slo.causes import causes
from slo.run_lint import lint_run
from slo.rundir import read_run, write_run
from slo.thresholds import LIMITS
from tests.causes.evidence import evident_run

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


@pytest.mark.parametrize(
    ("word", "busy"),
    [("compute-bound", "tensor_active_pct"), ("bandwidth-bound", "dram_active_pct")],
)
def test_a_matrix_product_and_a_copy_that_the_sidecar_saw(
    tmp_path: Path, word: str, busy: str
) -> None:
    """Five seconds each of tests/sidecar/h200.jsonl; both showed a GPU-util of 99 to 100 %."""
    lines = (Path(__file__).parents[1] / "sidecar" / "h200.jsonl").read_text().splitlines()
    samples = [one for one in map(json.loads, lines) if one["type"] == "sample"]
    during = [one["t_mono_ns"] for one in samples if (one.get(busy) or 0) > 60]
    directory = evident_run(tmp_path / "run", seconds=30)
    shutil.copy(Path(__file__).parents[1] / "sidecar" / "h200.jsonl", directory / "gpu.jsonl")
    length_s = (during[-1] - during[0]) / 1e9
    start_ns = during[0] - 10**9  # what is dropped at a window's edge
    write_run(
        directory,
        replace(read_run(directory), t0_mono_ns=start_ns, duration_s=length_s + 1, warmup_s=0.0),
    )
    limits = MappingProxyType({**LIMITS, "evidence_samples": 8, "evidence_s": 4})
    assert causes(directory, limits).diagnosis.word == word
