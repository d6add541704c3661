// A number as text from which the same number is read back.
#pragma once

#include <string>

namespace millrace {

std::string exact(double value);

}  // namespace millrace
