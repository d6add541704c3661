// The style sheet and the script of reports: real files, embedded in the program as text.
// Test: tests/python/report_test.py
#pragma once

#include <string_view>

namespace millrace {

std::string_view report_style();
std::string_view report_script();

}  // namespace millrace
