// The libraries that multiply matrices: candidates name one, and the device calls it. Tests:
// tests/device/blas_test.cpp, tests/device/onednn_test.cpp, tests/candidates/gemm_configs_test.cpp
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace millrace {

enum class GemmLibrary { openblas, blis, onednn, mkl, cublaslt };

// The libraries' names in the text of a candidate.
inline constexpr std::array<std::pair<GemmLibrary, std::string_view>, 5> kGemmLibraries = {
    {{GemmLibrary::openblas, "openblas"},
     {GemmLibrary::blis, "blis"},
     {GemmLibrary::onednn, "onednn"},
     {GemmLibrary::mkl, "mkl"},
     {GemmLibrary::cublaslt, "cublaslt"}}};

constexpr std::string_view word_of(GemmLibrary library) {
  for (const auto& [each, word] : kGemmLibraries) {
    if (each == library) return word;
  }
  return "";
}

constexpr std::optional<GemmLibrary> gemm_library_of(std::string_view word) {
  for (const auto& [library, each] : kGemmLibraries) {
    if (each == word) return library;
  }
  return std::nullopt;
}

}  // namespace millrace
