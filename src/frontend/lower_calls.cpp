#include <algorithm>
#include <array>

#include "base/text.h"
#include "frontend/annotations.h"
#include "frontend/einsum.h"
#include "frontend/functions.h"
#include "frontend/imports.h"
#include "frontend/lowerer.h"
#include "frontend/not_covered.h"
#include "frontend/shape_functions.h"

namespace millrace {
namespace {

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The functions that NumPy's tensors have as methods too.
bool is_method_name(std::string_view name) {
  static constexpr auto kMethods = std::to_array<std::string_view>(
      {"sum", "mean", "max", "min", "prod", "cumsum", "var", "std", "clip", "dot", "reshape", "transpose", "swapaxes",
       "squeeze", "ravel", "flatten", "repeat", "astype", "copy"});
  return contains(kMethods, name);
}

// The function as a program writes it: NumPy's with np., those of millrace.numpy without.
std::string written_name(std::string_view name) {
  static const std::vector<std::string> kOwn = split(
      "relu gelu gelu_tanh silu softmax layernorm rmsnorm dropout causal_mask sigmoid softplus erf log_softmax "
      "logsumexp batchnorm groupnorm cross_entropy conv1d conv2d depthwise max_pool2d avg_pool2d sliding_window_view",
      ' ');
  const bool own = std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end();
  return own ? std::string(name) : concat("np.", name);
}

// Functions that make a tensor, whose `dtype=` is the type of the result.
bool makes_tensor(std::string_view name) {
  static constexpr auto kMakers = std::to_array<std::string_view>(
      {"zeros", "ones", "full", "arange", "eye", "identity", "tri", "zeros_like", "ones_like", "full_like"});
  return contains(kMakers, name);
}

// A text argument that names the only behaviour that we have: np.pad's mode, the order of a reshape.
bool is_default_text(const Expression& call, size_t k) {
  struct Default {
    std::string_view function, keyword, text;
    size_t position;
  };
  static constexpr auto kDefaults = std::to_array<Default>({{"pad", "mode", "constant", 2},
                                                            {"reshape", "order", "C", 2},
                                                            {"ravel", "order", "C", 1},
                                                            {"flatten", "order", "C", 1}});
  return std::any_of(kDefaults.begin(), kDefaults.end(), [&](const Default& d) {
    const bool place = call.keywords[k].empty() ? k == d.position : call.keywords[k] == d.keyword;
    return d.function == call.text && place && call.children[k].text == d.text;
  });
}

bool is_library_function(const std::string& name) {
  return name == "einsum" || is_named_function(name) || is_shape_function(name);
}

// The name with its module, unless that is absurdly long.
std::string dotted(const Expression& call) {
  constexpr size_t kLongPrefix = 80;
  return concat(call.prefix.size() > kLongPrefix ? "…" : call.prefix, ".", call.text);
}

void remove_argument(Expression& call, size_t k) {
  call.children.erase(call.children.begin() + static_cast<std::ptrdiff_t>(k));
  call.keywords.erase(call.keywords.begin() + static_cast<std::ptrdiff_t>(k));
}

}  // namespace

Value Lowerer::lower_call(const Expression& call, Scope& scope) {
  if (call.method) return lower_method(call, scope);
  const auto function = functions_.find(call.text);
  if (call.prefix.empty() && function != functions_.end())
    return inline_call(call, *function->second, lower_arguments(call, scope));
  if (const std::optional<Value> infinite = infinite_float(call)) return *infinite;
  if (is_static_function(call)) return lower_static_call(call, scope);
  if (is_foreign_module(call.prefix) && is_library_function(call.text)) return foreign_function(call);
  if (call.text == "einsum") return lower_einsum_call(call, scope);
  return lower_library_call(call, scope);
}

std::vector<Value> Lowerer::lower_arguments(const Expression& call, Scope& scope) {
  std::vector<Value> arguments;
  for (const Expression& child : call.children) arguments.push_back(lower(child, scope));
  return arguments;
}

// Removes the arguments that are not values, then calls the function of NumPy or of millrace.numpy.
Value Lowerer::lower_library_call(const Expression& call, Scope& scope) {
  std::optional<Expression> shorter;
  std::optional<DType> type;
  for (size_t k = call.children.size(); k-- > 0;) {
    const bool is_text = call.children[k].kind == ExpressionKind::string;
    const bool is_type = call.keywords[k] == "dtype" && makes_tensor(call.text);
    if (is_type && !(type = type_argument(call.children[k]))) return Value::broken();
    if (is_text && call.text == "pad" && !is_default_text(call, k))
      return report(call.children[k].location, concat("np.pad with mode '", call.children[k].text, "' is not covered"),
                    "pad with a constant, or write np.concatenate([x[:1], x, x[-1:]])");
    if (!is_type && !(is_text && is_default_text(call, k))) continue;
    if (!shorter) shorter = call;
    remove_argument(*shorter, k);
  }
  const Expression& plain = shorter ? *shorter : call;
  if (!is_library_function(plain.text) || is_in_submodule(plain)) return unknown_function(plain);
  if (plain.text == "where" && plain.children.size() == 1)
    return report(plain.location, "np.where with one argument is not covered: its shape would depend on the data",
                  "write np.where(condition, x, 0)");
  const Value result = dispatch(plain, lower_arguments(plain, scope));
  return type ? cast_to(result, *type, plain.location) : result;
}

Value Lowerer::dispatch(const Expression& call, const std::vector<Value>& arguments) {
  if (call.text == "prod" && arguments.size() == 1 && arguments[0].kind == ValueKind::tuple) {
    Expression product = call;  // np.prod(x.shape)
    product.prefix = "math";
    product.method = false;
    return call_static_function(product, arguments, diagnostics_);
  }
  if (is_named_function(call.text)) return call_named_function(call, arguments, builder_, diagnostics_);
  return is_shape_function(call.text) ? call_shape_function(call, arguments, builder_, diagnostics_)
                                      : unknown_function(call);
}

Value Lowerer::lower_static_call(const Expression& call, Scope& scope) {
  const std::vector<Value> arguments = lower_arguments(call, scope);
  const bool tensor =
      std::any_of(arguments.begin(), arguments.end(), [](const Value& v) { return v.kind == ValueKind::view; });
  for (const Value& argument : arguments) {
    if (argument.kind == ValueKind::broken) return Value::broken();
    if (argument.kind == ValueKind::tuple && !spend(argument.items->size() / 8, call.location)) return Value::broken();
  }
  if (tensor && call.prefix == "math")
    return report(call.location, concat("'math.", call.text, "' takes numbers, not tensors"),
                  concat("write np.", call.text, "(x)"));
  if (tensor && call.text == "len" && arguments.size() == 1 && !arguments[0].view.axes.empty())
    return Value::of_integer(builder_.extent(arguments[0].view, 0));
  if (tensor && is_named_function(call.text)) return call_built_in(call, arguments);
  if (call.text == "sum" && arguments.size() == 1 && arguments[0].kind == ValueKind::tuple)
    return sum_of(arguments[0], call.location);
  return call_static_function(call, arguments, diagnostics_);
}

// abs(x), and sum, max and min of a tensor, which Python takes as the sequence of its rows.
Value Lowerer::call_built_in(const Expression& call, const std::vector<Value>& arguments) {
  if (call.text == "abs") return call_named_function(call, arguments, builder_, diagnostics_);
  const bool one = arguments.size() == 1 && !arguments[0].view.axes.empty();
  if (one && call.text == "sum") {
    std::vector<bool> rows(arguments[0].view.axes.size(), false);
    rows[0] = true;
    return builder_.reduce(OperatorKind::sum, arguments[0].view, rows, false, call.location);
  }
  if (one && arguments[0].view.axes.size() == 1) return call_named_function(call, arguments, builder_, diagnostics_);
  const std::string function = concat("np.", call.text, "(x, axis=…)");
  return report(call.location, concat("Python's '", call.text, "' does not take these tensors"),
                call.text == "sum" ? concat("write ", function)
                                   : concat("write np.", call.text, "imum(a, b) of two tensors, or ", function));
}

// sum(xs) of a list: its items from left to right.
Value Lowerer::sum_of(const Value& sequence, SourceLocation location) {
  Value total = Value::of_integer(0);
  for (size_t k = 0; k < sequence.items->size(); ++k) {
    const Value& item = (*sequence.items)[k];
    if (!is_arithmetic(item, location) || !spend(1, location)) return Value::broken();
    if (k == 0) {
      total = item;
    } else if (total.kind == ValueKind::number && item.kind == ValueKind::number) {
      total = static_binary("+", total, item, location, diagnostics_);
    } else {
      total = builder_.map(OperatorKind::add, {total, item}, location);
    }
    if (total.kind == ValueKind::broken) return total;
  }
  return total;
}

Value Lowerer::lower_method(const Expression& call, Scope& scope) {
  const Value base = lower(call.children[0], scope);
  if (base.kind == ValueKind::broken) return base;
  if (base.kind != ValueKind::view)
    return report(
        call.location, concat("only tensors have methods, such as '", call.text, "'"),
        base.list ? "lists support `xs.append(x)`, as a statement" : "write the function: np.sum(x), len(xs)");
  if (call.text == "astype") return lower_cast(base, call);
  if (call.text == "copy" && call.children.size() == 1) return base;
  Expression renamed;
  const bool flattens = call.text == "flatten";
  if (flattens) {
    renamed = call;
    renamed.text = "ravel";
  }
  const Expression& known = flattens ? renamed : call;
  if (!is_method_name(known.text) || !(is_named_function(known.text) || is_shape_function(known.text)))
    return unknown_method(call);
  std::vector<Value> arguments = {base};
  Expression shorter;
  const bool has_text = std::any_of(known.children.begin(), known.children.end(),
                                    [](const Expression& child) { return child.kind == ExpressionKind::string; });
  if (has_text) {
    shorter = known;
    for (size_t k = known.children.size(); k-- > 1;) {
      if (is_default_text(known, k)) remove_argument(shorter, k);
    }
  }
  const Expression& plain = has_text ? shorter : known;
  for (size_t k = 1; k < plain.children.size(); ++k) arguments.push_back(lower(plain.children[k], scope));
  return dispatch(plain, arguments);
}

std::optional<DType> Lowerer::type_argument(const Expression& type) {
  Expression name = type;
  if (name.kind == ExpressionKind::string) name.kind = ExpressionKind::name;  // "float32"
  if (name.kind == ExpressionKind::name && name.text == "float" && name.prefix.empty()) name.text = "float64";
  return annotated_dtype(name, std::nullopt, diagnostics_);
}

Value Lowerer::lower_cast(const Value& value, const Expression& call) {
  if (call.children.size() != 2 || !(call.keywords[1].empty() || call.keywords[1] == "dtype"))
    return report(call.location, "'astype' takes one type", "write x.astype(float32)");
  const std::optional<DType> type = type_argument(call.children[1]);
  return type ? cast_to(value, *type, call.location) : Value::broken();
}

// --dtype chooses among the types of numbers.
Value Lowerer::cast_to(const Value& value, DType type, SourceLocation location) {
  if (value.kind != ValueKind::view || is_floating(type))
    return builder_.cast(value, options_.dtype.value_or(type), location);
  if (is_boolean(value))
    return type == DType::boolean ? value
                                  : report(location, "a condition cannot become integers", "write x.astype(float32)");
  if (is_integer(type) && builder_.holds_integers(value.view)) return builder_.cast(value, type, location);
  return report(location, "a tensor of numbers cannot become integers or booleans",
                "compare it: x < y, or pass an argument of type int32 or bool_");
}

Value Lowerer::unknown_method(const Expression& call) {
  const bool attribute = call.kind == ExpressionKind::attribute;
  if (is_not_covered_method(call.text)) {
    const NotCovered unknown = not_covered_method(call.text);
    return report(call.location, unknown.message, unknown.remedy);
  }
  const std::string message = concat("a tensor has no ", attribute ? "attribute" : "method", " '", call.text, "'");
  const bool function = is_named_function(call.text) || is_shape_function(call.text);
  if (function)
    return report(call.location, message,
                  is_method_name(call.text) ? concat("it is a method: write x.", call.text, "(…)")
                                            : concat("it is a function: write ", written_name(call.text), "(x, …)"));
  if (is_not_covered_function("np", call.text))
    return report(call.location, message, not_covered_function("np", call.text).remedy);
  return report(call.location, message,
                attribute ? "a tensor has x.shape, x.ndim, x.size and x.T" : "write it as a function of the tensor");
}

Value Lowerer::unknown_function(const Expression& call) {
  if (diagnostics_.full()) return Value::broken();
  if (is_not_covered_function(call.prefix, call.text)) {
    const NotCovered unknown = not_covered_function(call.prefix, call.text);
    return report(call.location, unknown.message, unknown.remedy);
  }
  std::vector<std::string> candidates = named_functions();
  for (std::string& name : shape_functions()) candidates.push_back(std::move(name));
  const std::string all = join(candidates, ", ");
  // Short names of functions are near one another and mean different things: sin is not a misspelt min.
  constexpr size_t kShortName = 4;
  std::erase_if(candidates, [](const std::string& name) { return name.size() <= kShortName; });
  for (const auto& [name, known] : functions_) candidates.push_back(name);
  const std::string near = nearest(call.text, candidates);
  const bool other = is_library_function(call.text) && is_in_submodule(call);
  return report(call.location, concat("unknown function '", other ? dotted(call) : call.text, "'"),
                near.empty() ? concat("functions: ", all) : concat("did you mean '", near, "'?"));
}

// torch.exp may have other arguments and defaults than np.exp, and under NumPy it does not run at all.
Value Lowerer::foreign_function(const Expression& call) {
  const std::string written = written_name(call.text);
  const bool of_numpy = written.starts_with("np.");
  return report(call.location, concat("'", dotted(call), "' is a function of another module"),
                of_numpy ? concat("write ", written, "(…), with `import numpy as np`")
                         : concat("write ", written, "(…), with `from millrace.numpy import ", call.text, "`"));
}

Value Lowerer::lower_einsum_call(const Expression& call, Scope& scope) {
  if (call.children.empty() || call.children[0].kind != ExpressionKind::string) {
    return report(call.location, "np.einsum's first argument must be a string of subscripts",
                  "write np.einsum(\"ij,jk->ik\", a, b)");
  }
  std::vector<View> operands;
  for (size_t k = 1; k < call.children.size(); ++k) {
    if (call.keywords[k] == "optimize") continue;  // Millrace chooses the order of the products by cost
    if (!call.keywords[k].empty())
      return report(call.children[k].location, concat("np.einsum has no argument '", call.keywords[k], "' here"),
                    "pass only subscripts and operands");
    const Value operand = lower(call.children[k], scope);
    if (operand.kind == ValueKind::broken) return operand;
    if (operand.kind != ValueKind::view && operand.kind != ValueKind::number)
      return report(call.children[k].location, "this operand is not a tensor", "pass tensors");
    operands.push_back(operand.kind == ValueKind::number ? builder_.constant(operand.number).view : operand.view);
    if (builder_.graph.tensor(operands.back().tensor).dtype == DType::boolean)
      return report(call.children[k].location, "a comparison is not a number", "choose with np.where(a < b, x, y)");
  }
  return lower_einsum(call.children[0].text, operands, numbers_, call.location, builder_, diagnostics_);
}

}  // namespace millrace
