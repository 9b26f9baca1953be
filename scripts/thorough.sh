#!/usr/bin/env bash
# Runs the tests in every way, one after the other, for hours (docs/testing.md has the times). Ends with a table.
#   scripts/thorough.sh [--list | PART ...]
# Without arguments it runs every part, in the order of --list. The output of a part goes to build/thorough/PART.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Shards are small enough to take less than an hour each on two cores, with the build.
declare -A shards=([asan]=2 [tsan]=2)
parts=(release)
for preset in asan tsan; do
  for ((i = 1; i <= shards[$preset]; ++i)); do parts+=("$preset-$i"); done
done
parts+=(clang debug programs programs-avx2 programs-avx512 numerics fuzz)

run_part() {
  case $1 in
    release) scripts/test.sh --thorough ;;
    asan-* | tsan-*) scripts/test.sh "--${1%-*}" --shard "${1#*-}/${shards[${1%-*}]}" ;;
    clang | debug) scripts/test.sh "--$1" ;;
    programs) random_programs ;;
    programs-*) FERMATA_CPU=${1#*-} random_programs ;;
    numerics) every_number ;;
    fuzz) scripts/fuzz.sh --seconds 120 ;;
  esac
}

# Each in eager mode, compiled in several ways, and by the reference.
random_programs() {
  scripts/setup.sh
  scripts/build.sh release fermata_fuzz_test
  cache=$(mktemp -d)
  trap 'rm -rf "$cache"' EXIT
  export FERMATA_CACHE_DIR=$cache FERMATA_COMPILE=second_sight FERMATA_CALIBRATE=0 FERMATA_SEED=1
  FERMATA_FUZZ_COUNT=5000 build/release/bin/fermata_fuzz_test --gtest_filter='-ModesFuzz.*:*FuzzCorpus*'
  FERMATA_FUZZ_COUNT=20000 build/release/bin/fermata_fuzz_test --gtest_filter='*FuzzCorpus*'
  FERMATA_FUZZ_COUNT=6000 build/release/bin/fermata_fuzz_test --gtest_filter='ModesFuzz.*'
}

# Every 63rd f32 in each unary op.
every_number() {
  scripts/setup.sh
  scripts/build.sh release fermata_conformance_test
  FERMATA_NUMERICS_STRIDE=${FERMATA_NUMERICS_STRIDE:-63} build/release/bin/fermata_conformance_test --gtest_filter='*Numerics*'
}

case ${1:-} in
  --run) run_part "$2"; exit ;;  # a process of its own for each part
  --list) printf '%s\n' "${parts[@]}"; exit ;;
  -*) sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  *) ;;
esac
chosen=("${parts[@]}")
if [ $# -gt 0 ]; then
  chosen=("$@")
fi
for part in "${chosen[@]}"; do
  [[ " ${parts[*]} " == *" $part "* ]] || { echo "thorough: no part $part; see scripts/thorough.sh --list" >&2; exit 2; }
done

mkdir -p build/thorough
table=()
failed=0
for part in "${chosen[@]}"; do
  echo "thorough: $part"
  SECONDS=0
  outcome=passed
  if ! scripts/thorough.sh --run "$part" > "build/thorough/$part.log" 2>&1; then
    outcome=FAILED
    failed=1
  fi
  table+=("$(printf '%-16s %-7s %4d min  %s' "$part" "$outcome" $(((SECONDS + 59) / 60)) \
    "$(grep -E 'passed, [0-9]+ failed$' "build/thorough/$part.log" | tail -n 1)")")
  echo "${table[-1]}"
done
printf '\n'
printf '%s\n' "${table[@]}"
exit "$failed"
