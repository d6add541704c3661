#include "frontend/functions.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "frontend/function_handlers.h"

namespace millrace {
namespace {

struct Signature {
  std::string_view name;
  // Separated by spaces. Those after '|' are optional, those after '*' must be named; '?' allows None, which is the
  // same as an absent argument.
  std::string_view parameters;
  FunctionHandler handler;
  OperatorKind kind = OperatorKind::copy;
};

constexpr auto kSignatures = std::to_array<Signature>({
    {"exp", "x", call_map, OperatorKind::exp},
    {"log", "x", call_map, OperatorKind::log},
    {"sqrt", "x", call_map, OperatorKind::sqrt},
    {"tanh", "x", call_map, OperatorKind::tanh},
    {"abs", "x", call_map, OperatorKind::absolute},
    {"absolute", "x", call_map, OperatorKind::absolute},
    {"negative", "x", call_map, OperatorKind::negate},
    {"square", "x", call_square, OperatorKind::power},
    {"power", "x exponent", call_power, OperatorKind::power},
    {"add", "a b", call_map, OperatorKind::add},
    {"subtract", "a b", call_map, OperatorKind::subtract},
    {"multiply", "a b", call_map, OperatorKind::multiply},
    {"divide", "a b", call_map, OperatorKind::divide},
    {"maximum", "a b", call_map, OperatorKind::maximum},
    {"minimum", "a b", call_map, OperatorKind::minimum},
    {"where", "condition a b", call_where, OperatorKind::where},
    {"sum", "x |axis keepdims", call_reduction, OperatorKind::sum},
    {"mean", "x |axis keepdims", call_mean, OperatorKind::sum},
    {"max", "x |axis keepdims", call_reduction, OperatorKind::max},
    {"min", "x |axis keepdims", call_reduction, OperatorKind::min},
    {"amax", "x |axis keepdims", call_reduction, OperatorKind::max},
    {"amin", "x |axis keepdims", call_reduction, OperatorKind::min},
    {"relu", "x", call_map, OperatorKind::relu},
    {"gelu", "x", call_map, OperatorKind::gelu},
    {"gelu_tanh", "x", call_map, OperatorKind::gelu_tanh},
    {"silu", "x", call_map, OperatorKind::silu},
    {"softmax", "x |axis", call_softmax, OperatorKind::softmax},
    {"layernorm", "x |weight? bias? axis eps", call_layernorm, OperatorKind::layernorm},
    {"rmsnorm", "x |weight? axis eps", call_rmsnorm, OperatorKind::rmsnorm},
    {"dropout", "x |p", call_dropout, OperatorKind::dropout},
    {"causal_mask", "x", call_causal_mask, OperatorKind::causal_mask},
    {"sin", "x", call_map, OperatorKind::sin},
    {"cos", "x", call_map, OperatorKind::cos},
    {"log1p", "x", call_map, OperatorKind::log1p},
    {"expm1", "x", call_map, OperatorKind::expm1},
    {"sign", "x", call_map, OperatorKind::sign},
    {"erf", "x", call_map, OperatorKind::erf},
    {"sigmoid", "x", call_map, OperatorKind::sigmoid},
    {"softplus", "x", call_map, OperatorKind::softplus},
    {"exp2", "x", call_exp2},
    {"log2", "x", call_log2},
    {"log10", "x", call_log10},
    {"reciprocal", "x", call_reciprocal},
    {"clip", "x a_min? a_max?", call_clip},
    {"less", "a b", call_map, OperatorKind::less},
    {"less_equal", "a b", call_map, OperatorKind::less_equal},
    {"greater", "a b", call_swapped, OperatorKind::less},
    {"greater_equal", "a b", call_swapped, OperatorKind::less_equal},
    {"equal", "a b", call_map, OperatorKind::equal},
    {"not_equal", "a b", call_map, OperatorKind::not_equal},
    {"logical_and", "a b", call_map, OperatorKind::logical_and},
    {"logical_or", "a b", call_map, OperatorKind::logical_or},
    {"logical_not", "a", call_map, OperatorKind::logical_not},
    {"var", "x |axis * ddof keepdims", call_var},
    {"std", "x |axis * ddof keepdims", call_std},
    {"norm", "x |ord? axis keepdims", call_norm},
    {"logsumexp", "x |axis keepdims", call_logsumexp, OperatorKind::log_sum_exp},
    {"log_softmax", "x |axis", call_log_softmax},
    {"batchnorm", "x |weight? bias? axis eps", call_batchnorm},
    {"groupnorm", "x groups |weight? bias? axis eps", call_groupnorm},
    {"matmul", "a b", call_matmul},
    {"dot", "a b", call_dot},
    {"inner", "a b", call_inner},
    {"vdot", "a b", call_vdot},
    {"outer", "a b", call_outer},
    {"tensordot", "a b |axes", call_tensordot},
    {"prod", "x |axis keepdims", call_prod},
    {"cumsum", "x |axis", call_cumsum},
    {"conv1d", "x weight |bias? stride padding", call_conv1d},
    {"conv2d", "x weight |bias? stride padding", call_conv2d},
    {"depthwise", "x weight |bias? stride padding", call_depthwise},
    {"max_pool2d", "x size |stride? padding", call_max_pool2d},
    {"avg_pool2d", "x size |stride? padding", call_avg_pool2d},
    {"take", "x ids |axis", call_take},
    {"take_along_axis", "x ids axis", call_take_along_axis},
    {"cross_entropy", "logits labels", call_cross_entropy},
    {"zeros", "shape", call_zeros},
    {"ones", "shape", call_ones},
    {"full", "shape fill_value", call_full},
    {"zeros_like", "x", call_zeros_like},
    {"ones_like", "x", call_ones_like},
    {"full_like", "x fill_value", call_full_like},
    {"arange", "start |stop step", call_arange},
    {"eye", "N |M? k", call_eye},
    {"tril", "x |k", call_tril},
    {"triu", "x |k", call_triu},
});

const Signature* find_signature(std::string_view name) {
  const auto* const found =
      std::find_if(kSignatures.begin(), kSignatures.end(), [&](const Signature& s) { return s.name == name; });
  return found == kSignatures.end() ? nullptr : found;
}

struct Parameters {
  std::vector<std::string> names;
  std::vector<bool> may_be_none;
  size_t required = 0;
  size_t positional = 0;
};

Parameters parameters_of(const Signature& signature) {
  Parameters parameters;
  bool optional = false;
  bool named = false;
  for (std::string& name : split(signature.parameters, ' ')) {
    if (name == "*") {
      named = true;
      continue;
    }
    if (name.front() == '|') {
      optional = true;
      name.erase(0, 1);
    }
    parameters.may_be_none.push_back(name.back() == '?');
    if (name.back() == '?') name.pop_back();
    if (!optional) ++parameters.required;
    if (!named) ++parameters.positional;
    parameters.names.push_back(std::move(name));
  }
  return parameters;
}

bool takes_lists(const std::string& parameter) {
  return parameter == "axis" || parameter == "axes" || parameter == "shape";
}

// Sorts positional and named arguments into the signature's parameters.
bool bind_arguments(FunctionCall& call, const std::vector<Value>& values, const Parameters& parameters) {
  const std::string usage = concat("write ", call.expression.text, "(", join(parameters.names, ", "), ")");
  call.arguments.resize(parameters.names.size());
  std::vector<bool> given(parameters.names.size(), false);
  for (size_t k = 0; k < values.size(); ++k) {
    const std::string& keyword = call.expression.keywords[k];
    size_t parameter = k;
    if (!keyword.empty()) {
      const auto named = std::find(parameters.names.begin(), parameters.names.end(), keyword);
      parameter = static_cast<size_t>(named - parameters.names.begin());
    }
    const size_t most = keyword.empty() ? parameters.positional : parameters.names.size();
    if (parameter >= most) {
      const char* const what = most < parameters.names.size() ? " without a name" : "";
      const char* const noun = most == 1 ? " argument" : " arguments";
      call.report(keyword.empty() ? concat("'", call.expression.text, "' takes at most ", most, noun, what)
                                  : concat("'", call.expression.text, "' has no argument '", keyword, "'"),
                  usage);
      return false;
    }
    if (given[parameter]) {
      call.report(concat("argument '", parameters.names[parameter], "' is given twice"), usage);
      return false;
    }
    const ValueKind kind = values[k].kind;
    if (kind == ValueKind::broken) return false;
    given[parameter] = true;
    if (kind == ValueKind::nothing && parameters.may_be_none[parameter]) continue;
    if (kind != ValueKind::number && kind != ValueKind::view && !takes_lists(parameters.names[parameter])) {
      call.report(concat("argument '", parameters.names[parameter], "' is neither a tensor nor a number"), usage);
      return false;
    }
    call.arguments[parameter] = values[k];
  }
  for (size_t k = 0; k < parameters.required; ++k) {
    if (given[k]) continue;
    call.report(concat("'", call.expression.text, "' needs an argument '", parameters.names[k], "'"), usage);
    return false;
  }
  return true;
}

}  // namespace

bool is_named_function(const std::string& name) { return find_signature(name) != nullptr; }

std::vector<std::string> named_functions() {
  std::vector<std::string> names = {"einsum"};
  for (const Signature& signature : kSignatures) names.emplace_back(signature.name);
  return names;
}

Value call_named_function(const Expression& call, const std::vector<Value>& arguments, Builder& builder,
                          Diagnostics& diagnostics) {
  const Signature& signature = *find_signature(call.text);
  FunctionCall bound{call, builder, diagnostics, {}};
  if (!bind_arguments(bound, arguments, parameters_of(signature))) return Value::broken();
  return signature.handler(bound, signature.kind);
}

}  // namespace millrace
