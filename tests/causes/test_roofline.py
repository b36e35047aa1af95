"""The roofline's arithmetic against published counts, and runs that no GPU could have done."""

from dataclasses import replace
from pathlib import Path

import pytest

from slo import judge, slofile
from slo.hardware import PEAKS, SHAPES, peak_of, shape_of
from slo.histograms import write_hlog
from slo.record import Record
from slo.roofline import (
    Machine,
    ceiling_tokens_per_s,
    floor_step_s,
    kv_bytes_per_token,
    memory_bytes,
    prefill_flops,
    read_bytes,
)
from slo.rundir import read_records
from slo.verdict import Check
from tests.causes.evidence import evident_run
from tests.slo.make_run import write_records

QWEN = SHAPES["deepseek-r1-distill-qwen-1.5b"]
PUBLISHED = {
    "deepseek-r1-distill-qwen-1.5b": 1_777_088_000,
    "deepseek-r1-distill-qwen-7b": 7_615_616_512,
    "deepseek-r1-distill-llama-8b": 8_030_261_248,
    "deepseek-r1-distill-qwen-14b": 14_770_033_664,
    "deepseek-r1-distill-qwen-32b": 32_763_876_352,
    "deepseek-r1-distill-llama-70b": 70_553_706_496,
}


def test_every_shape_has_as_many_parameters_as_was_published() -> None:
    assert {name: shape.parameters for name, shape in SHAPES.items()} == PUBLISHED


def test_bytes_of_the_reference_model() -> None:
    machine = Machine(QWEN, PEAKS["A10"])
    assert read_bytes(machine) == 3_087_428_608
    assert memory_bytes(machine) == 3_554_176_000
    assert kv_bytes_per_token(machine) == 28_672


@pytest.mark.parametrize(
    ("gpu", "batch", "context", "step_ms"),
    [("A10", 1, 512, 5.17), ("L4", 64, 2048, 22.825), ("H200", 256, 512, 1.428)],
)
def test_known_steps(gpu: str, batch: int, context: int, step_ms: float) -> None:
    assert floor_step_s(Machine(QWEN, PEAKS[gpu]), batch, context) * 1e3 == pytest.approx(
        step_ms, rel=2e-3
    )


def test_a_quantised_model_meets_its_compute_ceiling() -> None:
    machine = Machine(QWEN, PEAKS["4090"], weight_bytes=0.5 + 2.5 / 128)
    assert ceiling_tokens_per_s(machine, 256, 512) == pytest.approx(52_023, rel=2e-3)
    assert prefill_flops(machine, 896) / PEAKS["A10"].flops == pytest.approx(19.34e-3, rel=2e-3)


def test_names_are_looked_up_by_their_words() -> None:
    assert peak_of("NVIDIA A10") == PEAKS["A10"]
    assert peak_of("NVIDIA A100-SXM4-80GB") == PEAKS["A100"]
    assert peak_of("NVIDIA GeForce RTX 4090") == PEAKS["4090"]
    assert peak_of("NVIDIA H200") == PEAKS["H200"]
    assert peak_of("NVIDIA B1") is None
    assert shape_of("/models/DeepSeek-R1-Distill-Qwen-1.5B/") == QWEN
    assert shape_of("tiny") is None


def roofline_check(run: Path) -> Check:
    (run.parent / "slo.yaml").write_text(
        "version: 1\nservice: s\nobjectives:\n- {metric: ttft, percentile: 50, max: 1s}\n"
    )
    verdict = judge.judge(run, slofile.load_slo(run.parent / "slo.yaml"))
    check = next(one for one in verdict.validity if one.check == "roofline")
    assert (verdict.result == "INVALID") == (check.outcome == "void")
    return check


def test_a_run_within_the_roofline_is_not_touched(tmp_path: Path) -> None:
    check = roofline_check(evident_run(tmp_path / "run", gpu={"util_gpu_pct": 20}))
    assert check.outcome == "ok"


def test_tokens_beyond_the_roofline_make_a_run_invalid(tmp_path: Path) -> None:
    run = evident_run(tmp_path / "run", gpu={"util_gpu_pct": 20})

    def lying(record: Record) -> Record:
        # One token a chunk, 1 ms apart: the L4 needs 10 ms to read the weights.
        return replace(
            record, output_tokens=400, chunks=400, first_chunk_tokens=1, itl_ms=(1.0,) * 399
        )

    write_records(run, [lying(record) for record in read_records(run)])
    write_hlog(run)
    text = (run / "gpu.jsonl").read_text()
    slow = text.replace("NVIDIA H200", "NVIDIA L4").replace("4814.3", "300.1")
    (run / "gpu.jsonl").write_text(slow)
    check = roofline_check(run)
    assert check.outcome == "void"
    assert check.voids == ("*",)
    assert "impossible" in check.measured or "tokens/s" in check.measured


def test_a_buffered_stream_is_not_called_impossible(tmp_path: Path) -> None:
    def buffered(record: Record) -> Record:
        # All text in one chunk, as a proxy that buffers sends it.
        return replace(
            record, output_tokens=64, chunks=1, first_chunk_tokens=64, itl_ms=(),
            first_token_s=record.last_token_s,
        )  # fmt: skip

    run = evident_run(tmp_path / "run", gpu={"util_gpu_pct": 20}, change=buffered)
    assert roofline_check(run).outcome == "ok"


def test_without_a_gpu_or_a_known_model_it_is_not_checked(tmp_path: Path) -> None:
    check = roofline_check(evident_run(tmp_path / "run"))
    assert check.outcome == "not checked"
    assert check.why == "Not known: no GPU whose peaks are known was measured."
