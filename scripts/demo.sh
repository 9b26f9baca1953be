#!/usr/bin/env bash
# Builds what the demo needs and runs it. Arguments go to `fermata demo`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
echo "demo: configuring and building (the first time takes some minutes)"
scripts/build.sh release fermata_cli
exec build/release/bin/fermata demo "$@"
