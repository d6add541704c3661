// tests/codegen/emulated_hardware.h and emulated_matrices.h, as text.
#pragma once

#include <string>
#include <string_view>

namespace millrace::emulated {

std::string_view emulated_hardware();
std::string_view emulated_matrices();

// What an attention's kernels take of the hardware, in its place what is emulated; once a kernel of a text.
std::string with_emulated_matrices(std::string text);

}  // namespace millrace::emulated
