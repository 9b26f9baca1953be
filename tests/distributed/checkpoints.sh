#!/usr/bin/env bash
# Checkpoints of 1, 2 and 4 ranks, each read by 1, 2 and 4 ranks.
#   checkpoints.sh MPIRUN_SCRIPT MPIRUN PROGRAM
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export RANKS_CHECKPOINT_FOLDER=$folder
for ranks in 4 2 1 2 4; do
  "$1" "$2" "$ranks" "$3" '--gtest_filter=*RanksCheckpoint*'
done
