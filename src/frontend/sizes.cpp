#include "frontend/sizes.h"

#include <charconv>
#include <cmath>

#include "base/text.h"
#include "frontend/constants.h"

namespace millrace {
namespace {

constexpr std::string_view kSizesRemedy = "write SIZES = {\"tiny\": {\"B\": 2}}";

// The nearest of the map's names, or all of them where they are few.
template <class Map>
std::string did_you_mean(std::string_view word, const Map& known) {
  std::vector<std::string> names;
  for (const auto& [name, value] : known) names.push_back(name);
  const std::string near = nearest(word, names);
  if (!near.empty()) return concat("did you mean '", near, "'?");
  constexpr size_t kShown = 30;
  const bool many = names.size() > kShown;
  if (many) names.resize(kShown);
  return names.empty() ? "there are none" : concat("there are ", join(names, ", "), many ? ", …" : "");
}

using SizeSets = std::map<std::string, Numbers>;

void read_size_sets(const Expression& dict, const Numbers& numbers, SizeSets& sets, Diagnostics& diagnostics) {
  for (size_t k = 0; k + 1 < dict.children.size(); k += 2) {
    const Expression& name = dict.children[k];
    const Expression& sizes = dict.children[k + 1];
    if (name.kind != ExpressionKind::string || sizes.kind != ExpressionKind::dict) {
      diagnostics.complain(name.location, "SIZES maps names to sets of sizes", std::string(kSizesRemedy));
      continue;
    }
    Numbers& set = sets[name.text];
    for (size_t m = 0; m + 1 < sizes.children.size(); m += 2) {
      const Expression& key = sizes.children[m];
      const Value value = evaluate_number(sizes.children[m + 1], numbers, diagnostics);
      if (value.kind == ValueKind::broken) continue;
      if (key.kind != ExpressionKind::string || !value.integer) {
        diagnostics.complain(key.location, "a set of sizes maps names to integers", std::string(kSizesRemedy));
        continue;
      }
      set[key.text] = value;
    }
  }
}

// `--size` as numbers: sets by name first looked up in SIZES, then NAME=INTEGER.
Numbers chosen_sizes(const ProgramOptions& options, const SizeSets& sets, Diagnostics& diagnostics) {
  Numbers chosen;
  for (const std::string& choice : options.sizes) {
    const size_t equals = choice.find('=');
    if (equals == std::string::npos) {
      const auto set = sets.find(choice);
      if (set == sets.end()) {
        diagnostics.complain(concat("--size ", choice, ": the program's SIZES has no set of that name"),
                             did_you_mean(choice, sets));
        continue;
      }
      for (const auto& [name, value] : set->second) chosen[name] = value;
      continue;
    }
    int64_t size = 0;
    const char* const end = choice.data() + choice.size();
    const auto parsed = std::from_chars(choice.data() + equals + 1, end, size);
    if (parsed.ec != std::errc() || parsed.ptr != end || size < 1) {
      diagnostics.complain(concat("--size ", choice, ": not a positive integer"), "write --size J=128");
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
    diagnostics.complain(
        call.location, concat("'", call.text, "' is not a function of numbers"),
        "numbers have + - * / // **, np.sqrt, np.exp, np.log, np.tanh, np.abs, np.maximum, np.minimum");
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
      diagnostics.complain(expression.location, concat("'", expression.text, "' is not a size"),
                           did_you_mean(expression.text, numbers));
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
  diagnostics.complain(expression.location, "expected a number",
                       "sizes are integers and products of them: `I = P * H`");
  return Value::broken();
}

Numbers evaluate_sizes(const Module& module, const ProgramOptions& options, Diagnostics& diagnostics) {
  // SIZES may stand below the sizes that it sets, so it is read first; its own numbers are literals or sizes above it.
  SizeSets sets;
  Numbers defaults;
  Diagnostics quiet = Diagnostics::deaf();  // what is wrong is complained about below, once
  for (const Assignment& statement : module.assignments) {
    if (statement.value.kind == ExpressionKind::dict) {
      const bool is_sizes = statement.targets == std::vector<std::vector<std::string>>{{"SIZES"}};
      if (is_sizes) {
        read_size_sets(statement.value, defaults, sets, diagnostics);
      } else {
        diagnostics.complain(statement.location, "only SIZES is a dictionary", std::string(kSizesRemedy));
      }
      continue;
    }
    const Value value = evaluate_number(statement.value, defaults, quiet);
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
        diagnostics.complain(statement.location, "a size has one name", "write `P = W = 64`, or one line each");
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
      diagnostics.complain(concat("--size ", name, ": the program has no such size"), did_you_mean(name, numbers));
    }
  }
  return numbers;
}

}  // namespace millrace
