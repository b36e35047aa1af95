"""Where the command `slo` starts: Ctrl-C ends it in a line, also while it is still loading."""

import os
import signal
import sys

EXIT_INTERRUPTED = 130


def main() -> int:
    """Load the command, and run it."""
    # An exception would have to pass through whatever is being imported just then.
    signal.signal(signal.SIGINT, _stop)
    for name in ("stdout", "stderr"):  # closed by who started us: then nobody listens there
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    from slo import cli

    code = cli.main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is said: that is how it ends
    return code


def _stop(number: int, frame: object) -> None:
    os.write(2, b"slo: stopped\n")
    os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
