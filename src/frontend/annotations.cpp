#include "frontend/annotations.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace millrace {

std::optional<DType> tensor_type(const Expression& name) {
  if (name.kind != ExpressionKind::name) return std::nullopt;
  if (name.text == "bool_") return DType::boolean;
  const std::optional<DType> dtype = dtype_named(name.text);
  return dtype == DType::boolean ? std::nullopt : dtype;
}

bool is_integer_type(const Expression& name) {
  static constexpr auto kTypes =
      std::to_array<std::string_view>({"int8", "int16", "int32", "int64", "uint8", "bool", "bool_", "int"});
  return name.kind == ExpressionKind::name && std::find(kTypes.begin(), kTypes.end(), name.text) != kTypes.end();
}

std::optional<DType> annotated_dtype(const Expression& name, std::optional<DType> chosen, Diagnostics& diagnostics) {
  const std::optional<DType> dtype = tensor_type(name);
  if (dtype) return is_floating(*dtype) ? chosen.value_or(*dtype) : *dtype;
  const bool integer = is_integer_type(name);
  diagnostics.report(name.location,
                     integer ? concat("'", name.text, "' is not a tensor's type") : "this is not a tensor's type",
                     integer ? "write int32, int64 or bool_, with sizes: int32[A, B]"
                             : "write float16, bfloat16, float32 or float64, with sizes: float32[A, B]");
  return std::nullopt;
}

std::optional<std::vector<DimId>> annotated_dims(const Expression& annotation, const Numbers& numbers, Builder& builder,
                                                 Diagnostics& diagnostics) {
  if (annotation.children.size() - 1 > kMaxRank) {
    diagnostics.report(annotation.location, concat("this tensor has ", annotation.children.size() - 1, " dimensions"),
                       concat("at most ", kMaxRank, " are allowed"));
    return std::nullopt;
  }
  std::vector<DimId> dims;
  int64_t elements = 1;
  for (size_t k = 1; k < annotation.children.size(); ++k) {
    const Expression& size = annotation.children[k];
    const Value value = evaluate_number(size, numbers, diagnostics);
    if (value.kind == ValueKind::broken) return std::nullopt;
    if (!value.integer || *value.integer < 1) {
      diagnostics.report(size.location, "a size must be a positive integer", "use a module-level integer");
      return std::nullopt;
    }
    constexpr int64_t kMaxElements = int64_t{1} << 50;
    if (*value.integer > kMaxElements / elements) {
      diagnostics.report(size.location, "this tensor has more than 2^50 elements", "choose smaller sizes");
      return std::nullopt;
    }
    elements *= *value.integer;
    dims.push_back(builder.dim(size.kind == ExpressionKind::name ? size.text : concat(*value.integer), *value.integer));
  }
  return dims;
}

}  // namespace millrace
