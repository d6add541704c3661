// Runs commands that start other programs, such as compilers, so that all of them end when Millrace ends. Test:
// tests/python/optimize_test.py
#pragma once

#include <string>
#include <vector>

namespace millrace {

// The command under millrace-guard (tools/guard.cpp); the command itself where that program is not installed.
// `arguments`: the program's path first.
std::vector<std::string> guarded(std::vector<std::string> arguments);

}  // namespace millrace
