#!/usr/bin/env bash
# Runs the node tests of the Python package onnx through fermata::onnx, and prints one line for each and a table.
#   scripts/onnx_node_tests.sh FOLDER [FILTER]
# FOLDER gets a virtual environment and the tests, once. Needs a release build, and the network the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -lt 1 ]; then
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
folder=$1
mkdir -p "$folder"
if [ ! -x "$folder/venv/bin/python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install -q onnx
fi
if [ ! -d "$folder/node" ]; then
  "$folder/venv/bin/python" -W ignore scripts/onnx_node_tests.py "$folder/node.new"
  mv "$folder/node.new" "$folder/node"
fi
cmake --build build/release --target fermata_onnx_node_tests
build/release/bin/fermata_onnx_node_tests "$folder/node" "${2:-}"
