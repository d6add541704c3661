#include "base/text.h"
#include "frontend/lowerer.h"
#include "frontend/token_cursor.h"

namespace millrace {
namespace {

void add_assigned(const AssignmentTarget& target, std::vector<std::string>& names) {
  if (target.parts.empty()) names.push_back(target.name);
  for (const AssignmentTarget& part : target.parts) add_assigned(part, names);
}

void add_assigned(const std::vector<Statement>& body, std::vector<std::string>& names) {
  for (const Statement& statement : body) {
    for (const AssignmentTarget& target : statement.targets) add_assigned(target, names);
    add_assigned(statement.body, names);
  }
}

// The names that statements assign to or append to.
std::vector<std::string> assigned_names(const std::vector<Statement>& body) {
  std::vector<std::string> names;
  add_assigned(body, names);
  return names;
}

const std::string& first_name(const AssignmentTarget& target) {
  return target.parts.empty() ? target.name : first_name(target.parts.front());
}

}  // namespace

void Lowerer::lower_body(const Function& function, Scope& scope, const std::string& prefix) {
  returned_ = Value::broken();
  if (lower_block(function.body, scope, prefix) || too_long_ || lost_branch_ || diagnostics_.full()) return;
  report(function.location, concat("function '", function.name, "' returns nothing"), "end it with `return x`");
}

bool Lowerer::lower_block(const std::vector<Statement>& statements, Scope& scope, const std::string& prefix) {
  for (const Statement& statement : statements) {
    if (too_long_ || diagnostics_.full()) return true;
    if (lower_statement(statement, scope, prefix)) return true;
  }
  return false;
}

bool Lowerer::lower_statement(const Statement& statement, Scope& scope, const std::string& prefix) {
  switch (statement.kind) {
    case StatementKind::assign: lower_assignment(statement, scope, prefix); return false;
    case StatementKind::update: lower_update(statement, scope, prefix); return false;
    case StatementKind::append: lower_append(statement, scope, prefix); return false;
    case StatementKind::assertion: lower_assertion(statement, scope); return false;
    case StatementKind::loop: return lower_loop(statement, scope, prefix);
    case StatementKind::branch:
    case StatementKind::arm: return lower_branch(statement, scope, prefix);
    case StatementKind::returns: lower_return(statement, scope, prefix); return true;
  }
  return false;
}

void Lowerer::bind(const AssignmentTarget& target, const Value& value, Scope& scope) {
  // `q, k, v = qkv` takes qkv[0], qkv[1] and qkv[2].
  const bool axis = !target.parts.empty() && value.kind == ValueKind::view && !value.view.axes.empty() &&
                    builder_.extent(value.view, 0) == static_cast<int64_t>(target.parts.size());
  const std::optional<std::vector<Value>> items = axis ? loop_items(value, target.location) : std::nullopt;
  const auto assign = [&](const std::string& name, const Value& part) { scope[name] = part; };
  unpack(target, axis ? (items ? Value::of(*items) : Value::broken()) : value, assign, diagnostics_);
}

void Lowerer::lower_assignment(const Statement& statement, Scope& scope, const std::string& prefix) {
  const AssignmentTarget& first = statement.targets.front();
  builder_.set_target(prefix + first_name(first));
  const size_t first_tensor = builder_.graph.tensors.size();
  const Value value = lower(statement.value, scope);
  builder_.set_target(prefix + first_name(first));
  if (first.parts.empty()) builder_.name_result(value, first_tensor);
  for (const AssignmentTarget& target : statement.targets) bind(target, value, scope);
}

// `x += y` changes a NumPy tensor and all its views, so only numbers, tuples and lists may be updated.
void Lowerer::lower_update(const Statement& statement, Scope& scope, const std::string& prefix) {
  const std::string& name = statement.targets[0].name;
  Expression old;
  old.kind = ExpressionKind::name;
  old.text = name;
  old.location = statement.targets[0].location;
  builder_.set_target(prefix + name);
  const size_t first_tensor = builder_.graph.tensors.size();
  const Value left = lower_name(old, scope);
  const Value right = lower(statement.value, scope);
  if (left.kind == ValueKind::view) {
    report(statement.location, "in-place updates are not supported", "write `x = x + y`");
    return;
  }
  if (left.kind == ValueKind::broken || right.kind == ValueKind::broken) {
    scope[name] = Value::broken();
    return;
  }
  // A list with one name has two owners: the scope, and `left`.
  if (left.list && left.items.use_count() > 2) {
    report(statement.location, concat("the list '", name, "' has another name too"),
           concat("write `", name, " = ", name, " + [y]`, which makes a new list"));
    return;
  }
  scope[name] = right.kind == ValueKind::view
                    ? lower_tensors(statement.text, left, right, statement.value)
                    : static_binary(statement.text, left, right, statement.location, diagnostics_);
  builder_.name_result(scope[name], first_tensor);
  if (left.kind == ValueKind::tuple) spend(left.items->size() / 8, statement.location);
}

// Python changes the list under all its names, so it may have only one. So a list cannot contain itself either.
bool Lowerer::is_changeable(const Value& list, const std::string& name, SourceLocation location) {
  if (list.items.use_count() == 1) return true;
  report(location, concat("the list '", name, "' has another name too"),
         concat("write `", name, " = ", name, " + [y]`, which makes a new list"));
  return false;
}

void Lowerer::lower_append(const Statement& statement, Scope& scope, const std::string& prefix) {
  const std::string& name = statement.targets[0].name;
  builder_.set_target(prefix + name);
  const size_t first_tensor = builder_.graph.tensors.size();
  const Value item = lower(statement.value, scope);
  builder_.name_result(item, first_tensor);
  const auto found = scope.find(name);
  if (item.kind == ValueKind::broken || (found != scope.end() && found->second.kind == ValueKind::broken)) return;
  if (found == scope.end() || !found->second.list) {
    report(statement.location, concat("'", name, "' is not a list of this function"),
           concat("assign `", name, " = []` first"));
    return;
  }
  Value& list = found->second;
  if (!is_changeable(list, name, statement.location)) return;
  if (list.items->size() >= kMaxItems || item.depth + 1 > kMaxValueDepth) {
    report(statement.location, concat("a list has at most ", kMaxItems, " items, nested ", kMaxValueDepth, " deep"),
           "keep many values in one tensor");
    return;
  }
  list.items->push_back(item);
  list.depth = std::max(list.depth, item.depth + 1);
}

void Lowerer::lower_assertion(const Statement& statement, Scope& scope) {
  const Value value = lower(statement.value, scope);
  const std::optional<bool> holds = condition_of(value);
  if (value.kind == ValueKind::view) {
    report(statement.location, "this assertion is about a tensor's elements",
           "assert shapes: `assert x.shape[0] == B`");
  } else if (holds && !*holds) {
    report(statement.location, "this assertion does not hold", "choose other sizes or arguments");
  }
}

bool Lowerer::lower_loop(const Statement& statement, Scope& scope, const std::string& prefix) {
  builder_.set_target(prefix + first_name(statement.targets[0]));
  const Value sequence = lower(statement.value, scope);
  const std::optional<std::vector<Value>> items = loop_items(sequence, statement.value.location);
  const auto set_broken = [&](const std::vector<Statement>& body) {
    for (const std::string& name : assigned_names(body)) scope[name] = Value::broken();
  };
  if (!items) {
    bind(statement.targets[0], Value::broken(), scope);
    set_broken(statement.body);
    return false;
  }
  for (const Value& item : *items) {
    if (!spend(1, statement.location)) return true;
    const size_t errors = diagnostics_.count();
    bind(statement.targets[0], item, scope);
    if (lower_block(statement.body, scope, prefix)) return true;
    // The next iterations would report the same errors; what the body assigns is unknown.
    if (diagnostics_.count() > errors) {
      set_broken(statement.body);
      return false;
    }
  }
  return false;
}

bool Lowerer::lower_branch(const Statement& statement, Scope& scope, const std::string& prefix) {
  for (const Statement& arm : statement.body) {
    const std::optional<bool> condition = lower_condition(arm.value, scope);
    if (!condition) lost_branch_ = true;
    if (!condition) return false;
    if (*condition) return lower_block(arm.body, scope, prefix);
  }
  return false;
}

void Lowerer::lower_return(const Statement& statement, Scope& scope, const std::string& prefix) {
  if (calls_.size() == 1) {
    lower_results(statement, scope);
    return;
  }
  const std::string target = prefix.empty() ? "result" : prefix.substr(0, prefix.size() - 1);
  if (statement.value.kind != ExpressionKind::tuple) {
    builder_.set_target(target);
    returned_ = lower(statement.value, scope);
    return;
  }
  std::vector<Value> values;
  for (const Expression& item : statement.value.children) {
    builder_.set_target(target);
    values.push_back(lower(item, scope));
  }
  if (values.empty()) report(statement.location, "this return has no value", "write `return x` or `return x, y`");
  returned_ = values.empty() ? Value::broken() : Value::of(std::move(values));
  if (returned_.depth > kMaxValueDepth) {
    returned_ = report(statement.location, concat("tuples are nested more than ", kMaxValueDepth, " deep"),
                       "unpack them with `a, b = …`");
  }
}

}  // namespace millrace
