"""docs/slo.schema.json: the published schema takes what we take."""

import json
from pathlib import Path

import jsonschema
import yaml

from slo.slo_schema import json_schema_text
from slo.slofile import json_schema
from tests.slo.slo_texts import GOOD, objective

ROOT = Path(__file__).parent.parent.parent


def test_the_published_schema_is_up_to_date() -> None:
    """If not: python -c "from slo.slo_schema import *; print(json_schema_text(), end='')"."""
    published = (ROOT / "docs" / "slo.schema.json").read_text(encoding="utf-8")
    assert published == json_schema_text()


def test_the_schema_takes_what_we_take_and_refuses_what_we_refuse() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    validator.check_schema(json_schema())
    assert validator.is_valid(yaml.safe_load(GOOD))
    for line in (
        "metric: p95, max: 1s",
        "metric: ttft, max: 1s",
        "metric: ttft, percentile: 95, min: 1s",
        "metric: error_rate, percentile: 95, max: 1%",
        "metric: achieved_rate, max: 99%",
        "metric: error_rate, max: 1%, severity: gat",
        "metric: error_rate, max: 1%, colour: red",
        "metric: goodput, min: 90%",
        "metric: accuracy, max: 90%",
        "metric: e2e, percentile: 95, max_change: +5%, max: 1s",
        "metric: gpu_power_mean",
        "metric: error_rate, max_change: +5%",
    ):
        assert not validator.is_valid(yaml.safe_load(objective(line))), line


def test_the_schema_completes_every_metric() -> None:
    schema = json.loads(json_schema_text())
    metrics = schema["$defs"]["ObjectiveText"]["properties"]["metric"]["enum"]
    assert {"ttft", "ttfat", "itl", "tpot", "e2e", "error_rate"} <= set(metrics)
