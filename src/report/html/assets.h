// The style and the script of reports: real files, in the program as texts.
#pragma once

#include <string_view>

namespace millrace {

std::string_view report_style();
std::string_view report_script();

}  // namespace millrace
