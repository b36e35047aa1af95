"""Claims and runs whose numbers cannot be true."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import slo
from slo.claim_rules import Finding, lint
from slo.claims import read_claims
from slo.record import Record
from slo.run_lint import lint_run
from slo.rundir import RunDirError
from tests.causes.evidence import evident_run, told

OUR_COPY = Path(slo.__file__).parent / "data" / "claims.json"


def linted(tmp_path: Path, **table: Any) -> list[Finding]:
    columns = [dict(zip(("name", "unit"), name, strict=False)) for name in table.pop("columns")]
    document = {
        "format": "seed_tables/1",
        "model": "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
        "tables": [{"id": "t", "kind": "before_after", **table, "columns": columns}],
    }
    path = tmp_path / "claims.json"
    path.write_text(json.dumps(document))
    return lint(read_claims(path))


def test_the_articles_tables_are_judged_as_they_were_by_hand() -> None:
    found = lint(read_claims(OUR_COPY))
    broken = {(one.where, one.what.split()[0]) for one in found if one.level == "broken"}
    assert broken == {
        ("003-t2 A10", "qps_before"),
        ("003-t2 RTX 4090", "qps_before"),
        ("003-t2 RTX 4090", "qps_after"),
        ("003-t2 L4", "qps_before"),
        ("003-t2 L4", "qps_after"),
        ("004-t3 fp16", "memory"),
        ("004-t3 gptq-4bit", "memory"),
        ("004-t4 gpu_memory", "before"),
    }
    at_a10 = next(one for one in found if one.where == "003-t2 A10" and one.level == "broken")
    assert "513%" in at_a10.what
    assert "at batch 1, context 512: 193 tokens/s" in at_a10.what
    assert any("same factor, 2.55, on 3 GPUs" in one.what for one in found)
    assert any("320 ms allow at most 62 tokens" in one.what for one in found)


BEFORE_AFTER = [("metric",), ("before",), ("after",), ("unit",), ("claimed_change_pct",)]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (["p95_latency", 3.4, 1.3, "s", -62], None),
        (["p95_latency", 3.4, 1.3, "s", -42], "3.4 to 1.3 is -61.8 %, claimed is -42 %"),
        (["gpu_util", 35, 168, "%", None], "after is 168 %, outside 0 to 100 %"),
        (["gpu_memory", 3.6, 1.7, "GB", None], None),
        (["gpu_memory", 3.0, 1.7, "GB", None], "before 3 GB cannot hold weights of 3.55 GB"),
        (["e2e_200_tokens", None, 1.3, "s", None], None),
        (["e2e_200_tokens", None, 0.9, "s", None], "200 tokens in 0.9 s: at most 174 fit"),
    ],
)
def test_one_row_before_and_after(tmp_path: Path, row: list[Any], says: str | None) -> None:
    environment = {"gpu": "A10", "engine_after": "transformers+AWQ"}
    if row[0].startswith("e2e"):
        environment = {"gpu": "A10"}
    found = linted(tmp_path, columns=BEFORE_AFTER, rows=[row], environment=environment)
    assert [one.what for one in found] == ([says] if says else [])


def test_percentiles_out_of_order(tmp_path: Path) -> None:
    rows = [["p50", 1.9], ["p95", 3.4], ["p90", 3.5], ["max", 6.8]]
    found = linted(tmp_path, kind="distribution", columns=[("statistic",), ("value",)], rows=rows)
    assert [one.what for one in found] == ["P90 3.5 is above P95 3.4"]


@pytest.mark.parametrize(("latency_ms", "broken"), [(2000, False), (6000, True), (800, True)])
def test_littles_law(tmp_path: Path, latency_ms: float, broken: bool) -> None:
    columns = [("concurrency",), ("qps", "req/s"), ("mean_latency", "ms")]
    found = linted(tmp_path, columns=columns, rows=[[16, 8, latency_ms]])
    assert [one.level for one in found] == (["broken"] if broken else [])


def test_parts_that_do_not_make_the_whole(tmp_path: Path) -> None:
    columns = [("ttft", "ms"), ("tpot", "ms"), ("e2e", "s"), ("output_tokens",)]
    assert linted(tmp_path, columns=columns, rows=[[100, 10, 1.09, 100]]) == []
    found = linted(tmp_path, columns=columns, rows=[[100, 10, 2.0, 100]])
    assert found[0].what == "TTFT + 99 x TPOT is 1.09 s, E2E is 2 s"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "cut off or no JSON"),
        ('{"format": "other/1"}', "format 'other/1' is unknown here"),
        ("[]", "format None is unknown here"),
        ('{"format": "seed_tables/1", "tables": [{"id": "t"}]}', "tables.0.kind: Field required"),
        (
            '{"format": "seed_tables/1", "tables": [{"id": "t", "kind": "k", '
            '"columns": [{"name": "a"}], "rows": [[1, 2]]}]}',
            "table t: row 1 has 2 cells, there are 1 columns",
        ),
    ],
)
def test_a_file_that_is_no_table_of_claims(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "claims.json"
    path.write_text(text)
    with pytest.raises(RunDirError, match=r"claims\.json") as refused:
        read_claims(path)
    assert says in str(refused.value)


def test_a_sound_run_has_nothing_wrong(tmp_path: Path) -> None:
    run = evident_run(
        tmp_path / "run", gpu={"util_gpu_pct": 20}, server={"running": 4, "waiting": 0}
    )
    assert lint_run(run) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"first_token_s": 1e6},
            "first_token_s is after first_answer_token_s: seq 0, 1, 2 and 297",
        ),
        ({"itl_ms": (1.0, 1.0, 1.0, 1.0)}, "the gaps do not add up"),
        ({"itl_ms": (400.0,)}, "there is not one gap fewer than chunks"),
        ({"output_tokens": 65}, "more output tokens than max_tokens"),
    ],
)
def test_a_record_that_contradicts_itself(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    def changed(record: Record) -> Record:
        return replace(record, **change)

    found = lint_run(evident_run(tmp_path / "run", change=changed))
    assert any(says in one.what for one in found), found
    assert {one.level for one in found} == {"broken"}


def test_timings_longer_than_the_request(tmp_path: Path) -> None:
    run = evident_run(tmp_path / "run", change=told(queue=20.0, decode=900.0))
    assert "the server's timings are longer" in lint_run(run)[0].what


def test_a_server_that_held_more_than_we_sent_serves_others_too(tmp_path: Path) -> None:
    run = evident_run(tmp_path / "run", server={"running": 8, "waiting": 4})
    found = lint_run(run)
    assert [one.level for one in found] == ["doubtful"]
    assert "it serves others too" in found[0].what
