// How long the phases of trials take, for benchmarks: a line per phase in the file that MILLRACE_TRIAL_LOG names.
// Test: tests/measure/gpu_reference_test.cpp
#pragma once

#include <string>

namespace millrace {

// Appends "seconds<tab>phase<tab>partition". Phases: "expected on the GPU"; "expected on the CPU", with a reason if the
// candidates run on a GPU; "check"; "time"; of the explorer, "choose", "compile" (the wait for kernels), "select" and
// "trial" (from a request to its reply). Does nothing if the variable is not set.
void log_trial(double seconds, const std::string& phase, const std::string& partition);

}  // namespace millrace
