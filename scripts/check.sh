#!/usr/bin/env bash
# Checks layers, sizes, style, error codes and format, and runs clang-tidy (version 19, if installed) on changed files.
#   scripts/check.sh [--quick] [--base COMMIT]
# --quick        without clang-tidy
# --base COMMIT  the commit that files are compared with: by default origin/main if it exists, else HEAD~1
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

quick= base=
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=1 ;;
    --base) base=${2:?--base needs a commit}; shift ;;
    *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done
if [ -z "$base" ]; then
  base=$(git rev-parse -q --verify origin/main || git rev-parse -q --verify HEAD~1 || git rev-parse HEAD)
fi

failed=0
python3 scripts/check_layers.py || failed=1
python3 scripts/check_style.py || failed=1
python3 scripts/check_errors.py || failed=1
python3 scripts/check_format.py || failed=1

mapfile -t changed < <({ git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } |
  grep -E '\.(h|cpp)$' | sort -u)
# Versions before 16 do not support std::source_location.
tidy=$(command -v clang-tidy-19 || true)
if [ -z "$quick" ] && [ -z "$tidy" ]; then
  echo "clang-tidy: skipped: clang-tidy-19 was not found"
elif [ -z "$quick" ]; then
  mapfile -t sources < <(printf '%s\n' "${changed[@]}" | grep '\.cpp$' || true)
  if [ ! -f build/release/compile_commands.json ]; then
    cmake --preset release > /dev/null
  fi
  checked=0
  for source in "${sources[@]}"; do
    # Only files in the compilation database.
    grep -qF "$PWD/$source\"" build/release/compile_commands.json || continue
    checked=$((checked + 1))
    "$tidy" -p build/release --quiet --extra-arg=-Wno-unknown-warning-option "$source" 2> /dev/null || failed=1
  done
  echo "clang-tidy: $checked changed sources"
fi
[ "$failed" -eq 0 ] && echo "check: passed" || echo "check: failed"
exit "$failed"
