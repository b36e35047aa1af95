"""The load as options, in two groups: what is sent, and how it is sent and where its run goes."""

import math
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from slo import arrival as arrival_process
from slo import drive, input_lengths, quantities, rundir
from slo import options as o
from slo.ending import UsageError
from slo.objectives import Load

# Each worker is a process of about 100 MB, and each arrival is planned in memory and on disk: more
# than these is a slip of the finger that would take the machine with it.
MOST_WORKERS = max(16, 4 * (os.cpu_count() or 1))
MOST_ARRIVALS = 10_000_000

_OF_THE_RUN = ("ready_timeout_s", "gpu", "out", "force")  # and not of the load


def _arrival(text: str) -> str:
    arrival_process.parse(text)
    return text


def _sidecar(text: str) -> str:
    if text not in ("local", "off") and not text.startswith(("http://", "https://")):
        raise ValueError(f"{text!r} is no sidecar; allowed: local, off, http://HOST:PORT")
    return text.rstrip("/")


@dataclass(frozen=True, slots=True)
class What:
    """What is sent, as far as it is said: the options that slo.yaml's load fills in."""

    rate_per_s: o.Rate = None
    duration_s: o.Duration = None
    warmup_s: Annotated[
        float | None,
        o.option(
            "TIME", quantities.duration_s, "Load before it, not judged. Default: 5s.", "--warmup"
        ),
    ] = None
    arrival: Annotated[
        str | None,
        o.option("PROCESS", _arrival, f"Default: poisson. Allowed: {arrival_process.FORMS}."),
    ] = None
    mix: Annotated[
        dict[str, float] | None,
        o.option("MIX", quantities.mix, "Shares; default: math=0.6,code=0.4."),
    ] = None
    input_class: Annotated[
        str | None,
        o.option(
            "TOKENS",
            input_lengths.parse,
            "Of prompts: 128, 512, 896, mixed (the default: these three), or 2000, or 200-4000.",
        ),
    ] = None
    max_tokens: Annotated[int | None, o.count("Longest answer. Default: 256.")] = None

    def filled_in(self, wanted: Load) -> dict[str, Any]:
        """What was asked for, and for the rest what slo.yaml says of its load.

        Raises:
            UsageError: neither says the rate, or the duration; or they make too much to be planned.
        """
        values = asdict(wanted) | self._said()
        process = arrival_process.parse(values["arrival"] or "poisson")
        if process.has_rate:
            values["rate_per_s"] = self.rate_per_s  # the process says how much is sent
            needed = [("duration_s", "duration")]
        else:
            needed = [("rate_per_s", "rate"), ("duration_s", "duration")]
        for name, flag in needed:
            if values[name] is None:
                raise UsageError(f"--{flag} is missing; give it, or a --slo file with load: {flag}")
        if not (process.closed or process.trace):
            rate, warmup_s = values["rate_per_s"] or 0.0, values["warmup_s"] or 0.0
            _bounded(process.segments(rate, warmup_s, values["duration_s"]))
        return values

    def for_probes(self, wanted: Load) -> dict[str, Any]:
        """The same for a search, whose probes have a rate, a duration and a warm-up each."""
        each = {"rate_per_s": 1.0, "duration_s": 1.0, "warmup_s": None}
        return asdict(wanted) | self._said() | each

    def _said(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def _bounded(segments: tuple[arrival_process.Segment, ...]) -> None:
    count = arrival_process.expected(segments, math.inf)
    if count > MOST_ARRIVALS:
        much = f"this rate for so long is {count:.3g} requests"
        raise UsageError(f"--rate, --duration: {much}; allowed: {MOST_ARRIVALS:,} in a run")


@dataclass(frozen=True, slots=True)
class Sending:
    """How it is sent, and where its run goes."""

    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Default: the first of the target's /v1/models."),
    ] = None
    shared_prefix: Annotated[
        float | None,
        o.option("SHARE", quantities.part, "So much of each prompt is the same: 50%. Default: 0%."),
    ] = None
    prompts: Annotated[
        Path | None, o.file("Your own prompts: .jsonl, .csv, or ShareGPT's .json.")
    ] = None
    turns: Annotated[
        int | None, o.count("Of a session; an arrival is a session's start. Default: 1.")
    ] = None
    think_s: Annotated[
        float | None,
        o.option(
            "TIME", quantities.duration_s, "From one turn's end to the next one.", "--think-time"
        ),
    ] = None
    min_tokens: Annotated[
        int | None, o.count("Shortest answer, where the target knows min_tokens.")
    ] = None
    temperature: Annotated[
        float | None, o.option("X", o.number(float, 0, 2), "Default: the target's own.")
    ] = None
    top_p: Annotated[
        float | None, o.option("X", o.number(float, 0, 1), "Default: the target's own.")
    ] = None
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Ask for exactly --max-tokens tokens.")
    ] = False
    reasoning: Annotated[
        str | None,
        o.option(
            "MODE",
            o.one_of("auto", "tag", "prompt-opened", "field", "none"),
            "auto (the default: asked once), tag, prompt-opened, field, none.",
        ),
    ] = None
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="PATH_OR_ID", help="Counts the tokens of answers, beside their usage."
        ),
    ] = None
    seed: Annotated[
        int | None,
        o.option("N", o.number(int, 0), "Of schedule and prompts. Default: drawn, and kept."),
    ] = None
    workers: Annotated[int, o.option("N", o.number(int, 1, MOST_WORKERS), "Load processes.")] = 1
    expect_workers: Annotated[
        int | None, o.count("Load from so many `locust --worker` of any machine instead.")
    ] = None
    worker_port: Annotated[
        int | None,
        o.option("PORT", o.number(int, 1, 65535), "Where those workers join. Default: 5557."),
    ] = None
    timeout_s: o.Timeout = None
    connections: Annotated[
        str | None,
        o.option(
            "HOW", o.one_of("reused", "fresh"), "reused (the default), or fresh: one each request."
        ),
    ] = None
    receive_clock: Annotated[
        str | None,
        o.option("WHOSE", o.one_of("kernel", "process"), "Who stamps what comes. Default: kernel."),
    ] = None
    max_in_flight: Annotated[
        int | None, o.count("Open requests, at most. Default: rate x timeout.")
    ] = None
    max_requests: Annotated[int | None, o.count("Ceiling for paid endpoints.")] = None
    max_total_tokens: Annotated[int | None, o.count("Ceiling for paid endpoints.")] = None
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable that holds the API key."),
    ] = None
    ready_timeout_s: Annotated[
        float, o.time("How long to wait for the target.", "--ready-timeout")
    ] = "60s"  # type: ignore[assignment]  # typer parses it
    gpu: Annotated[
        str, o.option("URL|local|off", _sidecar, "Where GPU samples come from.", "--sidecar")
    ] = "local"
    label: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="A word for the run, also in its default --out."),
    ] = None
    out: o.Out = None
    store_answers: Annotated[
        bool, typer.Option("--store-answers", help="Keep texts: answers.jsonl.")
    ] = False
    force: Annotated[bool, typer.Option("--force", help="Overwrite the run that --out holds.")] = (
        False
    )

    def load(self, target: str, sent: dict[str, Any], label: str | None = None) -> drive.Load:
        """The whole load; `sent` is a `What`'s, `label` stands where none was asked for.

        Raises:
            UsageError: processes of ours and workers of other machines are both asked for.
        """
        if self.expect_workers is None and self.worker_port is not None:
            raise UsageError("--worker-port: nothing joins there; say --expect-workers N too")
        if self.expect_workers is not None and self.workers > 1:
            raise UsageError("--workers: all load comes from --expect-workers; leave one away")
        of_load = {name: value for name, value in asdict(self).items() if name not in _OF_THE_RUN}
        return drive.Load(target=target, **sent, **of_load | {"label": self.label or label})

    def folder(self, what: str) -> Path:
        """Where all of a command lies, which `what` names."""
        return self.out or rundir.default_directory(what, datetime.now(UTC))

    def send(self, load: drive.Load, console: Console, until: drive.Until = None) -> drive.Ended:
        """Send it; see `drive.run`."""
        return drive.run(
            load,
            self.out,
            force=self.force,
            ready_timeout_s=self.ready_timeout_s,
            gpu=self.gpu,
            console=console,
            until=until,
        )
