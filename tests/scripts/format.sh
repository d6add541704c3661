#!/usr/bin/env bash
# Formats all C++ files in place; with --check it changes nothing and fails if a file would change.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/scripts/sources.sh

mode=(-i)
[[ ${1:-} == --check ]] && mode=(--dry-run -Werror)
tool=$(judging_tool clang-format)
mapfile -t files < <(our_files '.*\.(h|cpp|cu|cuh)' include src tools tests bench bindings examples)
"$tool" "${mode[@]}" "${files[@]}"
echo "${#files[@]} files formatted as .clang-format says"
