#!/usr/bin/env bash
# Builds the tests under the thread sanitizer and runs those of code that has threads or shares files with other
# processes: the kernel cache, processes, workers, explorations, the database, the reference. OpenMP is left out, because
# the sanitizer does not understand its synchronization.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tests/scripts/build_preset.sh tsan millrace_tests
TSAN_OPTIONS="halt_on_error=1 die_after_fork=0 ${TSAN_OPTIONS:-}" exec build/tsan/tests/millrace_tests --gtest_brief=1 \
  --gtest_filter='KernelCacheTest.*:ProcessTest.*:ChildTest.*:WorkerTest.*:ExploreTest.*:DatabaseTest.*:Interpret.*:GpuCompilerTest.*'
