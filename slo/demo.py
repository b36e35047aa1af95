"""The demo: the bundled target, as a process of its own, and the load that it is asked to bear."""

import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from slo.children import child
from slo.drive import DriveError, Load
from slo.objectives import Slo
from slo.progress import Tail
from slo.slofile import load_slo
from slo.verdict import EXIT_INTERNAL, EXIT_USAGE

LOG = "target.log"
SLO = Path(__file__).with_name("demo_slo.yaml")
SEED = 1
TIMEOUT_S = 20.0
READY_S = 180.0  # the first start makes the tiny model and its tokenizer
POLL_S = 0.1
NEEDS = {"sim": {"fastapi": "serve"}, "hf": {"fastapi": "serve", "torch": "hf"}}

_READY = re.compile(rb"ready on (http://\S+)")


def require_extras(engine: str) -> None:
    """Say which extra is missing, before anything starts.

    Raises:
        DriveError: a package of the load engine or of the target's engine is not installed.
    """
    needs = {"locust": "load", **NEEDS[engine]}
    missing = [module for module in needs if importlib.util.find_spec(module) is None]
    if missing:
        extras = ",".join(dict.fromkeys(needs[module] for module in missing))
        other = ", or take --engine sim" if missing == ["torch"] else ""
        raise DriveError(
            f"not installed: {', '.join(missing)}; pip install 'tailgate[{extras}]'{other}"
        )


def objectives(duration_s: float | None) -> Slo:
    """The bundled slo.yaml; another duration is then also the one that it asks for."""
    slo = load_slo(SLO)
    if duration_s is None:
        return slo
    return replace(slo, load=replace(slo.load, duration_s=duration_s))


def load(url: str, slo: Slo) -> Load:
    """The load that the bundled slo.yaml asks for, the same in each demo."""
    wanted = asdict(slo.load)
    return Load(target=url, **wanted, seed=SEED, timeout_s=TIMEOUT_S, label="demo")


@contextmanager
def serving(engine: str, directory: Path, console: Console) -> Iterator[str]:
    """The bundled target, ready, as its URL; it ends with the block. Its log lies in `directory`.

    Raises:
        DriveError: it did not become ready.
    """
    argv = [sys.executable, "-u", "-m", "target", "serve", "--engine", engine, "--port", "0"]
    if engine == "hf":
        argv += ["--model", "tiny"]
    path = directory / LOG
    try:
        log = path.open("xb")
    except FileExistsError:
        raise DriveError(
            f"{path}: exists, of a demo that runs or ran there; name another --out"
        ) from None
    with log, child(argv, stdout=log) as target:
        console.print(f"starting the target: python {' '.join(argv[2:])}", highlight=False)
        yield _ready_url(target, path)


def _ready_url(target: "subprocess.Popen[bytes]", log: Path) -> str:
    tail = Tail(log)
    deadline = time.monotonic() + READY_S
    last = b"it said nothing"
    while time.monotonic() < deadline:
        code = target.poll()
        for line in tail.lines():
            last = line if line.strip() else last
            if found := _READY.search(line):
                return found[1].decode()
        if code is not None:
            told = last.decode(errors="replace")
            exit_code = EXIT_USAGE if code == EXIT_USAGE else EXIT_INTERNAL
            raise DriveError(f"the target ended with {code}: {told} ({log})", exit_code)
        time.sleep(POLL_S)
    raise DriveError(f"the target was not ready after {READY_S:g} s; {log}", EXIT_INTERNAL)
