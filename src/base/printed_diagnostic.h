// The printed form of errors and warnings: `file:line:column: SEVERITY: …`, the line with a caret, the remedy. Test:
// tests/error/error_test.cpp
#pragma once

#include <string>

#include "millrace/result.h"

namespace millrace {

std::string printed(const Diagnostic& diagnostic, const char* severity);

}  // namespace millrace
