#include "frontend/imports.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace millrace {
namespace {

// NumPy's functions are known as np.f; so are those of millrace.numpy and of modules such as jax.numpy, which have the
// same ones.
std::string canonical(std::string_view module) {
  const std::string path = concat(module, ".");
  const size_t at = concat(".", path).find(".numpy.");
  if (at == std::string::npos) return std::string(module);
  std::string rest = path.substr(at + std::string_view("numpy.").size());
  if (!rest.empty()) rest.pop_back();
  return rest.empty() ? "np" : concat("np.", rest);
}

using Imports = std::map<std::string, std::string, std::less<>>;

// f of `from numpy import exp as f` becomes np.exp.
void resolve_name(Expression& call, const Imports& imports) {
  const auto found = imports.find(call.text);
  if (found == imports.end()) return;
  const size_t dot = found->second.rfind('.');
  if (dot == std::string::npos) return;
  call.text = found->second.substr(dot + 1);
  call.prefix = canonical(std::string_view(found->second).substr(0, dot));
}

// The prefix F of F.relu becomes torch.nn.functional.
void resolve_prefix(Expression& expression, const Imports& imports) {
  const size_t dot = std::min(expression.prefix.find('.'), expression.prefix.size());
  const std::string root = expression.prefix.substr(0, dot);
  const auto found = imports.find(root);
  expression.prefix = canonical(concat(found == imports.end() ? root : found->second, expression.prefix.substr(dot)));
}

void resolve(Expression& expression, const Imports& imports) {
  for (Expression& child : expression.children) resolve(child, imports);
  const bool call = expression.kind == ExpressionKind::call && !expression.method;
  if (!expression.prefix.empty()) {
    if (call || expression.kind == ExpressionKind::name) resolve_prefix(expression, imports);
  } else if (call) {
    resolve_name(expression, imports);
  }
}

void resolve(std::vector<Statement>& statements, const Imports& imports) {
  for (Statement& statement : statements) {
    resolve(statement.value, imports);
    resolve(statement.body, imports);
  }
}

}  // namespace

void resolve_imports(Module& module) {
  Imports imports = module.imports;
  for (const Function& function : module.functions) imports.erase(function.name);
  resolve(module.statements, imports);
  for (Function& function : module.functions) resolve(function.body, imports);
}

bool is_foreign_module(std::string_view prefix) {
  const std::string_view root = prefix.substr(0, prefix.find('.'));
  return !root.empty() && root != "np" && root != "mr";
}

bool is_in_submodule(const Expression& call) {
  static constexpr auto kOfLinalg = std::to_array<std::string_view>({"norm", "matmul", "outer", "tensordot"});
  const size_t dot = call.prefix.find('.');
  if (dot == std::string::npos || is_foreign_module(call.prefix)) return false;
  const std::string_view rest = std::string_view(call.prefix).substr(dot + 1);
  if (rest == "linalg") return std::find(kOfLinalg.begin(), kOfLinalg.end(), call.text) == kOfLinalg.end();
  return rest != "lib.stride_tricks";
}

}  // namespace millrace
