#!/usr/bin/env bash
# Builds and runs the benchmarks, and prints one table: eager and compiled times beside the limit of the machine.
#   scripts/bench.sh [--filter REGEX] [--only overhead|compile|kernels|exported] [--json FILE] [--no-build] [-- BENCHMARK_ARGUMENT ...]
# --filter REGEX  only benchmarks whose name matches (copy_64MiB and the peaks always run with the kernels, as their limit)
# --only BINARY   only one binary; `exported` runs only if named
# --json FILE     write all results and the table's figures to FILE
# Kernels are chosen by prediction alone (FERMATA_CALIBRATE=0): else runs that try another kernel are among the timed ones.
# Arguments after -- are passed to the binaries, for example --benchmark_repetitions=5 (the table shows the best repetition).
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

filter=. binaries=(overhead compile kernels) json= build=1
while [ $# -gt 0 ]; do
  case $1 in
    --filter) filter=${2:?--filter needs a regular expression}; shift ;;
    --only) binaries=("${2:?--only needs overhead, compile, kernels or exported}"); shift ;;
    --json) json=$(cd "$here" && realpath -m "${2:?--json needs a file}"); shift ;;
    --no-build) build= ;;
    --) shift; break ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done

if [ -n "$build" ]; then
  scripts/setup.sh
  scripts/build.sh release "${binaries[@]/#/bench_}"
fi
export FERMATA_CALIBRATE=${FERMATA_CALIBRATE:-0}
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
for binary in "${binaries[@]}"; do
  echo "bench: running bench_$binary" >&2
  match=$filter
  if [ "$binary" = kernels ]; then
    match="copy_64MiB|_peak/|$filter"
  fi
  build/release/bin/bench_"$binary" --benchmark_filter="$match" --benchmark_out="$results/$binary.json" \
    --benchmark_out_format=json "$@" > "$results/$binary.log" 2>&1 || { cat "$results/$binary.log"; exit 1; }
done
python3 scripts/bench_table.py ${json:+--json "$json"} "$results"/*.json
