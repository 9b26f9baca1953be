#!/usr/bin/env bash
# Configures and builds a preset. Prints a summary of the configuration, or the whole output if it fails.
#   scripts/build.sh PRESET [TARGET ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=$1
shift
targets=()
if [ $# -gt 0 ]; then
  targets=(--target "$@")
fi
# A build tree contains absolute paths, so a copied or moved tree is configured again.
cache=build/$preset/CMakeCache.txt
if [ -f "$cache" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$cache"; then
  rm -rf "build/$preset"
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" > "$log" 2>&1; then
  cat "$log"
  exit 1
fi
sed -n '/^-- Fermata /,/^-- Configuring done/{/Configuring done/!s/^-- //p}' "$log"
cmake --build --preset "$preset" "${targets[@]}"
