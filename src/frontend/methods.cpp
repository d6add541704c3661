#include "frontend/methods.h"

#include <set>

#include "base/text.h"

namespace millrace {
namespace {

using Names = std::set<std::string, std::less<>>;

void add_names(const AssignmentTarget& target, Names& names) {
  if (!target.name.empty()) names.insert(target.name);
  for (const AssignmentTarget& part : target.parts) add_names(part, names);
}

void add_target_names(const Expression& target, Names& names) {
  if (target.kind == ExpressionKind::name) names.insert(target.text);
  for (const Expression& part : target.children) add_target_names(part, names);
}

// The variables of the lists `[… for name in …]`.
void add_names(const Expression& expression, Names& names) {
  if (expression.kind == ExpressionKind::comprehension) add_target_names(expression.children[1], names);
  for (const Expression& child : expression.children) add_names(child, names);
}

void add_names(const std::vector<Statement>& statements, Names& names) {
  for (const Statement& statement : statements) {
    for (const AssignmentTarget& target : statement.targets) add_names(target, names);
    add_names(statement.value, names);
    add_names(statement.body, names);
  }
}

// `a.b.c` as attributes of a, which is a local.
Expression attribute_chain(const std::string& dotted, SourceLocation location) {
  Expression result;
  for (const std::string& part : split(dotted, '.')) {
    Expression outer;
    outer.location = location;
    outer.text = part;
    outer.kind = result.text.empty() ? ExpressionKind::name : ExpressionKind::attribute;
    if (!result.text.empty()) {
      outer.depth = result.depth + 1;
      outer.children.push_back(std::move(result));
    }
    result = std::move(outer);
  }
  return result;
}

constexpr size_t kMaxParts = 20;  // of a dotted name: longer ones stay names, which are then unknown

void resolve(Expression& expression, const Names& names) {
  for (Expression& child : expression.children) resolve(child, names);
  if (expression.prefix.empty() || !names.contains(split(expression.prefix, '.').front())) return;
  if (split(expression.prefix, '.').size() > kMaxParts) return;
  if (expression.kind == ExpressionKind::name) {
    expression = attribute_chain(concat(expression.prefix, ".", expression.text), expression.location);
  } else if (expression.kind == ExpressionKind::call) {
    expression.children.insert(expression.children.begin(), attribute_chain(expression.prefix, expression.location));
    expression.keywords.insert(expression.keywords.begin(), std::string());
    expression.prefix.clear();
    expression.method = true;
  }
}

void resolve(std::vector<Statement>& statements, const Names& names) {
  for (Statement& statement : statements) {
    resolve(statement.value, names);
    resolve(statement.body, names);
  }
}

}  // namespace

void resolve_methods(Function& function) {
  Names names;
  for (const Parameter& parameter : function.parameters) names.insert(parameter.name);
  add_names(function.body, names);
  resolve(function.body, names);
}

}  // namespace millrace
