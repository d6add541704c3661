#!/usr/bin/env bash
# Parses every shell script, and runs shellcheck on them if it is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

scripts=(millrace .ci/run bench/gpu_check packaging/*.sh tests/scripts/*.sh)
for script in "${scripts[@]}"; do bash -n "$script"; done
if command -v shellcheck >/dev/null; then shellcheck -x "${scripts[@]}"; fi
echo "${#scripts[@]} scripts parse"
