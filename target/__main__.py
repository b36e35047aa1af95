"""`python -m target serve` and `python -m target tiny-model`."""

import argparse
import sys
from collections.abc import Callable

EXTRAS = {
    "fastapi": "serve",
    "prometheus_client": "serve",
    "starlette": "serve",
    "uvicorn": "serve",
    "safetensors": "hf",
    "tokenizers": "hf",
    "torch": "hf",
    "transformers": "hf",
}


def count(least: int) -> Callable[[str], int]:
    """An option's type: a whole number of at least `least`."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    return number


def amount(text: str) -> float:
    """An option's type: a finite number that is not negative."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 on")
    return value


def arguments() -> argparse.ArgumentParser:
    """The two commands and their options."""
    parser = argparse.ArgumentParser(prog="python -m target", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("tiny-model", help="make the tiny model where it is not, print its folder")
    serve = commands.add_parser("serve", help="the reference server", allow_abbrev=False)
    add = serve.add_argument
    add(
        "--engine",
        choices=("sim", "hf"),
        default="hf",
        help="sim: no model, tokens at set times (default: %(default)s)",
    )
    add("--model", help="hf: tiny (default), a folder or a hub id; sim: a name")
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add(
        "--port",
        type=count(0),
        default=8000,
        help="0: a free one, named in the ready line (default: %(default)s)",
    )
    add(
        "--reasoning",
        choices=("tag", "prompt-opened", "field", "none"),
        default="tag",
        help="tag: <think>...</think> in the content; prompt-opened: only </think> is sent; "
        "field: as reasoning_content; none: the model is asked not to reason "
        "(default: %(default)s)",
    )
    add(
        "--think-tokens",
        type=count(1),
        help="close the reasoning after so many tokens, or half of max_tokens if that is less "
        "(default: 32 for sim and tiny, never for a real model)",
    )
    add("--max-running", type=count(1), help="requests computed at once (default: sim 8, hf 1)")
    add(
        "--max-queue",
        type=count(0),
        default=256,
        help="more requests that may wait; then 503 (default: %(default)s)",
    )
    add(
        "--drain-timeout",
        type=amount,
        default=30.0,
        help="seconds for running ones at SIGTERM (default: %(default)s)",
    )
    add(
        "--seed",
        type=int,
        default=0,
        help="of all that is drawn, where a request has none (default: %(default)s)",
    )
    add_engine_options(serve)
    return parser


def add_engine_options(serve: argparse.ArgumentParser) -> None:
    """The options that belong to one engine each."""
    sim = serve.add_argument_group("sim")
    sim.add_argument(
        "--ttft-ms",
        type=amount,
        default=50.0,
        help="(median) time to first token (default: %(default)s)",
    )
    sim.add_argument(
        "--itl-ms",
        type=amount,
        default=10.0,
        help="(median) time between tokens (default: %(default)s)",
    )
    sim.add_argument("--ttft-sigma", type=amount, default=0.0, help="above 0: log-normal")
    sim.add_argument("--itl-sigma", type=amount, default=0.0, help="above 0: log-normal")
    hf = serve.add_argument_group("hf")
    hf.add_argument("--device", help="cpu, cuda or cuda:N (default: cuda where there is one)")
    hf.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        help="(default: float32 on cpu, bfloat16 on cuda)",
    )
    hf.add_argument(
        "--threads", type=count(1), default=1, help="of torch, on cpu (default: %(default)s)"
    )


def main() -> int:
    """Exit status: 0 after a drain, 2 for usage or where it could not start, 130 for Ctrl-C."""
    args = arguments().parse_args()
    try:
        if args.command == "tiny-model":
            from target.tiny_model import tiny_model

            sys.stdout.write(f"{tiny_model()}\n")
            return 0
        from target.serve import serve

        return serve(args)
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package not in EXTRAS:
            raise
        install = f"pip install 'tailgate[{EXTRAS[package]}]'"
        sys.stderr.write(f"target: {package} is not installed; {install}\n")
        return 2
    except KeyboardInterrupt:  # while it was loading
        return 130


if __name__ == "__main__":
    sys.exit(main())
