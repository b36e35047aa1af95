"""What the docs show is understood, and the published schemas and tables are those of the code."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from slo import calibration
from slo.judge import judge
from slo.objectives import METRICS
from slo.record import Failure
from slo.resources import RESOURCE_METRICS, RESOURCES
from slo.slo_schema import KEYS, json_schema
from slo.slofile import load_slo, parse_slo
from slo.verdict_file import json_schema_text, write_verdict
from tests.slo import spoil
from tests.slo.make_run import make_run, shuffled

DOCS = Path(__file__).parent.parent.parent / "docs"
REFERENCE = (DOCS / "slo-yaml.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", REFERENCE, re.DOTALL)


def test_every_example_is_understood(tmp_path: Path) -> None:
    assert len(EXAMPLES) == 3
    (tmp_path / "slo.yaml").write_text(EXAMPLES[0])
    validator = jsonschema.Draft202012Validator(json_schema())
    for i, text in enumerate(EXAMPLES):
        path = tmp_path / f"example{i}.yaml"
        path.write_text(text)
        assert load_slo(path).objectives
        assert validator.is_valid(yaml.safe_load(text))
    assert load_slo(tmp_path / "example2.yaml").load.duration_s == 300.0


def test_the_reference_names_every_key_and_every_metric() -> None:
    for place in KEYS.values():
        for key in place:
            assert f"`{key}" in REFERENCE, key
    for metric in METRICS:
        if metric not in RESOURCE_METRICS:
            assert f"`{metric}`" in REFERENCE, metric
    for resource in RESOURCES:
        assert f"`{resource}_*`" in REFERENCE, resource


def test_the_files_for_kubernetes_hold_a_good_slo_yaml() -> None:
    config, job = yaml.safe_load_all((DOCS / "ci" / "kubernetes-job.yaml").read_text())
    assert len(parse_slo(config["data"]["slo.yaml"]).objectives) == 3
    assert job["spec"]["backoffLimit"] == 0


def test_the_published_verdict_schema_is_up_to_date() -> None:
    """If not: python -c "from slo.verdict_file import *; print(json_schema_text(), end='')"."""
    assert (DOCS / "verdict.schema.json").read_text() == json_schema_text()


@pytest.mark.parametrize("kind", ["pass", "fail", "invalid"])
def test_verdicts_are_what_the_published_schema_says(tmp_path: Path, kind: str) -> None:
    failures = dict.fromkeys(range(0, 300, 2), Failure.REFUSED) if kind == "fail" else {}
    run = make_run(tmp_path / "run", shuffled([0.1 + i / 3000 for i in range(300)]),
                   failures=failures)  # fmt: skip
    if kind == "invalid":
        spoil.in_run(finished=False)(run)
    slo = parse_slo("version: 1\nservice: s\nobjectives: [{metric: ttft, percentile: 95, max: 1s}]")
    write_verdict(run, judge(run, slo))
    document = json.loads((run / "verdict.json").read_text())
    validator = jsonschema.Draft202012Validator(
        json.loads((DOCS / "verdict.schema.json").read_text())
    )
    assert [error.message for error in validator.iter_errors(document)] == []
    assert document["result"].lower() == kind
    assert not validator.is_valid(document | {"result": "MAYBE"})


def test_a_verdict_says_how_often_such_a_one_was_wrong(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", shuffled([0.1 + i / 3000 for i in range(300)]))
    slo = parse_slo("version: 1\nservice: s\nobjectives: [{metric: ttft, percentile: 95, max: 1s}]")
    verdict = judge(run, slo)
    (worth,) = [row.effective_n for row in verdict.rows]
    assert worth is not None
    said = calibration.in_words("ttft p95", worth)
    assert said is not None
    assert said in verdict.notes
    assert "effective requests. With so many, of" in said


def test_the_published_calibration_keeps_what_it_promises() -> None:
    text = (DOCS / "calibration.md").read_text()
    goals = json.loads(re.findall(r": (\{\"false_pass_max.*\})", text)[0])
    assert goals["false_pass_max"] <= 0.05
    assert goals["power_share_min"] >= 0.6
    for line in json.loads((DOCS.parent / "slo" / "calibration.json").read_text()):
        assert f"| {line['runs']:,} | {line['false_pass']:.3f} |" in text
