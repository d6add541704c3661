// tests/codegen/emulated_hardware.h, as text.
#pragma once

#include <string_view>

namespace millrace::played {

std::string_view emulated_hardware();

}  // namespace millrace::played
