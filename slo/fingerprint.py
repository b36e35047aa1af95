"""What a result depends on beside the code under test: the target, its GPU, both hosts, ours."""

import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from slo.target_probe import info

# Of /info: what is new with each start says nothing.
_PASSING = ("process_start_wall_ns", "pid", "startup", "uptime_s", "load_s")
_PACKAGES = ("tailgate", "locust", "gevent", "numpy")


def fingerprint(target: str, api_key_env: str | None = None) -> dict[str, Any]:
    """The environment as flat keys and plain values; what cannot be told is left out."""
    told = info(target, key=os.environ.get(api_key_env or ""))
    facts: dict[str, Any] = {}
    for key, value in told.items():
        if key not in _PASSING:
            facts.update(_flat(f"target.{key}", value))
    facts.update(client())
    return facts


def client() -> dict[str, Any]:
    """This machine's part."""
    facts: dict[str, Any] = {
        "client.python": platform.python_version(),
        "client.kernel": platform.release(),
        "client.machine": platform.machine(),
        "client.cpus": os.cpu_count(),
    }
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            facts[f"client.{name}"] = version(name)
    with suppress(OSError, subprocess.SubprocessError):
        facts["client.git"] = _git_sha()
    return facts


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two fingerprints, in words: "target.versions.vllm: 0.30.0 -> 0.31.0"."""
    lines = []
    for key in sorted({*before, *after}):
        old, new = before.get(key, "absent"), after.get(key, "absent")
        if old != new:
            lines.append(f"{key}: {old} -> {new}")
    return lines


def _flat(name: str, value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        parts = [_flat(f"{name}.{key}", one) for key, one in value.items()]
        return {key: one for part in parts for key, one in part.items()}
    return {name: value if isinstance(value, str | int | float | bool) else str(value)}


def _git_sha() -> str:
    here = Path(__file__).parent
    told = subprocess.run(
        ["git", "-C", str(here), "rev-parse", "HEAD"],
        capture_output=True, text=True, timeout=5, check=True,
    )  # fmt: skip
    return told.stdout.strip()
