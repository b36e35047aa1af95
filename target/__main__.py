"""`python -m target serve` and `python -m target tiny-model`."""

import argparse
import os
import sys

from target.options import add_options

EXTRAS = {
    "fastapi": "serve",
    "httpx": "serve",
    "prometheus_client": "serve",
    "starlette": "serve",
    "uvicorn": "serve",
    "safetensors": "hf",
    "tokenizers": "hf",
    "torch": "hf",
    "transformers": "hf",
    "vllm": "vllm",
}


def arguments() -> argparse.ArgumentParser:
    """The two commands and their options."""
    parser = argparse.ArgumentParser(prog="python -m target", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("tiny-model", help="make the tiny model where it is not, print its folder")
    add_options(commands.add_parser("serve", help="the reference server", allow_abbrev=False))
    return parser


def main() -> int:
    """Exit status: 0 after a drain, 2 for usage or where it could not start, 3 where the engine
    died, 130 for Ctrl-C.
    """
    parser = arguments()
    args = parser.parse_args()
    try:
        if args.command == "tiny-model":
            from target.tiny_model import tiny_model

            sys.stdout.write(f"{tiny_model()}\n")
            return 0
        args.api_key = None
        if args.api_key_env is not None:
            args.api_key = os.environ.get(args.api_key_env)
            if not args.api_key:
                parser.error(f"--api-key-env: {args.api_key_env} is not set in the environment")
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
