#!/usr/bin/env bash
# Records the runs of tests/recorded_runs on a machine with one GPU, and the sidecar's own cost:
#   tests/gpu/record_evidence.sh OUT        (needs the extras load, serve, hf, gpu)
# SERVE may name other options of the server than those of the recorded runs.
set -u
out=${1:?usage: record_evidence.sh OUT}
mkdir -p "$out"
serve=${SERVE:---engine hf --mode dynamic --weights random --reasoning none}
python3 -m target serve --port 0 $serve >"$out/server.log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null' EXIT
for _ in $(seq 240); do grep -q 'ready on' "$out/server.log" && break; sleep 0.5; done
url=$(sed -n 's/.*ready on \(http[^ ]*\).*/\1/p' "$out/server.log")
load() { # NAME SIDECAR RATE SECONDS TOKENS
  python3 -m slo run --target "$url" --out "$out/$1" --sidecar "$2" --rate "$3" --duration "$4" \
    --warmup 0s --max-tokens "$5" --arrival constant --input-class 512 --ignore-eos --seed 1 --label "$1" \
    2>"$out/$1.err" | tail -1
}
load no-load local 0.2/s "${IDLE_S:-14s}" 2
load host-bound local 1/s "${HOST_S:-18s}" 64
# ABBA: the same load without and with the sidecar.
for block in a1-off b1-local b2-local a2-off; do load "cost-$block" "${block#*-}" 2/s "${COST_S:-10s}" 16; done
kill $server; wait $server 2>/dev/null
for case in ${CASES:-prefill decode}; do
  how=; [ $case = decode ] && how=${DECODE---graph --batch 64 --context 8192 --block 3}
  python3 -m tests.gpu.long_contexts $case "$out/$case" ${LONG:-$how} 2>&1 | tail -3
done
for run in no-load host-bound prefill decode; do
  python3 -m slo diagnose "$out/$run" --json "$out/$run.json" | head -4
done
