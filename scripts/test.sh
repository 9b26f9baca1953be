#!/usr/bin/env bash
# Builds everything and runs all tests; the last line counts them. The exit status is 0 only if all pass.
#   scripts/test.sh [--asan | --tsan | --debug | --clang] [--shard I/N] [--thorough] [-- CTEST_ARGUMENT ...]
# --asan       under AddressSanitizer, LeakSanitizer and UBSan, --tsan under ThreadSanitizer (no install tests)
# --shard I/N  only the I-th of N parts: every N-th case of each test
# --thorough   longer sweeps and more random programs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
preset=release
while [ $# -gt 0 ]; do
  case $1 in
    --asan | --tsan | --debug | --clang) preset=${1#--} ;;
    --shard)
      [[ ${2:-} =~ ^([1-9][0-9]*)/([1-9][0-9]*)$ ]] && [ "${BASH_REMATCH[1]}" -le "${BASH_REMATCH[2]}" ] || usage
      export GTEST_SHARD_INDEX=$((BASH_REMATCH[1] - 1)) GTEST_TOTAL_SHARDS=${BASH_REMATCH[2]}
      shift ;;
    --thorough) export FERMATA_THOROUGH=1 ;;
    --) shift; break ;;
    *) usage ;;
  esac
  shift
done

if [ "$preset" = clang ]; then
  scripts/setup.sh --clang
else
  scripts/setup.sh
fi
echo "test: building preset $preset"
scripts/build.sh "$preset"
echo "test: running"
status=0
ctest --test-dir "build/$preset" --output-on-failure -j2 --timeout 1800 --no-tests=error \
  --output-junit "$PWD/build/$preset/ctest.xml" "$@" || status=$?
python3 scripts/count_tests.py "build/$preset/ctest.xml" "build/$preset/tests/scratch/results" || status=1
exit "$status"
