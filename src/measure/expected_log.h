// Where expected values came from and how long they took, for benchmarks: a line per partition in the file that
// MILLRACE_EXPECTED_LOG names. Test: tests/measure/gpu_reference_test.cpp
#pragma once

#include <string>

namespace millrace {

// Appends "seconds<tab>where<tab>partition". Does nothing if the variable is not set.
void log_expected(double seconds, const std::string& where, const std::string& partition);

}  // namespace millrace
