#!/usr/bin/env bash
# Runs a sample of the tests as if on other machines: instruction sets, threads, missing parts, locales, users, limits.
#   scripts/test_matrix.sh [--list | [--folder BUILD] [MACHINE ...]]
# --folder  where the tests are built (build/release)
# The output of each run is in BUILD/matrix. The exit status is 0 only if none fails. A machine that cannot be made here
# is skipped, with the reason.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

machines=(plain avx2 avx512 baseline threads-1 threads-2 threads-8 no-llvm no-shm read-only-home c-locale turkish umask-077
          other-user few-files small-stack)
build=build/release
chosen=()
while [ $# -gt 0 ]; do
  case $1 in
    --list) printf '%s\n' "${machines[@]}"; exit ;;
    --folder) build=${2:?}; shift ;;
    -*) sed -n '3,4s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) [[ " ${machines[*]} " == *" $1 "* ]] || { echo "test_matrix: no machine $1; see --list" >&2; exit 2; }
       chosen+=("$1") ;;
  esac
  shift
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${machines[@]}")
build=$(realpath "$build")

# Of each folder what depends on the machine: kernels, threads, caches, files, text.
samples=(
  "runtime:*"
  "dispatch:*"
  "errors:*"
  "passes:*Fuse*:*Golden*"
  "conformance:*Standard*:*Undefined*"
  "codegen_cpu:*Loader*:*Disk*:*Packed*:*Threads*"
  "frontend:*Io*:*Np?.*:*Safetensors*:*Locale*:*Sync*:*Modes.*:*CompiledFunction*:*Thread*:*Cancel*:*Retained*:*Print*:*Fork*"
  "bounds:*"
  "run:*"
)
# Tests that say what is compiled: not where nothing is.
what_is_compiled='ExternalPlans.*:*DispatchTrace*:Fuse.*:*Epilogues*:Export*:Damaged*'
without=
sources=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch"
logs=$build/matrix
mkdir -p "$logs"

# run NAME [COMMAND ...]: every sample under a command that makes the machine.
run() {
  local name=$1 sample folder program count failed=() begin=$SECONDS
  shift
  : > "$logs/$name.log"
  for sample in "${samples[@]}"; do
    folder=${sample%%:*}
    program=$build/bin/fermata_${folder}_test
    [ -x "$program" ] || continue
    if ! "$@" env "${cache[@]}" FERMATA_COMPILE=second_sight FERMATA_CALIBRATE=0 FERMATA_BIN_DIR="$build/bin" \
      TMPDIR="$temporary" "$program" --gtest_brief=1 --gtest_filter="${sample#*:}${without:+-$without}" >> "$logs/$name.log" 2>&1; then
      failed+=("$folder")
    fi
  done
  count=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$logs/$name.log" | awk '{ sum += $1 } END { print sum + 0 }')
  if [ ${#failed[@]} -eq 0 ]; then
    printf '%-16s passed  %6d tests %5d s\n' "$name" "$count" $((SECONDS - begin))
  else
    printf '%-16s FAILED  %6d tests %5d s  %s (%s)\n' "$name" "$count" $((SECONDS - begin)) "${failed[*]}" "$logs/$name.log"
    status=1
  fi
}
skip() { printf '%-16s skipped %s\n' "$1" "$2"; }

status=0
for machine in "${chosen[@]}"; do
  temporary=$scratch/$machine
  mkdir -p "$temporary"
  cache=(FERMATA_CACHE_DIR="$temporary/cache")
  case $machine in
    plain) run plain ;;
    avx2 | avx512) run "$machine" env FERMATA_CPU="$machine" ;;
    baseline)  # nothing is compiled for such processors
      without=${what_is_compiled}
      run baseline env FERMATA_CPU=baseline
      without= ;;
    threads-*) run "$machine" env FERMATA_NUM_THREADS="${machine#threads-}" ;;
    no-llvm)
      without=${what_is_compiled}
      run no-llvm env FERMATA_LLVM_PLUGIN=/nonexistent
      without= ;;
    no-shm)
      if unshare -m sh -c 'mount -t tmpfs -o ro none /dev/shm' 2> /dev/null; then
        run no-shm unshare -m sh -c 'mount -t tmpfs -o ro none /dev/shm && exec "$@"' sh
      else
        skip no-shm "this user cannot mount"
      fi ;;
    read-only-home)  # the cache is where it is by default: below a folder that cannot be written
      cache=(-u FERMATA_CACHE_DIR -u XDG_CACHE_HOME HOME=/proc)
      run read-only-home ;;
    c-locale) run c-locale env LC_ALL=C ;;
    turkish)
      if localedef -i tr_TR -f UTF-8 "$scratch/tr_TR.UTF-8" > /dev/null 2>&1; then
        run turkish env LOCPATH="$scratch" LC_ALL=tr_TR.UTF-8
      else
        skip turkish "localedef or its sources are not installed"
      fi ;;
    umask-077) run umask-077 sh -c 'umask 077 && exec "$@"' sh ;;
    other-user)
      if [ "$(id -u)" -eq 0 ] && command -v setpriv > /dev/null && setpriv --reuid=65534 --regid=65534 --clear-groups \
        test -r "$sources/tests/CMakeLists.txt" -a -x "$build/bin"; then
        chown 65534:65534 "$temporary"
        run other-user setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent
      else
        skip other-user "needs root, and a checkout that others can read"
      fi ;;
    few-files) run few-files sh -c 'ulimit -n 32 && exec "$@"' sh ;;
    small-stack) run small-stack sh -c 'ulimit -s 512 && exec "$@"' sh ;;
  esac
done
exit "$status"
