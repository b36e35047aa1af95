from pathlib import Path

import pytest

from tests.sidecar.running import TWO_GPUS, compile_driver


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled fake driver."""
    return compile_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """What the fake driver's two GPUs say; a test may change it."""
    path = tmp_path / "script.txt"
    path.write_text(TWO_GPUS)
    return path


@pytest.fixture
def fake_driver(library: Path, script: Path) -> dict[str, str]:
    """The environment in which the fake driver is found."""
    return {"LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(script)}
