#include "frontend/shape_functions.h"

namespace millrace {

bool is_shape_function(const std::string&) { return false; }

std::vector<std::string> shape_functions() { return {}; }

Value call_shape_function(const Expression& call, const std::vector<Value>&, Builder&, Diagnostics& diagnostics) {
  constexpr std::string_view kShapesNotBuilt = "functions of shapes are not built yet";
  diagnostics.report(call.location, kShapesNotBuilt);
  return Value::broken();
}

}  // namespace millrace
