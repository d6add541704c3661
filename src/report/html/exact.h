// A number as text that reads back as the same number.
// Test: tests/report/document_test.cpp
#pragma once

#include <string>

namespace millrace {

std::string exact(double value);

}  // namespace millrace
