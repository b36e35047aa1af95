"""How a command ends that could not do its work: one line for a person, and an exit code."""

import os
import sys
import tempfile
import traceback
from typing import Any

from slo.drive import EXIT_INTERRUPTED, DriveError
from slo.rundir import RunDirError
from slo.slofile import SloFileError
from slo.target_probe import TargetError
from slo.verdict import EXIT_CODE, EXIT_INTERNAL, EXIT_USAGE, Result

EXIT_BROKEN_PIPE = 141  # as a shell counts it; never 1, which says that the SLO is missed

EXIT_CODES = """\b
Exit codes:
  0    PASS: every objective is met; or the run is complete
  1    FAIL: an objective is missed
  2    usage: bad arguments, a bad slo.yaml, a target that cannot be measured
  3    INCONCLUSIVE: neither can be said; it says how many more requests are needed
  4    INVALID: the run cannot be judged, or is not complete
  70   a fault of our own
  130  stopped by Ctrl-C or SIGTERM; what was measured until then is kept
  141  whoever read the output closed it
"""


class UsageError(Exception):
    """A mistake in what was asked for."""


def exit_code(error: BaseException, name: str, *, debug: bool) -> int:
    """Say what ended the command `name`, and return its exit code."""
    match error:
        case KeyboardInterrupt():
            return _say(name, "stopped", EXIT_INTERRUPTED)
        case BrokenPipeError():
            # Nobody reads on; the interpreter must not stumble over it once more as it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_BROKEN_PIPE
        case UsageError() | SloFileError() | TargetError():
            return _say(name, str(error), EXIT_USAGE)
        case DriveError():
            return _say(name, str(error), error.exit_code)
        case RunDirError():
            return _say(name, str(error), EXIT_CODE[Result.INVALID])
    if hasattr(error, "format_message"):  # typer's own; where its class lives differs by version
        return _say(name, _usage(error), EXIT_USAGE)
    return _fault(name, error, debug=debug)


def _say(name: str, text: str, code: int) -> int:
    for line in text.splitlines():
        # Part of it may be a server's words, which must not steer the terminal.
        shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line)
        sys.stderr.write(f"{name}: {shown}\n")
    return code


def _usage(error: Any) -> str:
    """One line: option, value, what is allowed."""
    parameter = getattr(error, "param", None)
    if parameter is not None and error.message:
        return f"{parameter.opts[-1]}: {error.message}"
    return str(error.format_message()).rstrip(".").replace("\n", " ")


def _fault(name: str, error: BaseException, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
        return EXIT_INTERNAL
    handle, path = tempfile.mkstemp(prefix="slo-fault-", suffix=".txt")
    with os.fdopen(handle, "w") as file:
        traceback.print_exception(error, file=file)
    first = next(iter(str(error).splitlines()), "")
    what = f"{type(error).__name__}: {first}"
    return _say(name, f"a fault of our own: {what}; traceback: {path}", EXIT_INTERNAL)
