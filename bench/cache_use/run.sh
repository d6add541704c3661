#!/bin/bash
# Builds and runs cache_use.cpp with OpenBLAS on one thread: for a small, a medium and a large layer, unless its rows,
# columns and hidden columns are given. CPU seconds of the thread, so other processes disturb it less.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p build/cache_use
blas=$(ls /usr/lib/*-linux-gnu/openblas-openmp/libopenblas.so.0 | head -n 1)
g++ -std=c++20 -O2 -o build/cache_use/cache_use bench/cache_use/cache_use.cpp "$blas" -Wl,-rpath,"$(dirname "$blas")"
export OMP_NUM_THREADS=1
if [[ $# -gt 0 ]]; then exec build/cache_use/cache_use "$@"; fi
for layer in "16 256 1024" "16 512 2048" "128 512 2048" "4 768 1500"; do
  # shellcheck disable=SC2086
  build/cache_use/cache_use $layer
done
