#!/usr/bin/env bash
# Capacity of `dynamic` and of `vllm`, and the two compared, on a machine with one GPU (an hour):
#   tests/gpu/before_after.sh OUT        (needs the extras load, serve, hf, vllm, gpu)
# Variables name other servers, rates and times, for a look at it on a machine without one.
set -eu
out=${1:?usage: before_after.sh OUT}
mkdir -p "$out"
shape=${SHAPE:---weights random --reasoning none}
prompts=${PROMPTS:---input-class 512-900}
answers=${ANSWERS:---max-tokens 128 --ignore-eos --seed 1}
slo() { python3 -m slo "$@"; }
servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true' EXIT
serve() { # NAME OPTIONS: sets $url when it is ready
  python3 -m target serve --port 0 ${*:2} >"$out/$1.log" 2>&1 &
  servers+=($!)
  until grep -q 'ready on' "$out/$1.log"; do
    kill -0 ${servers[-1]} || { tail -5 "$out/$1.log" >&2; exit 1; }
    sleep 0.5
  done
  url=$(sed -n 's/.*ready on \(http[^ ]*\).*/\1/p' "$out/$1.log")
}
cat >"$out/slo.yaml" <<YAML
version: 1
service: deepseek-r1-distill-qwen-1.5b
objectives:
  - {metric: ttft, percentile: 95, max: ${TTFT:-10s}}
  - {metric: error_rate, max: 5%}
YAML
load="$prompts $answers --sidecar ${SIDECAR:-local}"

serve dynamic ${DYNAMIC:---engine hf --mode dynamic $shape}; dynamic=$url
slo capacity --target "$dynamic" --slo "$out/slo.yaml" ${SLOW:---min 0.2/s --max 3/s --budget 9m --shortest 20s} \
  $load --out "$out/capacity-dynamic" || true
serve vllm ${VLLM:---engine vllm --mode vllm $shape --gpu-memory-utilization 0.4}; vllm=$url
slo capacity --target "$vllm" --slo "$out/slo.yaml" ${FAST:---min 20/s --max 600/s --budget 8m --shortest 8s --workers 4} \
  $load --out "$out/capacity-vllm" || true

# Both at 0.8 of what `dynamic` holds (1 / service time, server_ladder_h200.md), and at the articles' 3/s.
for rate in ${RATES:-0.33 3}; do
  slo ab --before "$dynamic" --after "$vllm" --rate "$rate/s" $load ${BLOCKS:---duration 60s --warmup 15s --pairs 8} \
    --like 001 --out "$out/ab-$rate" || true
done
