#include "frontend/sizes.h"

#include <charconv>
#include <cmath>

#include "base/text.h"
#include "frontend/constants.h"
#include "frontend/static_values.h"

namespace millrace {
namespace {

constexpr std::string_view kSizesRemedy = "write SIZES = {\"tiny\": {\"B\": 2}}";

struct UnknownName {
  std::string message;
  std::string remedy;
};

// `subject` says what is unknown. Suggests the nearest known name, or lists the known names if none is near.
template <class Map>
UnknownName unknown_name(std::string_view subject, std::string_view word, std::string_view plural, const Map& known) {
  std::vector<std::string> names;
  for (const auto& [name, value] : known) names.push_back(name);
  const std::string near = nearest(word, names);
  const std::string message = concat(subject, " '", word, "'");
  if (!near.empty()) return {message, concat("did you mean '", near, "'?")};
  constexpr size_t kShown = 30;
  const bool many = names.size() > kShown;
  if (many) names.resize(kShown);
  return {concat(message, " (", plural, ": ", names.empty() ? "none" : join(names, ", "), many ? ", …" : "", ")"), ""};
}

using SizeSets = std::map<std::string, Numbers>;

void read_size_sets(const Expression& dict, const Numbers& numbers, SizeSets& sets, Diagnostics& diagnostics) {
  for (size_t k = 0; k + 1 < dict.children.size(); k += 2) {
    const Expression& name = dict.children[k];
    const Expression& sizes = dict.children[k + 1];
    if (name.kind != ExpressionKind::string || sizes.kind != ExpressionKind::dict) {
      diagnostics.report(name.location, "SIZES maps names to sets of sizes", std::string(kSizesRemedy));
      continue;
    }
    Numbers& set = sets[name.text];
    for (size_t m = 0; m + 1 < sizes.children.size(); m += 2) {
      const Expression& key = sizes.children[m];
      const Value value = evaluate_number(sizes.children[m + 1], numbers, diagnostics);
      if (value.kind == ValueKind::broken) continue;
      if (key.kind != ExpressionKind::string || !value.integer) {
        diagnostics.report(key.location, "a set of sizes maps names to integers", std::string(kSizesRemedy));
        continue;
      }
      set[key.text] = value;
    }
  }
}

// The values of all `--size` options: each is the name of a set in SIZES, or NAME=INTEGER.
Numbers chosen_sizes(const ProgramOptions& options, const SizeSets& sets, Diagnostics& diagnostics) {
  Numbers chosen;
  for (const std::string& choice : options.sizes) {
    const size_t equals = choice.find('=');
    if (equals == std::string::npos) {
      const auto set = sets.find(choice);
      if (set == sets.end()) {
        const UnknownName unknown = unknown_name("--size: SIZES has no set", choice, "sets", sets);
        diagnostics.report(unknown.message, unknown.remedy);
        continue;
      }
      for (const auto& [name, value] : set->second) chosen[name] = value;
      continue;
    }
    int64_t size = 0;
    const char* const end = choice.data() + choice.size();
    const auto parsed = std::from_chars(choice.data() + equals + 1, end, size);
    if (parsed.ec != std::errc() || parsed.ptr != end || size < 1) {
      diagnostics.report(concat("--size ", choice, ": not a positive integer"), "write --size J=128");
      continue;
    }
    chosen[choice.substr(0, equals)] = Value::of_integer(size);
  }
  return chosen;
}

Value evaluate_call(const Expression& call, const Numbers& numbers, Diagnostics& diagnostics) {
  if (const std::optional<Value> infinite = infinite_float(call)) return *infinite;
  const std::string name = call.text == "abs" ? "absolute" : call.text;
  const std::optional<OperatorKind> kind = operator_named(name);
  std::vector<Value> inputs;
  bool sequence = false;
  for (const Expression& child : call.children) {
    inputs.push_back(evaluate_number(child, numbers, diagnostics));
    if (inputs.back().kind == ValueKind::broken) return Value::broken();
    sequence = sequence || inputs.back().kind != ValueKind::number;
  }
  if (is_static_function(call)) return call_static_function(call, inputs, diagnostics);
  if (!kind || sequence || inputs.empty() || inputs.size() != static_cast<size_t>(info_of(*kind).inputs)) {
    diagnostics.report(call.location,
                       concat("'", call.text, "' is not a function of numbers, or has the wrong number of arguments"),
                       "use + - * / // **, np.sqrt, np.exp, np.log, np.tanh, np.abs, np.maximum and np.minimum");
    return Value::broken();
  }
  return fold_function(*kind, inputs, 0, call.location, diagnostics);
}

Value evaluate_name(const Expression& name, const Numbers& numbers, Diagnostics& diagnostics) {
  const auto found = numbers.find(name.text);
  if (found != numbers.end() && name.prefix.empty()) return found->second;
  if (const std::optional<Value> constant = named_constant(name)) return *constant;
  if (diagnostics.full()) return Value::broken();
  const UnknownName unknown = unknown_name("unknown size", name.text, "sizes", numbers);
  diagnostics.report(name.location, unknown.message, unknown.remedy);
  return Value::broken();
}

Value evaluate_binary(const Expression& expression, const Numbers& numbers, Diagnostics& diagnostics) {
  const Value left = evaluate_number(expression.children[0], numbers, diagnostics);
  if (expression.text == "and" || expression.text == "or") {
    const std::optional<bool> condition = condition_of(left);
    if (!condition || *condition == (expression.text == "or")) return left;
    return evaluate_number(expression.children[1], numbers, diagnostics);
  }
  const Value right = evaluate_number(expression.children[1], numbers, diagnostics);
  return static_binary(expression.text, left, right, expression.location, diagnostics);
}

Value evaluate_index(const Expression& expression, const Numbers& numbers, Diagnostics& diagnostics) {
  const Value base = evaluate_number(expression.children[0], numbers, diagnostics);
  const Value item = evaluate_number(expression.children[1], numbers, diagnostics);
  if (base.kind == ValueKind::broken || item.kind == ValueKind::broken) return Value::broken();
  if (base.kind == ValueKind::tuple && item.integer && expression.children.size() == 2)
    return item_of(base, *item.integer, expression.location, diagnostics);
  diagnostics.report(expression.location, "only tuples can be indexed here", "write SHAPE[0]");
  return Value::broken();
}

Value evaluate_choice(const Expression& expression, const Numbers& numbers, Diagnostics& diagnostics) {
  const std::optional<bool> condition = condition_of(evaluate_number(expression.children[1], numbers, diagnostics));
  return condition ? evaluate_number(expression.children[*condition ? 0 : 2], numbers, diagnostics) : Value::broken();
}

constexpr size_t kMaxModuleItems = 32;  // of a module-level tuple: every use may copy them

Value evaluate_sequence(const Expression& expression, const Numbers& numbers, Diagnostics& diagnostics) {
  std::vector<Value> items;
  for (const Expression& child : expression.children) items.push_back(evaluate_number(child, numbers, diagnostics));
  const bool list = expression.kind == ExpressionKind::list;
  return make_sequence(std::move(items), list, expression.location, diagnostics);
}

// Module-level tuples stay short.
Value short_enough(Value value, SourceLocation location, Diagnostics& diagnostics) {
  if (value.kind != ValueKind::tuple || value.items->size() <= kMaxModuleItems) return value;
  diagnostics.report(location, concat("a module-level tuple has at most ", kMaxModuleItems, " items"),
                     "write it inside the function");
  return Value::broken();
}

Value evaluate_any(const Expression& expression, const Numbers& numbers, Diagnostics& diagnostics) {
  switch (expression.kind) {
    case ExpressionKind::number:
      return expression.integer ? Value::of_integer(*expression.integer) : Value::of(expression.number);
    case ExpressionKind::boolean: return Value::of_integer(static_cast<int64_t>(expression.number));
    case ExpressionKind::none: return Value::nothing();
    case ExpressionKind::name: return evaluate_name(expression, numbers, diagnostics);
    case ExpressionKind::unary: {
      const Value inner = evaluate_number(expression.children[0], numbers, diagnostics);
      return static_unary(expression.text, inner, expression.location, diagnostics);
    }
    case ExpressionKind::binary: return evaluate_binary(expression, numbers, diagnostics);
    case ExpressionKind::call: return evaluate_call(expression, numbers, diagnostics);
    case ExpressionKind::index: return evaluate_index(expression, numbers, diagnostics);
    case ExpressionKind::choice: return evaluate_choice(expression, numbers, diagnostics);
    case ExpressionKind::tuple:
    case ExpressionKind::list: return evaluate_sequence(expression, numbers, diagnostics);
    default: break;
  }
  diagnostics.report(expression.location, "expected a number",
                     "sizes are integers and expressions of them: `I = P * H`");
  return Value::broken();
}

void check_assertion(const Statement& statement, const Numbers& numbers, Diagnostics& diagnostics) {
  const std::optional<bool> holds = condition_of(evaluate_number(statement.value, numbers, diagnostics));
  if (holds && !*holds)
    diagnostics.report(statement.location, "this assertion does not hold for these sizes", "choose other sizes");
}

}  // namespace

std::optional<Value> infinite_float(const Expression& call) {
  if (call.text != "float" || !call.prefix.empty() || call.method || call.children.size() != 1 ||
      call.children[0].kind != ExpressionKind::string) {
    return std::nullopt;
  }
  const std::string& text = call.children[0].text;
  if (text == "inf" || text == "+inf" || text == "infinity") return Value::of(HUGE_VAL);
  return text == "-inf" ? std::optional(Value::of(-HUGE_VAL)) : std::nullopt;
}

Value evaluate_number(const Expression& expression, const Numbers& numbers, Diagnostics& diagnostics) {
  return short_enough(evaluate_any(expression, numbers, diagnostics), expression.location, diagnostics);
}

Numbers evaluate_sizes(const Module& module, const ProgramOptions& options, Diagnostics& diagnostics) {
  // SIZES may come after the sizes that it sets, so it is read first; its numbers are literals or sizes above it.
  SizeSets sets;
  Numbers imported;
  for (const auto& [name, origin] : module.imports) {
    if (const std::optional<Value> value = imported_constant(origin)) imported[name] = *value;
  }
  Numbers defaults = imported;
  Diagnostics silent = Diagnostics::silent();  // the second evaluation below reports the errors
  const auto keep_default = [&](const std::string& name, const Value& value) {
    if (value.kind != ValueKind::broken) defaults[name] = value;
  };
  for (const Statement& statement : module.statements) {
    if (statement.kind == StatementKind::assertion) continue;
    if (statement.value.kind == ExpressionKind::dict) {
      const bool is_sizes = statement.targets.size() == 1 && statement.targets[0].name == "SIZES";
      if (is_sizes) {
        read_size_sets(statement.value, defaults, sets, diagnostics);
      } else {
        diagnostics.report(statement.location, "only SIZES may be a dictionary", std::string(kSizesRemedy));
      }
      continue;
    }
    const Value value = evaluate_number(statement.value, defaults, silent);
    for (const AssignmentTarget& target : statement.targets) unpack(target, value, keep_default, silent);
  }
  const Numbers chosen = chosen_sizes(options, sets, diagnostics);
  Numbers numbers = imported;
  const auto keep = [&](const std::string& name, const Value& value) {
    const auto choice = chosen.find(name);
    if (choice != chosen.end()) {
      numbers[name] = choice->second;
    } else if (value.kind != ValueKind::broken) {
      numbers[name] = value;
    }
  };
  for (const Statement& statement : module.statements) {
    if (statement.kind == StatementKind::assertion) {
      check_assertion(statement, numbers, diagnostics);
      continue;
    }
    if (statement.value.kind == ExpressionKind::dict) continue;
    const Value value = evaluate_number(statement.value, numbers, diagnostics);
    for (const AssignmentTarget& target : statement.targets) unpack(target, value, keep, diagnostics);
  }
  for (const auto& [name, value] : chosen) {
    if (!numbers.contains(name)) {
      const UnknownName unknown = unknown_name("--size: unknown size", name, "sizes", numbers);
      diagnostics.report(unknown.message, unknown.remedy);
    }
  }
  return numbers;
}

}  // namespace millrace
