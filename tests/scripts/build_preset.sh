#!/usr/bin/env bash
# build_preset.sh PRESET TARGET...: configures and builds targets of one of the presets of CMakePresets.json.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

preset=$1
shift
cmake --preset "$preset"
cmake --build --preset "$preset" --target "$@"
