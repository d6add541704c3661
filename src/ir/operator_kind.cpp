#include "ir/operator_kind.h"

#include <array>

namespace millrace {
namespace {

constexpr auto kOperators = std::to_array<OperatorInfo>({
#define MILLRACE_OPERATOR(kind, class_name, inputs, outputs, flop, gradient) \
  {#kind, OperatorClass::class_name, inputs, outputs, flop, gradient},
#include "ir/operators.inc"
#undef MILLRACE_OPERATOR
});

}  // namespace

const OperatorInfo& info_of(OperatorKind kind) { return kOperators.at(static_cast<size_t>(kind)); }

std::optional<OperatorKind> operator_named(std::string_view name) {
  for (size_t k = 0; k < kOperators.size(); ++k) {
    if (kOperators.at(k).name == name) return static_cast<OperatorKind>(k);
  }
  return std::nullopt;
}

std::string_view name_of(OperatorClass operator_class) {
  switch (operator_class) {
    case OperatorClass::contraction: return "contraction";
    case OperatorClass::normalization: return "normalization";
    case OperatorClass::elementwise: return "elementwise";
  }
  return "";
}

}  // namespace millrace
