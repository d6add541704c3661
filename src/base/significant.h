// Numbers as text, whatever the process's locale is: printf would write 0,5 in many. Test: tests/base/text_test.cpp
#pragma once

#include <string>

namespace millrace {

// At most this many significant digits, up to 17, as printf's %g in the locale "C".
std::string significant(double value, int digits);

}  // namespace millrace
