"""Texts of slo.yaml that several tests read."""

GOOD = """\
version: 1
service: deepseek-r1-distill-qwen-1.5b
load:        {rate: 90/m, arrival: poisson, duration: 10m, warmup: 30s, mix: {math: 3, code: 2},
              input_class: 512, max_tokens: 256}
objectives:
  - {metric: ttft, percentile: 95, max: 420ms}
  - {metric: e2e,  percentile: 99.9, max: 1.5s, scenario: math, severity: warn, confidence: 99%}
  - {metric: error_rate, max: 0.5%, min_samples: 500}
  - {metric: achieved_rate, min: 99%}
  - {metric: achieved_rate, min: 2.9/s}
  - {metric: output_tokens_per_s, min: 500}
validity:    {lateness: 10%, achieved_rate: 98%, dropped: 2}
"""


def objective(line: str) -> str:
    return f"version: 1\nservice: s\nobjectives:\n  - {{{line}}}\n"
