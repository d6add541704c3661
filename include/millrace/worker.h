// The program `millrace-worker`: a process that tries candidates for an exploration and may crash without harm. Test:
// tests/measure/worker_test.cpp
#pragma once

namespace millrace {

// Answers requests from standard input until it ends; returns the exit code.
int worker_main();

}  // namespace millrace
