"""server.jsonl: what the target said of itself during the run, on the run's time axis."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from slo.rundir import RunDirError, read_lines, refuse_unknown_schema, validated

SCHEMA = "1.0"


@dataclass(frozen=True, slots=True)
class ServerSample:
    """One look at the target's /metrics. None: it does not offer that."""

    at_s: float  # from the run's start
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None  # share of the KV cache in use, 0 to 1
    preemptions: float | None = None  # so far; SGLang: retracted at this moment
    prompt_tokens: float | None = None  # so far
    output_tokens: float | None = None  # so far
    flops: float | None = None  # of one GPU so far, as the server estimates
    read_bytes: float | None = None  # likewise
    write_bytes: float | None = None  # likewise
    allocated_mib: float | None = None  # by tensors
    reserved_mib: float | None = None  # by the allocator, from the driver
    cpu_s: float | None = None  # of the server's process so far


@dataclass(frozen=True, slots=True)
class ServerLog:
    """The target's own metrics; `unavailable` says in words why there are none."""

    unavailable: str | None
    kind: str | None = None  # vllm, sglang, tailgate
    samples: tuple[ServerSample, ...] = ()
    errors: tuple[str, ...] = ()


_SAMPLE = TypeAdapter(ServerSample)


def read_server_log(path: Path, *, t0_mono_ns: int) -> ServerLog:
    """Read server.jsonl; a missing file, or one without samples, is a log that is unavailable.

    Raises:
        RunDirError: an unknown schema, or a line that is none of the log's; names file and line.
    """
    if not path.exists():
        return ServerLog("the target's /metrics were not sampled")
    kind: str | None = None
    why: str | None = "the log has no header"
    errors: list[str] = []
    samples: list[ServerSample] = []
    for number, line in enumerate(read_lines(path), 1):
        where = f"{path}:{number}"
        if not isinstance(line, dict):
            raise RunDirError(f"{where}: a line of the log is an object, not {line!r:.80}")
        if line.get("type") == "header":
            refuse_unknown_schema(path, line, SCHEMA)
            kind, why = line.get("kind"), line.get("unavailable")
        elif line.get("type") == "event":
            errors.append(str(line.get("error")))
        elif line.get("type") == "sample":
            samples.append(_sample(where, line, t0_mono_ns))
    if not samples and why is None:
        why = errors[0] if errors else "no sample was written"
    return ServerLog(None if samples else why, kind, tuple(samples), tuple(errors))


def _sample(where: str, line: dict[str, object], t0_mono_ns: int) -> ServerSample:
    stamp = line.get("t_mono_ns")
    if not isinstance(stamp, int):
        raise RunDirError(f"{where}: t_mono_ns is missing or no number")
    return validated(_SAMPLE, {**line, "at_s": (stamp - t0_mono_ns) / 1e9}, where)
