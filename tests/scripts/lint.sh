#!/usr/bin/env bash
# Runs clang-tidy over the sources of the product, in parallel. A file that passed is not looked at again until it, a header of ours,
# the compile flags or the configuration changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/scripts/sources.sh

build=${1:-build/release}
passed=build/lint
mkdir -p "$passed"
if [[ ! -f $build/compile_commands.json ]]; then
  echo "lint: $build/compile_commands.json is not there: configure first (cmake --preset release)" >&2
  exit 1
fi

tool=$(judging_tool clang-tidy)
mapfile -t sources < <(our_files '.*\.cpp' src tools bindings/c)
# The GPU backend is checked where it is built: elsewhere there are no headers of CUDA's.
grep -q src/device/cuda/gpu.cpp "$build/compile_commands.json" ||
  mapfile -t sources < <(printf '%s\n' "${sources[@]}" | grep -v '^src/device/cuda/')
mapfile -t shared < <(our_files '.*\.(h|inc)' include src tools)
shared_hash=$(cat .clang-tidy "$build/compile_commands.json" "${shared[@]}" | sha256sum | cut -c1-16)

# One file: silent when it passes; clang-tidy's count of suppressed warnings is noise.
check_one() {
  local source=$1 stamp output
  stamp=$passed/$(echo "$shared_hash $source" | cat - "$source" | sha256sum | cut -c1-32)
  [[ -f $stamp ]] && return
  if output=$("$tool" --quiet --extra-arg=-Wno-unknown-warning-option -p "$build" "$source" 2>&1); then
    touch "$stamp"
  else
    grep -v -E '^[0-9]+ warnings?( and [0-9]+ errors?)? generated' <<<"$output" || true
    return 1
  fi
}
export -f check_one
export passed shared_hash tool build

find "$passed" -type f -mtime +14 -delete
# shellcheck disable=SC2016  # the inner shell expands $1
printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'check_one "$1"' check_one ||
  { echo "lint: clang-tidy found something in the files above" >&2; exit 1; }
echo "${#sources[@]} sources pass clang-tidy"
