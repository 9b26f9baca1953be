#!/usr/bin/env bash
# Builds everything and runs all tests; the last line counts them. The exit status is 0 only if all pass.
#   scripts/test.sh [--asan | --tsan | --debug | --clang] [--thorough] [-- CTEST_ARGUMENT ...]
# --asan      under AddressSanitizer and UBSan, --tsan under ThreadSanitizer (no install tests)
# --thorough  longer sweeps and more random programs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=release
while [ $# -gt 0 ]; do
  case $1 in
    --asan | --tsan | --debug | --clang) preset=${1#--} ;;
    --thorough) export FERMATA_THOROUGH=1 ;;
    --) shift; break ;;
    *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done

scripts/setup.sh
echo "test: building preset $preset"
scripts/build.sh "$preset"
echo "test: running"
status=0
ctest --test-dir "build/$preset" --output-on-failure -j2 --timeout 1800 --no-tests=error \
  --output-junit "$PWD/build/$preset/ctest.xml" "$@" || status=$?
python3 scripts/count_tests.py "build/$preset/ctest.xml" "build/$preset/tests/scratch/results" || status=1
exit "$status"
