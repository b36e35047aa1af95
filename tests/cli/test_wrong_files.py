"""Files that are no such thing: one line that names the file, never a word of Python's."""

from pathlib import Path

import pytest

from tests.cli.conftest import says_one_line, slo


@pytest.mark.parametrize("text", ["[" * 5000, "a: " + "{b: " * 3000, "- " * 2000 + "x"])
@pytest.mark.parametrize("command", [("validate",), ("import-openslo",), ("nightly", "--config")])
def test_yaml_that_is_nested_too_deep(tmp_path: Path, command: tuple[str, ...], text: str) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text(text)
    done = slo(*command, path, cwd=tmp_path)
    says_one_line(done, 2, f"{path}:1:1: cannot be read as YAML: it is nested too deep")
