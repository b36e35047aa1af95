"""Our runs in the articles' own columns, beside what they claim."""

import json
from pathlib import Path

import pytest

from slo.compare import Ask, Comparison, compare
from slo.compare_like import LikeTable, like
from slo.rundir import GPU
from tests.compare.simulated import START_NS
from tests.slo.make_run import make_run

T0_MONO_NS = 1_000_000_000_000


def with_gpu(directory: Path, util: float, memory_mib: float, active: float) -> Path:
    """A GPU log of one sample a second."""
    stamp = {"t_wall_ns": START_NS, "t_mono_ns": T0_MONO_NS}
    gpu = {"index": 0, "uuid": "GPU-1", "name": "NVIDIA A10", "unsupported": {}}
    header = {"type": "header", "schema": "1.0", "host": "h", "pid": 1, "period_s": 1.0, **stamp,
              "driver": "580", "unavailable": None, "gpus": [gpu]}  # fmt: skip
    lines = [header]
    for second in range(40):
        lines.append({
            "type": "sample", "gpu": 0, "t_wall_ns": START_NS + second * 10**9,
            "t_mono_ns": T0_MONO_NS + second * 10**9, "util_gpu_pct": util + second % 3,
            "mem_used_mib": memory_mib, "power_w": 100.0, "energy_j": 100.0 * second,
            "dram_active_pct": active,
        })  # fmt: skip
    (directory / GPU).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("like")
    sides = []
    for name, e2e, util, memory, active in (
        ("before", 1.8, 43.0, 5000.0, 90.0), ("after", 0.9, 67.0, 4600.0, 70.0)
    ):  # fmt: skip
        values = [e2e + 0.001 * (i * 7919 % 97) for i in range(400)]
        run = make_run(folder / name, [0.4] * 400, values, label=name, scenarios=("math", "code"))
        sides.append([with_gpu(run, util, memory, active)])
    return compare(sides[0], sides[1], Ask(gates=("e2e.p95",)))


def rows(table: LikeTable) -> dict[str, dict[str, str]]:
    return {row[0]: dict(zip(table.head, row, strict=True)) for row in table.rows}


def test_an_articles_table_has_our_columns_beside_its_own(found: Comparison) -> None:
    (table,) = like("001-t3", found)
    by_name = rows(table)
    p95 = by_name["p95_latency"]
    assert (p95["before"], p95["after"], p95["claimed_change_pct"]) == ("1820", "1040", "-43")
    assert 1880 < int(p95["our before"]) < 1900
    assert p95["our change"].startswith("-4")
    assert by_name["gpu_util_mean"]["our before"] == "44"
    assert by_name["memory_bw_peak"]["our after"] == "70"
    assert by_name["gpu_memory"]["our before"] == "5.24"  # 5000 MiB in GB
    assert by_name["sustainable_qps"]["our before"] == "not measured"


def test_a_capacity_search_beside_the_runs_gives_the_stable_rate(tmp_path: Path) -> None:
    sides = []
    for name, passes, fails in (("before", 3.0, 3.6), ("after", 5.0, None)):
        (tmp_path / name).mkdir()
        answer = {"passes": passes, "fails": fails}
        (tmp_path / name / "capacity.json").write_text(json.dumps({"answer": answer}))
        sides.append([make_run(tmp_path / name / str(i), [0.1] * 100, seed=i) for i in range(3)])
    found = compare(sides[0], sides[1], Ask(gates=("e2e.p95",)))
    (table,) = like("001-t3", found)
    stable = rows(table)["sustainable_qps"]
    assert (stable["our before"], stable["our after"]) == ("3", "5")
    line = next(line for line in found.lines if line.metric == "stable_qps")
    assert line.outcome == "better"
    assert line.low == pytest.approx(5 / 3.6 - 1)
    assert line.high is None  # no rate of the second was shown to be too much


def test_an_article_gives_all_its_tables(found: Comparison) -> None:
    names = [table.id for table in like("001_72f2d11827e83c58", found)]
    assert names == ["001-t3", "001-t4", "001-t5", "001-t6"]
    assert [table.id for table in like("003", found)] == ["003-t2", "003-t3"]


def test_a_table_with_a_row_a_gpu_gets_a_row_of_ours(found: Comparison) -> None:
    (table,) = like("003-t2", found)
    ours = dict(zip(table.head, table.rows[-1], strict=True))
    assert table.rows[0][:2] == ("article", "A10")
    assert (ours["whose"], ours["gpu"]) == ("ours", "NVIDIA A10")
    assert (ours["gpu_util_before"], ours["gpu_util_after"]) == ("44", "68")
    assert (ours["ttft_before"], ours["ttft_after"]) == ("400", "400")
    assert ours["mem_before"] == "5.24"


def test_a_table_with_a_row_a_scheme_gets_a_row_a_side(found: Comparison) -> None:
    (table,) = like("004-t3", found)
    assert [row[:2] for row in table.rows[-2:]] == [("ours", "before"), ("ours", "after")]
    assert dict(zip(table.head, table.rows[-1], strict=True))["memory"] == "4.82"


@pytest.mark.parametrize("name", ["001-t3", "003-t2", "003-t3", "004-t1", "004-t2", "004-t3",
                                  "004-t4", "000-t1"])  # fmt: skip
def test_every_template_fills_every_column(found: Comparison, name: str) -> None:
    (table,) = like(name, found)
    assert {len(row) for row in table.rows} == {len(table.head)}


def test_the_gpu_and_its_energy_are_numbers_of_the_comparison(found: Comparison) -> None:
    lines = {line.metric: line for line in found.lines}
    assert lines["gpu_util.mean"].change == pytest.approx(0.24)
    assert lines["gpu_memory.max"].outcome == "-"  # one value a side
    assert lines["energy_per_request.mean"].before == pytest.approx(3900 / 400)
