"""What a planned run cannot prove, said before the load starts."""

from collections.abc import Iterator

from slo.objectives import Load, Slo


def never_met(slo: Slo, load: Load) -> Iterator[str]:
    """Objectives that cannot pass whatever the server does, because the run is too small."""
    if load.rate_per_s is None or load.duration_s is None:
        return
    from slo.quantile_test import more_requests  # loads scipy

    for objective in slo.objectives:
        if objective.allowed is None:
            continue
        shares = load.mix or slo.load.mix or {}
        share = shares.get(objective.scenario, 1.0) if objective.scenario != "all" else 1.0
        planned = int(load.rate_per_s * load.duration_s * share)
        least = more_requests(0, 0, objective.allowed, objective.confidence, objective.min_samples)
        name = f"{objective.label} ({objective.bound} {objective.limit_text})"
        if least is None:
            yield f"{name}: no number of requests proves it"
        elif planned < least:
            longer = load.duration_s * least / max(planned, 1)
            yield (
                f"{name}: cannot pass: it needs {least:,} requests, planned are about {planned:,}; "
                f"run for {longer:,.0f}s or longer"
            )
