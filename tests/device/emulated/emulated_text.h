// tests/codegen/emulated_hardware.h and emulated_matrices.h, as text.
#pragma once

#include <string>
#include <string_view>

namespace millrace::emulated {

std::string_view emulated_hardware();
std::string_view emulated_matrices();

// Replaces every copy of cuda_matrices.h in the text by its emulation.
std::string with_emulated_matrices(std::string text);

}  // namespace millrace::emulated
