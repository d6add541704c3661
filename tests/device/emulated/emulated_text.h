// The emulated hardware of tests/codegen/, as text.
#pragma once

#include <string>
#include <string_view>

namespace millrace::emulated {

std::string_view emulated_hardware();
std::string_view emulated_matrices();  // emulated_smem.h, emulated_matrices.h and emulated_wgmma.h

// Replaces every copy of cuda_matrices.h in the text by its emulation.
std::string with_emulated_matrices(std::string text);

}  // namespace millrace::emulated
