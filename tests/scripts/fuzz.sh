#!/usr/bin/env bash
# fuzz.sh TARGET SECONDS: runs one libFuzzer target under both sanitizers, on a copy of its corpus. Findings are
# stored in build/fuzz/found/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=$1
seconds=$2
binary=build/sanitize/tests/fuzz/${target}_fuzzer
seeds=tests/fuzz/corpus/$target
corpus=build/fuzz/corpus/$target
found=build/fuzz/found/$target-

[[ -d $seeds ]] || { echo "fuzz: no corpus in $seeds" >&2; exit 1; }
rm -rf "$corpus"
mkdir -p "$corpus" build/fuzz/found
cp -r "$seeds/." "$corpus"

options=(-max_total_time="$seconds" -max_len=4096 -rss_limit_mb=512 -timeout=10 -print_final_stats=1)
[[ -f tests/fuzz/$target.dict ]] && options+=(-dict="tests/fuzz/$target.dict")
if ! "$binary" "${options[@]}" -artifact_prefix="$found" "$corpus"; then
  echo "fuzz: $target failed; run again with: $binary $found*" >&2
  exit 1
fi
