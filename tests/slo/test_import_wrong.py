"""Files that are no result of the tool, or only a part of one: named, down to line and key."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slo.ending import UsageError
from slo.import_formats import read
from slo.import_run import write
from tests.slo.test_import import FOREIGN, aiperf, guidellm

AIPERF = "allowed: a line of AIPerf's profile_export.jsonl with metadata.request_start_ns, "


def refused(path: Path, tool: str | None = None) -> str:
    """The one line that a file is refused with, without the folder's name."""
    with pytest.raises(UsageError) as caught:
        read(path, tool, None)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value).replace(f"{path.parent}/", "")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("x.json", "{", "x.json: cut off or no JSON"),
        ("x.json", '{"a": 1,\n"b"', "x.json:2: cut off or no JSON"),
        ("x.json", "[" * 100_000, "x.json: is nested too deep"),
        ("x.json", "9" * 5000, "x.json: cannot be read as JSON: Exceeds the limit"),
        ("x.json", "[]", "is of no tool that is known here; name it with --from"),
        ("x.json", '{"request_throughput": 1}', "run vllm bench serve with --save-detailed"),
        ("x.json", '{"benchmarks": [{}]}',
         "x.json: benchmarks.0.requests: is missing; allowed: GuideLLM's JSON report with benchm"),
        ("x.json", '{"benchmarks": []}', "x.json: holds 0 benchmarks"),
        ("x.jsonl", "", "holds no request"),
        ("x.jsonl", "{}", f"x.jsonl:1: metadata: is missing; {AIPERF}"),
        ("x.jsonl", "5", f"x.jsonl:1: the whole: is no object; {AIPERF}"),
        ("x.jsonl", '{"metadata": 5}', f"x.jsonl:1: metadata: is no object; {AIPERF}"),
        ("x.jsonl", '{"metadata": {"request_start_ns": 1}}',
         f"x.jsonl:1: metadata.request_end_ns: is missing; {AIPERF}"),
        ("x_stats.csv", "Name\n", "x_stats.csv:1: column Request Count is missing; allowed: a row"),
        ("x.csv", "Name\n", "allowed: PREFIX_stats_history.csv or PREFIX_stats.csv"),
        ("none.json", None, "cannot be read: No such file"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_refused_in_one_line(
    tmp_path: Path, name: str, text: str | None, says: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    assert says in refused(tmp_path / name)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b"\xff\xfe")
    assert refused(tmp_path / "x.jsonl") == "x.jsonl: is no UTF-8 text"


def test_a_line_that_is_cut_off_or_another_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "profile_export.jsonl"
    rows = [json.dumps(aiperf(i, due=True)) for i in range(3)]
    path.write_text("\n".join(rows)[:-40])
    assert refused(path).startswith("profile_export.jsonl:3: cut off or no JSON")
    other = aiperf(1, due=True)
    other["metrics"]["request_latency"]["value"] = "soon"
    path.write_text("\n".join([rows[0], json.dumps(other)]))
    assert "profile_export.jsonl:2: metrics.request_latency.value" in refused(path)


Spoil = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda told: told.pop("itls"), "itls: is missing; allowed: `vllm bench serve"),
        (lambda told: told["itls"].pop(), "itls: has 24 entries; allowed: 25, one a start"),
        (lambda told: told["latencies"].pop(), "latencies: has 24 entries; allowed: 25"),
        (lambda told: told["ttfts"].append("x"), "ttfts.25: input should be a valid number"),
        (lambda told: told.update(errors=5), "errors: input should be a valid tuple, not 5"),
        (lambda told: told["ttfts"].__setitem__(0, -1.0), "-1 is no duration; allowed: 0 or more"),
        (lambda told: told["itls"][0].__setitem__(0, -2.0), "-2 is no duration"),
        (lambda told: told["ttfts"].__setitem__(0, float("nan")), "ttfts.0: input should be a fin"),
    ],
)
def test_a_column_of_vllm_that_is_missing_or_too_short_is_named(
    tmp_path: Path, spoil: Spoil, says: str
) -> None:
    told = json.loads((FOREIGN / "vllm.json").read_text())
    spoil(told)
    (tmp_path / "vllm.json").write_text(json.dumps(told))
    assert f"vllm.json: {says}" in refused(tmp_path / "vllm.json")


def test_a_request_of_guidellm_that_is_another_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "guidellm.json"
    told = guidellm(3)
    del told["benchmarks"][0]["requests"]["successful"][1]["info"]["timings"]
    path.write_text(json.dumps(told))
    place = "benchmarks.0.requests.successful.1.info.timings"
    assert refused(path).startswith(f"guidellm.json: {place}: is missing; allowed:")
    told = guidellm(3)
    told["benchmarks"][0]["requests"]["successful"][2]["info"]["timings"] = {}
    path.write_text(json.dumps(told))
    assert refused(path).startswith("guidellm.json: requests.successful.2: has no start; allowed:")


@pytest.mark.parametrize("ending", ["_stats", "_stats_history"])
def test_a_row_of_locust_that_is_cut_off_is_named(tmp_path: Path, ending: str) -> None:
    for name in ("locust_stats.csv", "locust_stats_history.csv"):
        shutil.copy(FOREIGN / name, tmp_path / name)
    spoilt = tmp_path / f"locust{ending}.csv"
    lines = spoilt.read_text().splitlines()
    spoilt.write_text("\n".join([*lines[:2], lines[2][:12]]))
    assert f"locust{ending}.csv:3: " in refused(tmp_path / "locust_stats.csv")
    spoilt.unlink()
    assert f"locust{ending}.csv: cannot be read" in refused(tmp_path / "locust_stats.csv")


@pytest.mark.parametrize("tool", ["vllm", "guidellm", "aiperf", "locust"])
@pytest.mark.parametrize("name", ["vllm.json", "locust_stats.csv"])
def test_what_another_tool_wrote_is_never_a_traceback(tool: str, name: str) -> None:
    if not name.startswith(tool):
        assert refused(FOREIGN / name, tool).startswith((name, "locust"))


def test_times_of_no_run_are_refused(tmp_path: Path) -> None:
    told = json.loads((FOREIGN / "vllm.json").read_text())
    told["start_times"][0] = 1e12
    (tmp_path / "v.json").write_text(json.dumps(told))
    with pytest.raises(UsageError, match=r"times span .* s; allowed: 10,000 h or less"):
        write(read(tmp_path / "v.json", "vllm", None), tmp_path / "run", 600.0)
    assert not (tmp_path / "run").exists()
