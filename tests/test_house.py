"""The house rules: who may import whom, and how long a file or a function may be."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("target", "loadtests", "slo", "reports")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

OURS = {
    "target": (),
    "loadtests": (
        "slo.arrival",
        "slo.record",
        "slo.rundir",
        "slo.histograms",
        "slo.quantities",
        "slo.input_lengths",
    ),
    "slo": ("slo",),
    "reports": ("slo",),
}
OURS_IN_FILE = {
    "target/nvml_sidecar.py": ("slo.rundir",),
    "slo/capacity_cli.py": ("slo", "reports"),
    "slo/check_cli.py": ("slo", "reports"),
    "slo/cli_evidence.py": ("slo", "reports"),
    "slo/compare_cli.py": ("slo", "reports"),
    "slo/nightly_cli.py": ("slo", "reports"),
}
NEVER_IN_SLO = {"locust", "torch", "fastapi", "pynvml", "gevent", "transformers"}
LAZY = {"torch", "transformers", "vllm", "pynvml"}


def imports(path: Path, *, top_level_only: bool = False) -> Iterator[str]:
    """Names of all modules that a file imports."""
    tree = ast.parse(path.read_text())
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name: str, allowed: tuple[str, ...]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in allowed)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_what_its_folder_may(path: Path) -> None:
    relative = path.relative_to(ROOT)
    package = relative.parts[0]
    allowed = (package, *OURS[package], *OURS_IN_FILE.get(str(relative), ()))
    for name in imports(path):
        if name.split(".")[0] in PACKAGES:
            assert within(name, allowed), f"{relative} imports {name}"
        if package in ("slo", "reports"):
            assert name.split(".")[0] not in NEVER_IN_SLO, f"{relative} imports {name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_heavy_packages_are_imported_lazily(path: Path) -> None:
    eager = {name.split(".")[0] for name in imports(path, top_level_only=True)}
    assert not eager & LAZY


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            assert length <= 60, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_class_has_a_parent_of_ours(path: Path) -> None:
    """Where a function serves, no hierarchy: exceptions, enums and library bases apart, and the
    fields that both of OpenAI's request bodies have."""
    tree = ast.parse(path.read_text())
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    own = {node.name for node in classes if not node.name.endswith("Error")}
    own -= {"CommonFields"}
    for node in classes:
        assert not own & {base.id for base in node.bases if isinstance(base, ast.Name)}


def test_judging_needs_neither_locust_nor_a_gpu_package() -> None:
    code = (
        "import sys, slo.cli; "
        "print(sorted({m.split('.')[0] for m in sys.modules}"
        " & {'locust', 'gevent', 'torch', 'transformers', 'fastapi', 'pynvml', 'vllm'}))"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"
