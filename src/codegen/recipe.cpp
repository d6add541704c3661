#include "codegen/recipe.h"

#include "base/text.h"

namespace millrace {
namespace {

std::vector<Instruction> mapped(const std::string& expression) { return {{InstructionKind::map, 0, expression}}; }

// A whole exponent is written into the source; any other is a kernel value.
std::string power(const std::string& base, double exponent) {
  const int whole = exponent >= -4 && exponent <= 4 ? static_cast<int>(exponent) : 0;
  if (whole != exponent || whole == 0) return "";
  std::vector<std::string> factors(static_cast<size_t>(whole < 0 ? -whole : whole), base);
  const std::string product = concat("(", join(factors, " * "), ")");
  return whole > 0 ? product : concat("(F(1) / ", product, ")");
}

std::string power_of(const std::string& base, double exponent, const std::string& passed) {
  if (exponent == 0) return "mr::splat<E>(1)";  // also of infinities and NaNs
  const std::string whole = power(base, exponent);
  return whole.empty() ? concat("mr::power(", base, ", ", passed, ")") : whole;
}

// The input whose region contains the point, or the value outside all regions.
std::string first_inside(size_t inputs) {
  std::string expression = "mr::splat<E>(VALUE)";
  for (size_t k = inputs; k-- > 0;) expression = concat("mr::select(INSIDE", k, ", $", k, ", ", expression, ")");
  return expression;
}

}  // namespace

bool is_reduction(InstructionKind kind) {
  return kind == InstructionKind::sum || kind == InstructionKind::maximum || kind == InstructionKind::minimum;
}

std::vector<Instruction> recipe_of(const Operator& op) {
  using enum InstructionKind;
  switch (op.kind) {
    case OperatorKind::add: return mapped("$0 + $1");
    case OperatorKind::subtract: return mapped("$0 - $1");
    case OperatorKind::multiply: return mapped("$0 * $1");
    case OperatorKind::divide: return mapped("$0 / $1");
    case OperatorKind::negate: return mapped("-$0");
    case OperatorKind::absolute: return mapped("mr::absolute($0)");
    case OperatorKind::exp: return mapped("mr::exp($0)");
    case OperatorKind::log: return mapped("mr::log($0)");
    case OperatorKind::sqrt: return mapped("mr::sqrt($0)");
    case OperatorKind::tanh: return mapped("mr::tanh($0)");
    case OperatorKind::sin: return mapped("mr::sin($0)");
    case OperatorKind::cos: return mapped("mr::cos($0)");
    case OperatorKind::log1p: return mapped("mr::log1p($0)");
    case OperatorKind::expm1: return mapped("mr::expm1($0)");
    case OperatorKind::erf: return mapped("mr::erf($0)");
    case OperatorKind::sign: return mapped("mr::sign($0)");
    case OperatorKind::power: return mapped(power_of("$0", op.value, "VALUE"));
    case OperatorKind::maximum: return mapped("mr::larger($0, $1)");
    case OperatorKind::minimum: return mapped("mr::smaller($0, $1)");
    case OperatorKind::less: return mapped("mr::boolean<E>($0 < $1)");
    case OperatorKind::less_equal: return mapped("mr::boolean<E>($0 <= $1)");
    case OperatorKind::equal: return mapped("mr::boolean<E>($0 == $1)");
    case OperatorKind::not_equal: return mapped("mr::boolean<E>($0 != $1)");
    case OperatorKind::logical_and: return mapped("mr::smaller($0, $1)");
    case OperatorKind::logical_or: return mapped("mr::larger($0, $1)");
    case OperatorKind::logical_not: return mapped("F(1) - $0");
    case OperatorKind::where: return mapped("mr::select($0 != mr::splat<E>(0), $1, $2)");
    case OperatorKind::relu: return mapped("mr::larger(mr::splat<E>(0), $0)");
    case OperatorKind::gelu: return mapped("mr::gelu($0)");
    case OperatorKind::gelu_tanh: return mapped("mr::gelu_tanh($0)");
    case OperatorKind::silu: return mapped("mr::silu($0)");
    case OperatorKind::sigmoid: return mapped("F(1) / (F(1) + mr::exp(-$0))");
    case OperatorKind::softplus: return mapped("mr::softplus($0)");
    case OperatorKind::dropout: return {{InstructionKind::map, 0, "$0 * MASK"}, {InstructionKind::map, 1, "MASK"}};
    case OperatorKind::causal_mask: return mapped("mr::select(CONDITION, mr::splat<E>(-mr::infinity()), $0)");
    case OperatorKind::copy: return mapped("$0");
    case OperatorKind::join: return mapped(first_inside(op.inputs.size()));
    case OperatorKind::index: return mapped("mr::number<E>(POSITION)");
    case OperatorKind::gather: return mapped("GATHERED($1)");
    case OperatorKind::embed_diagonal: return mapped("mr::select(CONDITION, $0, mr::splat<E>(0))");
    case OperatorKind::tanh_dx: return mapped("$1 * (F(1) - $0 * $0)");
    case OperatorKind::erf_dx: return mapped("$1 * (F(1.12837916709551257390) * mr::exp(-($0 * $0)))");
    case OperatorKind::sigmoid_dx: return mapped("$1 * ($0 * (F(1) - $0))");
    case OperatorKind::power_dx: return mapped(concat("$1 * VALUE * ", power_of("$0", op.value - 1, "(VALUE - F(1))")));
    case OperatorKind::relu_dx: return mapped("mr::select($0 > mr::splat<E>(0), $1, mr::splat<E>(0))");
    case OperatorKind::gelu_dx: return mapped("mr::gelu_dx($0, $1)");
    case OperatorKind::gelu_tanh_dx: return mapped("mr::gelu_tanh_dx($0, $1)");
    case OperatorKind::silu_dx: return mapped("mr::silu_dx($0, $1)");
    case OperatorKind::dropout_dx: return mapped("$0 * $1");
    case OperatorKind::causal_mask_dx: return mapped("mr::select(CONDITION, mr::splat<E>(0), $0)");
    case OperatorKind::sum: return {{sum, 0, "$0"}, {row_map, 0, "%0"}};
    case OperatorKind::max: return {{maximum, 0, "$0"}, {row_map, 0, "%0"}};
    case OperatorKind::min: return {{minimum, 0, "$0"}, {row_map, 0, "%0"}};
    case OperatorKind::scatter_add:
      return {{sum, 0, "mr::select(SELECTED($1) == mr::number<E>(POSITION), $0, mr::splat<E>(0))"}, {row_map, 0, "%0"}};
    case OperatorKind::extremum_dx:
      return {{sum, 0, "mr::boolean<E>($0 == $1)"},
              {InstructionKind::map, 0, "mr::select($0 == $1, $2 / %0, mr::splat<E>(0))"}};
    case OperatorKind::softmax:
      return {{maximum, 0, "$0"},
              {temporary, 0, "mr::exp($0 - %0)"},
              {sum, 1, "@0"},
              {row, 2, "F(1) / %1"},
              {InstructionKind::map, 0, "@0 * %2"}};
    case OperatorKind::softmax_dx: return {{sum, 0, "$0 * $1"}, {InstructionKind::map, 0, "$0 * ($1 - %0)"}};
    case OperatorKind::log_sum_exp:
      return {{maximum, 0, "$0"}, {sum, 1, "mr::exp($0 - %0)"}, {row_map, 0, "mr::log(%1) + %0"}};
    case OperatorKind::layernorm:
      return {{sum, 0, "$0"},
              {row, 1, "%0 / F(#)"},
              {sum, 2, "($0 - %1) * ($0 - %1)"},
              {row, 3, "F(1) / mr::sqrt(%2 / F(#) + VALUE)"},
              {InstructionKind::map, 0, "($0 - %1) * %3 * $1 + $2"},
              {row_map, 1, "%1"},
              {row_map, 2, "%3"}};
    case OperatorKind::layernorm_dx:
      return {{temporary, 0, "$4 * $1"},
              {temporary, 1, "($0 - $2) * $3"},
              {sum, 0, "@0"},
              {sum, 1, "@0 * @1"},
              {row, 2, "%0 / F(#)"},
              {row, 3, "%1 / F(#)"},
              {InstructionKind::map, 0, "$3 * (@0 - %2 - @1 * %3)"}};
    case OperatorKind::layernorm_dw:
      return {{sum, 0, "$3 * ($0 - $1) * $2"}, {sum, 1, "$3"}, {row_map, 0, "%0"}, {row_map, 1, "%1"}};
    case OperatorKind::rmsnorm:
      return {{sum, 0, "$0 * $0"},
              {row, 1, "F(1) / mr::sqrt(%0 / F(#) + VALUE)"},
              {InstructionKind::map, 0, "$0 * %1 * $1"},
              {row_map, 1, "%1"}};
    case OperatorKind::rmsnorm_dx:
      return {{temporary, 0, "$3 * $1"},
              {sum, 0, "@0 * $0"},
              {row, 1, "%0 / F(#)"},
              {InstructionKind::map, 0, "$2 * (@0 - $0 * $2 * $2 * %1)"}};
    case OperatorKind::rmsnorm_dw: return {{sum, 0, "$1 * $0 * $2"}, {row_map, 0, "%0"}};
    case OperatorKind::contraction: {
      std::string scaled = "%0";
      for (size_t k = 2; k < op.inputs.size(); ++k) scaled += concat(" * $", k);
      return {{sum, 0, "$0 * $1"}, {row_map, 0, scaled}};
    }
  }
  return {};
}

}  // namespace millrace
