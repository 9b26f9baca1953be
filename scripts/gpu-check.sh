#!/usr/bin/env bash
# Runs all CUDA tests and benchmarks on a machine with a CUDA device, and the same benchmarks in PyTorch if it is
# installed; writes one report. Without a device the report lists what was skipped, and the exit status is 77.
#   scripts/gpu-check.sh [BUILD_FOLDER] [REPORT]    by default build/cuda-only (or build/release) and gpu-report.txt
# The build may be copied from another machine (cmake --preset cuda-only); this script compiles nothing.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

build=${1:-}
if [ -z "$build" ]; then
  build=build/cuda-only
  [ -d "$build" ] || build=build/release
fi
report=${2:-gpu-report.txt}
bin=$build/bin
for program in fermata fermata_codegen_cuda_test fermata_gpu_bench; do
  if [ ! -x "$bin/$program" ]; then
    echo "gpu-check: $bin/$program is missing: build it with cmake --preset cuda-only && cmake --build --preset cuda-only" >&2
    exit 2
  fi
done
export LD_LIBRARY_PATH="$PWD/$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export FERMATA_CUDA_EXECUTOR=none  # the real device, not the host executor
FERMATA_CACHE_DIR=$(mktemp -d)     # a cold cache, so that compile times are real
export FERMATA_CACHE_DIR
trap 'rm -rf "$FERMATA_CACHE_DIR"' EXIT

# Each usable device has a line of its own.
findings=$("$bin/fermata" doctor | grep -E '^(fermata|CUDA|NVRTC|cuBLASLt|NCCL)')
if ! grep -q '^CUDA device ' <<< "$findings"; then
  {
    echo "Fermata on CUDA, $(date -u '+%Y-%m-%d %H:%M') UTC"
    echo
    echo "$findings"
    echo
    echo "== tests that need no device"
    "$bin/fermata_codegen_cuda_test" --gtest_filter='CudaWithoutDevice*:CudaCompile.CodeIsKeptOnDisk' 2>&1 | tail -5
    tests=${PIPESTATUS[0]}
    echo
    echo "skipped: all other tests, which need a device (FERMATA_CUDA_EXECUTOR=host $bin/fermata_codegen_cuda_test runs them without one)"
    echo "skipped: benchmarks, and the same programs in PyTorch"
    echo
    [ "$tests" -eq 0 ] && echo "gpu-check: NO DEVICE" || echo "gpu-check: NO DEVICE, AND TESTS FAILED"
  } | tee "$report"
  echo "gpu-check: wrote $report"
  grep -q '^gpu-check: NO DEVICE$' "$report" && exit 77
  exit 1
fi

# The names of the tests, one per line.
list_tests() {
  "$bin/fermata_codegen_cuda_test" --gtest_list_tests | awk '
    /^[^ ].*\.( |$)/ {suite = $1}
    /^  / {print suite $1}'
}

{
  echo "Fermata on CUDA, $(date -u '+%Y-%m-%d %H:%M') UTC"
  echo
  if command -v nvidia-smi > /dev/null; then
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  fi
  echo "$findings"
  echo
  # An error of the device ends the context of its process: each test runs in a process of its own.
  echo "== tests"
  mkdir -p "$report.tests"
  # shellcheck disable=SC2016
  list_tests | xargs -P 8 -I {} bash -c '
    log=$2/$(tr / - <<< "$1").log
    timeout 300 "$0" --gtest_filter="$1" > "$log" 2>&1
    result=$?
    if [ "$result" -eq 0 ] && grep -q "^\[  SKIPPED" "$log"; then echo "skipped  $1"
    elif [ "$result" -eq 0 ]; then rm "$log"; echo "passed   $1"
    else echo "FAILED   $1 (exit status $result)"
    fi' "$bin/fermata_codegen_cuda_test" {} "$report.tests" > "$report.tests/results"
  sort "$report.tests/results" | grep -v '^passed'
  cut -d ' ' -f 1 "$report.tests/results" | sort | uniq -c
  tests=$(grep -c '^FAILED' "$report.tests/results")
  for test in $(awk '/^FAILED/ {print $2}' "$report.tests/results"); do
    echo "-- $test"
    grep -v -E '^(Note: |\[=|\[-|\[ RUN|Running main)' "$report.tests/$(tr / - <<< "$test").log" | head -25 | cut -c 1-400
  done
  echo
  echo "== collectives between two devices"
  ranks=0
  if [ "$(grep -c '^CUDA device ' <<< "$findings")" -lt 2 ]; then
    echo "(skipped: there is one device)"
  elif ! command -v mpirun > /dev/null || [ ! -x "$bin/fermata_ranks_test" ]; then
    echo "(skipped: mpirun or $bin/fermata_ranks_test is missing)"
  else
    tests/distributed/mpirun.sh mpirun 2 "$bin/fermata_ranks_test" --gtest_filter='*RanksCuda.*' 2>&1 | tail -40
    ranks=${PIPESTATUS[0]}
  fi
  echo
  echo "== benchmarks: milliseconds for one run"
  "$bin/fermata_gpu_bench" 2>&1
  for join in always never; do
    echo "attention as one kernel: $join"
    FERMATA_CUDA_FUSE_PRODUCTS=$join "$bin/fermata_gpu_bench" attention 2>&1
  done
  python3 scripts/gpu_bench_torch.py 2>&1 || echo "(without PyTorch)"
  echo
  [ "$((tests + ranks))" -eq 0 ] && echo "gpu-check: all tests passed" || echo "gpu-check: TESTS FAILED, see $report.tests/"
} | tee "$report"
echo "gpu-check: wrote $report"
grep -q '^gpu-check: all tests passed' "$report"
