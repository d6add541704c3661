#include "frontend/sizes.h"

#include <charconv>
#include <cmath>

#include "base/text.h"
#include "frontend/constants.h"

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
  const std::string name = call.text == "abs" ? "absolute" : call.text;
  const std::optional<OperatorKind> kind = operator_named(name);
  std::vector<Value> inputs;
  for (const Expression& child : call.children) {
    inputs.push_back(evaluate_number(child, numbers, diagnostics));
    if (inputs.back().kind == ValueKind::broken) return Value::broken();
  }
  if (!kind || inputs.empty() || inputs.size() != static_cast<size_t>(info_of(*kind).inputs)) {
    diagnostics.report(call.location,
                       concat("'", call.text, "' is not a function of numbers, or has the wrong number of arguments"),
                       "use + - * / // **, np.sqrt, np.exp, np.log, np.tanh, np.abs, np.maximum and np.minimum");
    return Value::broken();
  }
  return fold_function(*kind, inputs, 0, call.location, diagnostics);
}

}  // namespace

Value evaluate_number(const Expression& expression, const Numbers& numbers, Diagnostics& diagnostics) {
  switch (expression.kind) {
    case ExpressionKind::number:
      return expression.integer ? Value::of_integer(*expression.integer) : Value::of(expression.number);
    case ExpressionKind::name: {
      const auto found = numbers.find(expression.text);
      if (found != numbers.end() && expression.prefix.empty()) return found->second;
      if (diagnostics.full()) return Value::broken();
      const UnknownName unknown = unknown_name("unknown size", expression.text, "sizes", numbers);
      diagnostics.report(expression.location, unknown.message, unknown.remedy);
      return Value::broken();
    }
    case ExpressionKind::unary: {
      const Value inner = evaluate_number(expression.children[0], numbers, diagnostics);
      if (inner.kind == ValueKind::broken || expression.text == "+") return inner;
      return fold_negation(inner, expression.location, diagnostics);
    }
    case ExpressionKind::binary: {
      const Value left = evaluate_number(expression.children[0], numbers, diagnostics);
      const Value right = evaluate_number(expression.children[1], numbers, diagnostics);
      if (left.kind == ValueKind::broken || right.kind == ValueKind::broken) return Value::broken();
      static constexpr std::string_view kArithmetic = " + - * / // ** ";
      if (kArithmetic.find(concat(" ", expression.text, " ")) != std::string_view::npos) {
        return fold_binary(expression.text, left, right, expression.location, diagnostics);
      }
      break;
    }
    case ExpressionKind::call: return evaluate_call(expression, numbers, diagnostics);
    default: break;
  }
  diagnostics.report(expression.location, "expected a number",
                     "sizes are integers and expressions of them: `I = P * H`");
  return Value::broken();
}

Numbers evaluate_sizes(const Module& module, const ProgramOptions& options, Diagnostics& diagnostics) {
  // SIZES may come after the sizes that it sets, so it is read first; its numbers are literals or sizes above it.
  SizeSets sets;
  Numbers defaults;
  Diagnostics silent = Diagnostics::silent();  // the second evaluation below reports the errors
  for (const Assignment& statement : module.assignments) {
    if (statement.value.kind == ExpressionKind::dict) {
      const bool is_sizes = statement.targets == std::vector<std::vector<std::string>>{{"SIZES"}};
      if (is_sizes) {
        read_size_sets(statement.value, defaults, sets, diagnostics);
      } else {
        diagnostics.report(statement.location, "only SIZES may be a dictionary", std::string(kSizesRemedy));
      }
      continue;
    }
    const Value value = evaluate_number(statement.value, defaults, silent);
    for (const std::vector<std::string>& target : statement.targets) {
      if (target.size() == 1 && value.kind == ValueKind::number) defaults[target[0]] = value;
    }
  }
  const Numbers chosen = chosen_sizes(options, sets, diagnostics);
  Numbers numbers;
  for (const Assignment& statement : module.assignments) {
    if (statement.value.kind == ExpressionKind::dict) continue;
    const Value value = evaluate_number(statement.value, numbers, diagnostics);
    for (const std::vector<std::string>& target : statement.targets) {
      if (target.size() != 1) {
        diagnostics.report(statement.location, "a size must have one name",
                           "write `P = W = 64`, or one assignment per line");
        continue;
      }
      const auto choice = chosen.find(target[0]);
      if (choice != chosen.end()) {
        numbers[target[0]] = choice->second;
      } else if (value.kind == ValueKind::number) {
        numbers[target[0]] = value;
      }
    }
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
