#!/usr/bin/env bash
# Installs missing build dependencies. If nothing is missing it is quick and needs no network.
#   scripts/setup.sh [--check] [--clang]
# --check  report only; exit status 1 if something required is missing
# --clang  also what the presets clang and fuzz need
set -euo pipefail

required=(g++ cmake ninja-build python3 libfmt-dev libcli11-dev nlohmann-json3-dev libxxhash-dev libgtest-dev
          libgmock-dev libbenchmark-dev)
# The engine builds without these; CMake reports which parts are missing.
optional=(ccache clang-format llvm-19-dev libdnnl-dev libxsmm-dev libopenblas-serial-dev liblapacke-dev libdlpack-dev
          libzip-dev libonnx-dev libprotobuf-dev node-dagre-layout libopenmpi-dev openmpi-bin)

check=
for argument in "$@"; do
  case $argument in
    --check) check=1 ;;
    --clang) required+=(clang-19 libclang-rt-19-dev) ;;
    *) sed -n '3,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  cat <<'EOM'
setup: this is not a Debian-like system, so nothing was installed. A build needs:
  a C++20 compiler (g++ >= 12 or clang >= 19), CMake >= 3.25, Ninja, Python 3 (for the scripts), and the libraries
  fmt >= 9, CLI11 >= 2.1, nlohmann-json >= 3.11, xxHash >= 0.8, GoogleTest >= 1.12, Google Benchmark >= 1.7.
Optional: LLVM 19.1 (development files), oneDNN >= 2.6, libxsmm 1.17, LAPACKE with a single-threaded
BLAS, libzip >= 1.7, ONNX >= 1.12 and protobuf >= 3.21 (C++ classes), an MPI (version 3.1), ccache.
EOM
  exit 0
fi

missing_of() {
  local package
  for package in "$@"; do
    case $(dpkg-query -W -f '${Status}' "$package" 2> /dev/null) in
      *' installed') ;;
      *) echo "$package" ;;
    esac
  done
}

mapfile -t need < <(missing_of "${required[@]}")
mapfile -t want < <(missing_of "${optional[@]}")
if [ $((${#need[@]} + ${#want[@]})) -eq 0 ]; then
  exit 0
fi
echo "setup: missing: ${need[*]} ${want[*]}"
if [ -n "$check" ]; then
  [ ${#need[@]} -eq 0 ]
  exit
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo > /dev/null; then
    echo "setup: run as root, or install: ${need[*]} ${want[*]}" >&2
    [ ${#need[@]} -eq 0 ]
    exit
  fi
  as_root=(sudo)
fi
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}
"${as_root[@]}" apt-get update -q || echo "setup: the package lists could not be updated" >&2
if [ ${#need[@]} -gt 0 ]; then
  install "${need[@]}"
fi
# One by one: a distribution may lack only some of them.
for package in "${want[@]}"; do
  install "$package" || echo "setup: $package is not available; building without it" >&2
done
