#!/usr/bin/env bash
# Builds and runs the demo. Arguments are passed to `fermata demo`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
echo "demo: configuring and building (takes some minutes the first time)"
scripts/build.sh release fermata_cli
exec build/release/bin/fermata demo "$@"
