// A number as text that reads back as the same number.
#pragma once

#include <string>

namespace millrace {

std::string exact(double value);

}  // namespace millrace
