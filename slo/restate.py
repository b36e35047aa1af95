"""What was understood of a slo.yaml, in words, so that a person can check it before a load."""

from slo.objectives import Load, Objective, Slo
from slo.quantities import show, show_s


def in_words(slo: Slo) -> str:
    """One line for the service, one for the load, one for each objective."""
    lines = [f"{slo.service}, {len(slo.objectives)} objectives", f"load: {_load(slo.load)}"]
    return "\n  ".join([*lines, *map(_objective, slo.objectives)])


def _load(load: Load) -> str:
    mix = load.mix and " + ".join(f"{show(of, '1')} {name}" for name, of in load.mix.items())
    said = {
        "at": load.rate_per_s and show(load.rate_per_s, "1/s"),
        "arrivals": load.arrival,
        "for": load.duration_s and show_s(load.duration_s),
        "after a warm-up of": load.warmup_s and show_s(load.warmup_s),
        "of": mix,
        "input tokens:": load.input_class,
        "output tokens up to": load.max_tokens,
    }
    return ", ".join(f"{word} {value}" for word, value in said.items() if value) or "any"


def _objective(objective: Objective) -> str:
    sign = "<=" if objective.bound == "max" else ">="
    where = "all requests" if objective.scenario == "all" else f"scenario {objective.scenario}"
    return (
        f"{objective.name} {sign} {objective.limit_text}: {where}, {objective.severity},"
        f" said with {show(objective.confidence, '1')} confidence"
    )
