"""The container files, as far as a machine without a container engine can look at them."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from target.__main__ import arguments
from tests.serving import ROOT

DEPLOY = ROOT / "target" / "deploy"
Instruction = tuple[str, str]


def instructions(path: Path) -> list[Instruction]:
    """The Dockerfile's instructions, with continued lines joined and comments left out."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


@pytest.fixture(scope="module")
def dockerfile() -> list[Instruction]:
    return instructions(DEPLOY / "Dockerfile")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    told: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    service: dict[str, Any] = told["services"]["target"]
    return service


def of(dockerfile: list[Instruction], name: str) -> list[str]:
    return [rest for word, rest in dockerfile if word == name]


def test_the_image_is_slim_pinned_and_not_run_by_root(dockerfile: list[Instruction]) -> None:
    """hadolint's DL3006, DL3007, DL3002, DL3000 and DL3042."""
    [base] = of(dockerfile, "FROM")
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", base)
    names = [name for name, _ in dockerfile]
    assert of(dockerfile, "USER")[-1] == "tailgate"
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert all(place.startswith("/") for place in of(dockerfile, "WORKDIR"))
    assert "PIP_NO_CACHE_DIR=1" in " ".join(of(dockerfile, "ENV"))


def test_nothing_is_fetched_by_hand_and_no_shell_stands_before_the_server(
    dockerfile: list[Instruction],
) -> None:
    """DL3020, DL3025, DL3004, DL4001: COPY for ADD, exec form, no sudo, curl or wget."""
    assert not of(dockerfile, "ADD")
    assert all(
        rest.startswith("[") for name in ("ENTRYPOINT", "CMD") for rest in of(dockerfile, name)
    )
    assert not re.search(r"\b(sudo|curl|wget|apt-get)\b", " ".join(of(dockerfile, "RUN")))
    known = {"FROM", "ARG", "ENV", "RUN", "WORKDIR", "COPY", "USER", "VOLUME", "EXPOSE",
             "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT", "CMD"}  # fmt: skip
    assert {name for name, _ in dockerfile} <= known


def test_every_copied_path_is_there_and_not_ignored(dockerfile: list[Instruction]) -> None:
    kept = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    }
    for rest in of(dockerfile, "COPY"):
        for source in shlex.split(rest)[:-1]:
            assert (ROOT / source).exists(), source
            assert source in kept


def test_the_servers_command_is_one_that_the_server_takes(dockerfile: list[Instruction]) -> None:
    [entry], [command] = of(dockerfile, "ENTRYPOINT"), of(dockerfile, "CMD")
    words = [*yaml.safe_load(entry), *yaml.safe_load(command)]
    assert words[:3] == ["python", "-m", "target"]
    args = arguments().parse_args(words[3:])
    assert (args.host, args.port) == ("0.0.0.0", int(of(dockerfile, "EXPOSE")[0]))


def test_the_extra_that_is_installed_exists(dockerfile: list[Instruction]) -> None:
    project = (ROOT / "pyproject.toml").read_text()
    default = next(rest for rest in of(dockerfile, "ARG")).partition("=")[2]
    assert re.search(rf"^{default} = \[", project, re.MULTILINE)


def test_the_health_check_fails_where_nothing_listens(dockerfile: list[Instruction]) -> None:
    [check] = of(dockerfile, "HEALTHCHECK")
    command = yaml.safe_load(check.partition("CMD ")[2])
    command[0] = sys.executable
    command[2] = command[2].replace(":8000", ":9")
    assert subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode != 0


def test_compose_gives_one_gpu_and_waits_for_the_drain(compose: dict[str, Any]) -> None:
    [device] = compose["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", 1, ["gpu"])
    drain = arguments().parse_args(["serve"]).drain_timeout
    assert int(compose["stop_grace_period"].removesuffix("s")) > drain
    place = (DEPLOY / compose["build"]["context"]).resolve()
    assert (place / compose["build"]["dockerfile"]).samefile(DEPLOY / "Dockerfile")
    assert compose["ports"][0].startswith("127.0.0.1:")


def test_composes_command_is_one_that_the_server_takes(compose: dict[str, Any]) -> None:
    words = shlex.split(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", compose["command"]))
    args = arguments().parse_args(["serve", *words])
    assert (args.engine, args.mode, args.model) == ("hf", None, "tiny")


def test_the_same_commands_run_from_the_copied_files_alone(
    dockerfile: list[Instruction], tmp_path: Path
) -> None:
    """What COPY brings is all that the server needs, as another user's empty home."""
    for rest in of(dockerfile, "COPY"):
        *sources, place = shlex.split(rest)
        for source in sources:
            to = tmp_path / place if not place.endswith("./") else tmp_path / source
            subprocess.run(["cp", "-r", str(ROOT / source), str(to)], check=True)
    env = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-m", "target", "serve", "--help"],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "--max-num-seqs" in ended.stdout
