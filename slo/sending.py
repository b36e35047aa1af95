"""How a load is sent and where its run goes: options that commands share, declared once."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from rich.console import Console

from slo import drive
from slo import options as o

# Options that the load takes under another name, and those that are none of its own.
_OTHERWISE = {"timeout": "timeout_s", "think_time": "think_s"}
_OF_THE_RUN = ("ready_timeout", "sidecar", "out", "force")

Command = Callable[..., int]


@dataclass(frozen=True, slots=True)
class Sending:
    """Each field is an option; what is sent, at which rate and how long, is not among them."""

    model: o.Model = None
    shared_prefix: o.SharedPrefix = None
    prompts: o.Prompts = None
    turns: o.Turns = None
    think_time: o.ThinkTime = None
    min_tokens: o.MinTokens = None
    temperature: o.Temperature = None
    top_p: o.TopP = None
    ignore_eos: o.IgnoreEos = False
    reasoning: o.Reasoning = None
    tokenizer: o.Tokenizer = None
    seed: o.Seed = None
    workers: o.Workers = 1
    expect_workers: o.ExpectWorkers = None
    worker_port: o.WorkerPort = 5557
    timeout: o.Timeout = None
    connections: o.Connections = None
    receive_clock: o.ReceiveClock = None
    max_in_flight: o.MaxInFlight = None
    max_requests: o.MaxRequests = None
    max_total_tokens: o.MaxTotalTokens = None
    api_key_env: o.ApiKeyEnv = None
    ready_timeout: o.ReadyTimeout = "60s"  # type: ignore[assignment]  # typer parses it
    sidecar: o.Sidecar = "local"
    label: o.Label = None
    out: o.Out = None
    store_answers: o.StoreAnswers = False
    force: o.Force = False

    def load(self, target: str, what: dict[str, Any]) -> drive.Load:
        """The whole load; `what` is what `options.filled_in` gives."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        of_load = {_OTHERWISE.get(k, k): v for k, v in given.items() if k not in _OF_THE_RUN}
        return drive.Load(target=target, **what, **of_load)

    def send(self, load: drive.Load, console: Console, until: drive.Until = None) -> drive.Ended:
        """Send it; see `drive.run`."""
        return drive.run(
            load,
            self.out,
            force=self.force,
            ready_timeout_s=self.ready_timeout,
            gpu=self.sidecar,
            console=console,
            until=until,
        )


def with_its_options(command: Command) -> Command:
    """A command with the options of `Sending` in the place of its parameter `sending`."""
    own = inspect.signature(command).parameters.values()
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
        )
        for field in fields(Sending)
    ]
    parameters: list[inspect.Parameter] = []
    for one in own:
        spread = shared if one.name == "sending" else [one.replace(kind=one.KEYWORD_ONLY)]
        parameters += spread

    def with_options(**given: Any) -> int:
        sending = Sending(**{field.name: given.pop(field.name) for field in fields(Sending)})
        return command(**given, sending=sending)

    with_options.__doc__ = command.__doc__
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return with_options
