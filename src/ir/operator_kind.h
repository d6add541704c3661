// The kinds of operators, and the properties of each from operators.inc. Tests: tests/reference/interpreter_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace {

enum class OperatorKind {
#define MILLRACE_OPERATOR(kind, ...) kind,
#include "ir/operators.inc"
#undef MILLRACE_OPERATOR
};

// The paper's three classes (section 3.2).
enum class OperatorClass { contraction, normalization, elementwise };

struct OperatorInfo {
  std::string_view name;
  OperatorClass operator_class;
  int inputs;
  int outputs;
  int64_t flop;  // per point of the iteration space
  std::string_view gradient;
};

const OperatorInfo& info_of(OperatorKind kind);
std::optional<OperatorKind> operator_named(std::string_view name);
std::string_view name_of(OperatorClass operator_class);

}  // namespace millrace
