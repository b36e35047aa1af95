"""Servers that several tests share."""

from collections.abc import Iterator

import pytest

from tests.serving import running_target


@pytest.fixture(scope="session")
def sim() -> Iterator[str]:
    """A fast simulated target."""
    with running_target("--engine", "sim", "--ttft-ms", "5", "--itl-ms", "1") as url:
        yield url


@pytest.fixture(scope="session")
def tiny_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cache of this test session's own for the tiny model."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("cache"))
        patch.setenv("TAILGATE_CACHE", folder)
        yield folder


@pytest.fixture(scope="session")
def tiny(tiny_cache: str) -> Iterator[str]:
    """The tiny model behind the plain engine."""
    with running_target("--engine", "hf", "--model", "tiny", "--device", "cpu") as url:
        yield url
