#!/usr/bin/env bash
# Runs clang-tidy on the product's sources in parallel, the files of a folder as one, because most of its time goes into
# headers. (This hides misc-unused-using-decls.) The GPU backend is checked only where it is built, since it needs CUDA's
# headers. A unit that passed is skipped until one of its files, one of our headers, the compile flags or the
# configuration changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/scripts/sources.sh

tool=$(judging_tool clang-tidy)
cmake --preset lint >/dev/null
build=build/lint
passed=$build/passed
mkdir -p "$passed"
mapfile -t shared < <(our_files '.*\.(h|inc)' include src tools)
shared_hash=$(cat .clang-tidy "$build/compile_commands.json" "${shared[@]}" | sha256sum | cut -c1-16)

# Our compiled units: folders, and single files.
units() { sed -nE 's/^ *"file": "(.*)",?$/\1/p' "$build/compile_commands.json" | grep -E '/(Unity|src|tools)/' | sort -u; }
# The files of a unit, or the unit itself if it is one file.
files_of() { sed -nE 's/^#include "(.*\.cpp)"$/\1/p' "$1" | grep . || echo "$1"; }

# Checks one unit, and prints nothing if it passes; clang-tidy's count of suppressed warnings is noise. A folder's unit
# includes its .cpp files.
check_one() {
  local unit=$1 stamp output files
  mapfile -t files < <(files_of "$unit")
  stamp=$passed/$(echo "$shared_hash $unit" | cat - "${files[@]}" | sha256sum | cut -c1-32)
  [[ -f $stamp ]] && return
  if output=$("$tool" --quiet --checks=-bugprone-suspicious-include --extra-arg=-Wno-unknown-warning-option -p "$build" \
    "$unit" 2>&1); then
    touch "$stamp"
  else
    grep -v -E '^[0-9]+ warnings?( and [0-9]+ errors?)? generated' <<<"$output" || true
    return 1
  fi
}
export -f check_one files_of
export passed shared_hash tool build

find "$passed" -type f -mtime +14 -delete
# Largest first.
# shellcheck disable=SC2016  # the inner shell expands $1
units | while read -r unit; do echo "$(files_of "$unit" | xargs cat | wc -c) $unit"; done | sort -rn | cut -d ' ' -f 2- |
  tr '\n' '\0' | xargs -0 -n 1 -P "$(nproc)" bash -c 'check_one "$1"' check_one ||
  { echo "lint: clang-tidy found the problems above" >&2; exit 1; }
echo "$(our_files '.*\.cpp' src tools | wc -l) sources pass clang-tidy"
