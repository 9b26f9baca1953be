#!/usr/bin/env bash
# Searches for inputs that a reader of files, text or capsules does not survive, with clang's libFuzzer, under
# AddressSanitizer and UBSan.
#   scripts/fuzz.sh [--list | [--seconds N] [TARGET ...]]
# Each target runs for N seconds (60), on what tests/fuzz/corpus holds and what earlier runs have found
# (build/fuzz/found/TARGET). An input that fails is written to build/fuzz/failures/TARGET; keep it, made small, in
# tests/fuzz/corpus/TARGET, where every build replays it. The exit status is 0 only if none fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  sed -n '4p' "$0" | sed 's/^# \{0,1\}//' >&2
  exit 2
}
targets=()
for folder in tests/fuzz/corpus/*/; do targets+=("$(basename "$folder")"); done
seconds=60
chosen=()
while [ $# -gt 0 ]; do
  case $1 in
    --list) printf '%s\n' "${targets[@]}"; exit ;;
    --seconds) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || usage; seconds=$2; shift ;;
    -*) usage ;;
    *) [[ " ${targets[*]} " == *" $1 "* ]] || { echo "fuzz: no target $1; see scripts/fuzz.sh --list" >&2; exit 2; }
       chosen+=("$1") ;;
  esac
  shift
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${targets[@]}")

scripts/setup.sh --clang
scripts/build.sh fuzz fermata_fuzz
export ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export FERMATA_COMPILE=second_sight FERMATA_CALIBRATE=0 FERMATA_CACHE_DIR=
failed=0
for target in "${chosen[@]}"; do
  found=build/fuzz/found/$target failures=build/fuzz/failures/$target
  mkdir -p "$found" "$failures"
  log=build/fuzz/$target.log
  outcome=passed
  if ! FERMATA_FUZZ_TARGET=$target build/fuzz/bin/fermata_fuzz -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 \
    -artifact_prefix="$failures/" -print_final_stats=1 "$found" "tests/fuzz/corpus/$target" > "$log" 2>&1; then
    outcome=FAILED
    failed=1
  fi
  printf '%-12s %s  %s inputs  %s\n' "$target" "$outcome" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)"
  [ "$outcome" = passed ] || grep -m 3 -E 'ERROR|SUMMARY|InternalError|what\(\)' "$log" || true
done
exit "$failed"
