#!/bin/bash
# Builds and runs selection.cpp: how long selection takes on generated measurements, and how small its proven gap is.
# With an argument, it runs only the problems whose name contains it: layer, deep, skips or chain.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p build/selection
g++ -std=c++20 -O2 -Isrc -Iinclude -Itests -o build/selection/selection bench/selection/selection.cpp src/select/*.cpp \
  src/base/quote.cpp src/base/result.cpp src/base/text.cpp
exec build/selection/selection "$@"
