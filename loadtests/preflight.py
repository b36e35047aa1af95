"""Before a run: does the target answer as the API does, and how does it mark reasoning?"""

import http.client
import json
from dataclasses import dataclass, replace
from typing import Any

from loadtests.answer import read_answer
from loadtests.chat_request import head, origin, request
from loadtests.own_prompts import own_prompts
from loadtests.plan import AUTO, Plan
from loadtests.prompts import prompt, prompt_id
from loadtests.reasoning import MODES, mode_seen
from loadtests.stream import converse

LOOK_S = 10.0  # for each question beside the trial request
TRIAL_TOKENS = 16  # where nothing has to be found out


class TargetError(Exception):
    """A target that cannot be tested; one line with URL, what came and what was expected."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a target says of itself, and what a trial request showed."""

    info: dict[str, Any] | None
    models: list[dict[str, Any]]
    model: str | None
    reasoning: str


def look(plan: Plan) -> Target:
    """Ask the target about itself and send it one request, which no record counts.

    Raises:
        TargetError: it does not answer as a streaming chat completions API.
    """
    info = ask(plan, "/info")
    models = listed_models(plan) or []
    names = [model["id"] for model in models if isinstance(model, dict) and "id" in model]
    model = plan.model or (names[0] if names else None)
    declared = info.get("reasoning") if info else None
    mode = plan.reasoning
    if mode == AUTO and declared in MODES:
        mode = str(declared)
    found = _trial(replace(plan, model=model, reasoning=mode))
    return Target(info, models, model, found if mode == AUTO else mode)


def listed_models(plan: Plan) -> list[Any] | None:
    """What GET /v1/models lists; None where the target lists nothing."""
    listed = ask(plan, "/v1/models")
    return listed["data"] if listed and isinstance(listed.get("data"), list) else None


def ask(plan: Plan, path: str) -> dict[str, Any] | None:
    """GET a JSON object of the target's; None where it has none."""
    place = origin(plan.url)
    kind = http.client.HTTPSConnection if place.tls else http.client.HTTPConnection
    connection = kind(place.host, place.port, timeout=LOOK_S)
    headers = {"Authorization": f"Bearer {plan.api_key}"} if plan.api_key else {}
    try:
        connection.request("GET", place.base_path + path, headers=headers)
        response = connection.getresponse()
        found = json.loads(response.read()) if response.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return found if isinstance(found, dict) else None


def _trial(plan: Plan) -> str:
    url = f"{plan.url}{plan.api_path}"
    if plan.load.prompts:
        messages = list(own_prompts(plan.load.prompts)[0].turns[0])
    else:
        first = next(iter(plan.load.mix))
        # An index that no arrival has, so that this prompt is not asked again.
        text = prompt(prompt_id(first, "en", "128", plan.load.seed, 10**9)).text
        messages = [{"role": "user", "content": text}]
    tokens = plan.load.max_tokens if plan.reasoning == AUTO else TRIAL_TOKENS
    wire = request(plan, head(plan), messages, min(tokens, plan.load.max_tokens))
    exchange = converse(origin(plan.url), wire, plan.timeout_s)
    answer = read_answer(exchange, "none")
    if answer.failure is not None:
        raise TargetError(
            f"{url}: {answer.failure}: {answer.detail};"
            " expected HTTP 200 and a text/event-stream of chat completion chunks up to [DONE]"
        )
    return mode_seen(
        "".join(answer.answer_texts), bool(answer.reasoning_texts), answer.finish_reason == "stop"
    )
