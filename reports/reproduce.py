"""The commands that make and judge a run again."""

import re
import shlex
from collections.abc import Iterator, Mapping

from slo import arrival
from slo.rundir import Run


def commands(run: Run) -> tuple[str, str]:
    """`slo run` with this run's load, and `slo check` of its directory."""
    words = ["slo", "run", "--target", address(run)]
    if run.model:
        words += ["--model", run.model]
    process = _process(run.arrival)
    stretched = (run.options or {}).get("stretched")
    if process is None or not process.has_rate or stretched:
        words += ["--rate", f"{run.rate_per_s:g}/s"]
    words += ["--duration", f"{run.duration_s:g}s"]
    words += ["--warmup", f"{run.warmup_s:g}s", "--arrival", run.arrival]
    if run.mix and not (run.options or {}).get("prompts"):
        words += ["--mix", ",".join(f"{name}={part:g}" for name, part in run.mix.items())]
    if run.input_class and run.input_class != "mixed":
        words += ["--input-class", run.input_class]
    if run.ignore_eos:
        words += ["--ignore-eos"]
    words += _options(run.options or {})
    by_trace = process is not None and process.trace  # it says how long answers are
    for key in ("max_tokens", "min_tokens", "temperature", "top_p"):
        value = run.sampling.get(key)
        if value is not None and not (key == "max_tokens" and by_trace):
            words += [f"--{key.replace('_', '-')}", f"{value:g}"]
    words += ["--seed", str(run.seed), "--timeout", f"{run.timeout_s:g}s"]
    words += ["--max-in-flight", str(run.max_in_flight)]
    if len(run.workers) > 1:
        words += ["--workers", str(len(run.workers))]
    words += ["--slo", "slo.yaml"]
    return shlex.join(words), shlex.join(["slo", "check", f"runs/{run.id}", "--slo", "slo.yaml"])


def _process(text: str) -> arrival.Process | None:
    try:
        return arrival.parse(text)
    except ValueError:  # of a run that another tool made
        return None


def _options(options: Mapping[str, float | int | str | None]) -> Iterator[str]:
    usual = {"turns": 1, "think_s": 0.0, "shared_prefix": 0.0, "connections": "reused"}
    usual["stretched"] = options.get("stretched") or 0  # that is what --rate says
    if options.get("shared_by") == "trace":  # its hash_ids say so; there is nothing to repeat
        usual |= {name: options[name] for name in ("shared_prefix", "shared_by")}
    for name, value in options.items():
        if value is not None and value != usual.get(name):
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            flag, unit = ("think-time", "s") if name == "think_s" else (name.replace("_", "-"), "")
            yield from (f"--{flag}", f"{shown}{unit}")


def address(run: Run) -> str:
    """The target's URL without a password, if it holds one."""
    return re.sub(r"(?<=//)[^/@]*@", "***@", run.target_url)


def flat(values: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """Nested JSON as rows of a table: ("flags.attention", "sdpa")."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            rows += flat(value, f"{name}.")
        elif isinstance(value, list | tuple):
            rows.append((name, ", ".join(str(item) for item in value) or "none"))
        else:
            rows.append((name, _plain(value)))
    return rows


def _plain(value: object) -> str:
    if value is None or value == {}:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
