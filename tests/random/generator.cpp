#include "random/generator.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "random/einsums.h"
#include "random/elementwise.h"
#include "random/gathers.h"
#include "random/motifs.h"
#include "random/named_functions.h"
#include "random/reductions.h"
#include "random/shapes.h"
#include "random/statements.h"

namespace millrace::random_programs {
namespace {

void fill(Body& body);

const std::vector<int64_t>& prime_extents(ProgramSize size) {
  static const std::vector<int64_t> kFull = {1, 1, 2, 2, 3, 3, 5, 7};
  static const std::vector<int64_t> kSmall = {1, 2, 2, 3};
  return size == ProgramSize::full ? kFull : kSmall;
}

int64_t most_extent(ProgramSize size) { return size == ProgramSize::full ? 12 : 6; }

// Sizes that are ones, primes and products of others, with their statements.
std::string draw_sizes(Random& random, ProgramSize size, Module& module) {
  std::vector<std::string> names = {"B", "J", "K", "H", "P", "W", "I", "U", "N", "HEADS", "width"};
  random.shuffle(names);
  names.resize(static_cast<size_t>(4 + random.below(5)));
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    const Axis previous = i == 0 ? Axis{} : random.pick(module.sizes);
    int64_t extent = random.pick(prime_extents(size));
    std::string definition = std::to_string(extent);
    if (i > 0 && previous.extent * extent <= most_extent(size) && random.chance(15)) {
      definition = concat(previous.size, " * ", extent);
      extent *= previous.extent;
    } else if (i + 1 < names.size() && random.chance(15)) {
      module.sizes.push_back({names[i], extent});
      definition = concat(names[i + 1], " = ", definition);
      text += concat(names[i], " = ", definition, "\n");
      module.sizes.push_back({names[i + 1], extent});
      ++i;
      continue;
    }
    module.sizes.push_back({names[i], extent});
    text += concat(names[i], " = ", definition, "\n");
  }
  return text;
}

// Results of a finished body: values that nothing has read, and sometimes others.
std::vector<Value> choose_results(Body& body) {
  Random& random = body.random;
  std::vector<Value> results = body.unread();
  random.shuffle(results);
  const size_t most = random.chance(90) ? 6 : 1;  // the rest is dead code
  if (results.size() > most) results.resize(most);
  if (results.empty() || random.chance(15)) {
    const Value other = body.any();
    const auto same = [&](const Value& result) { return result.text == other.text; };
    if (std::none_of(results.begin(), results.end(), same)) results.push_back(other);
  }
  if (body.left() > -2 && random.chance(10)) results.back() = activation(body, results.back());
  if (random.chance(2)) results.push_back(results.front());
  return results;
}

std::string texts(const std::vector<Value>& values) {
  std::vector<std::string> all;
  for (const Value& value : values) all.push_back(value.text);
  return join(all, ", ");
}

// Writes a function around a few of the caller's values.
void define_helper(Body& caller) {
  Random& random = caller.random;
  Module& module = caller.module;
  const int budget = std::min(caller.left(), 2 + static_cast<int>(random.below(14)));
  Body body(random, module, BodyKind::helper, budget);
  const int64_t count = 1 + random.below(2);
  for (int64_t i = 0; i < count; ++i) {
    const Value value = caller.any();
    if (!value.shape.empty()) body.parameter(value.shape, value.bound);
  }
  fill(body);
  const std::vector<Value> results = choose_results(body);
  const std::string name = concat(random.chance(50) ? "layer" : "f", module.functions.size());
  module.text += concat("\n\n", body.text(name, texts(results)));
  module.functions.push_back({name, body.parameters(), results, budget - body.left()});
}

// Calls a function with values of the required shapes, some by keyword.
void call_function(Body& body, const Function& function) {
  Random& random = body.random;
  std::vector<std::string> positional;
  std::vector<std::string> named;
  const int64_t most_positional = random.below(static_cast<int64_t>(function.parameters.size()) + 1);
  const bool by_keyword = random.chance(40);
  for (const Parameter& parameter : function.parameters) {
    std::string actual;
    if (parameter.by_value) {
      actual = random.chance(60) ? body.scalar().text : "0.75";
    } else {
      const auto fits = [&](const Value& value) {
        return same_extents(value.shape, parameter.shape) && value.bound <= parameter.bound;
      };
      const auto found = body.any_that(fits);
      actual = found ? found->text : body.parameter(parameter.shape).text;
    }
    if (by_keyword && static_cast<int64_t>(positional.size()) >= most_positional) {
      named.push_back(concat(parameter.name, "=", actual));
    } else {
      positional.push_back(actual);
    }
  }
  random.shuffle(named);
  positional.insert(positional.end(), named.begin(), named.end());
  body.spend(function.operators);
  const std::string call = concat(function.name, "(", join(positional, ", "), ")");
  if (function.results.size() == 1) {
    const Value& result = function.results[0];
    body.finish(tame(body, {call, Binding::atom, result.shape, result.bound, false}));
    return;
  }
  std::vector<std::string> targets;
  for (size_t i = 0; i < function.results.size(); ++i) targets.push_back(body.new_name());
  body.statement(concat(join(targets, ", "), " = ", call));
  for (size_t i = 0; i < targets.size(); ++i) {
    body.add({targets[i], Binding::atom, function.results[i].shape, function.results[i].bound, false});
  }
}

// An expression of x within the budget, or nothing if the drawn one does not fit.
std::optional<Value> made_of(Body& body, const Value& x, int64_t draw) {
  const int left = body.left();
  const bool has_axes = !x.shape.empty();
  if (draw < 16)
    return left >= kAttentionOperators && x.shape.size() >= 2 ? std::optional(attention(body, x)) : std::nullopt;
  if (draw < 26) return left >= kFeedForwardOperators && has_axes ? std::optional(feed_forward(body, x)) : std::nullopt;
  if (draw < 32) return left >= kSwigluOperators && has_axes ? std::optional(swiglu(body, x)) : std::nullopt;
  if (draw < 40) return has_axes ? std::optional(normalized(body, x)) : std::nullopt;
  if (draw < 48) return has_axes ? std::optional(projected(body, x)) : std::nullopt;
  if (draw < 58) return left >= 4 ? std::optional(contracted(body, x)) : std::nullopt;
  if (draw < 64) return left >= 4 ? std::optional(rearranged(body, x)) : std::nullopt;
  if (draw < 70) return biased(body, x);
  if (draw < 80) return left >= 4 ? std::optional(combine(body, x, partner(body, x))) : std::nullopt;
  if (draw < 86) return left >= 4 ? std::optional(unary(body, x)) : std::nullopt;
  if (draw < 89) return activation(body, x);
  if (draw < 92) return left >= 2 ? std::optional(scaled(body, x)) : std::nullopt;
  if (draw < 96) return left >= 2 ? std::optional(reduced(body, x)) : std::nullopt;
  if (draw < 98) return has_axes ? std::optional(softmax_somewhere(body, x)) : std::nullopt;
  if (draw < 100) return dropped(body, x);
  return left >= 2 ? std::optional(selected(body, x)) : std::nullopt;
}

// Writes statements until the budget is spent.
void fill(Body& body) {
  Random& random = body.random;
  while (body.left() > 0) {
    if (body.left() >= 4 && random.chance(6)) {
      const Module& module = body.module;
      if (module.functions.empty() || random.chance(50)) define_helper(body);
      const Function function = random.pick(module.functions);
      if (function.operators <= body.left()) call_function(body, function);
      continue;
    }
    Value x = body.any();
    if (body.left() >= kWrittenOutOperators && random.chance(6)) {
      written_out(body, tame(body, x));
      continue;
    }
    if (random.chance(6) && !x.shape.empty() && x.shape.size() < kMostAxes) x = expanded(body, x);
    // Elements move before about every second operation, which costs nothing where it is a view.
    for (int percent = 50; !x.shape.empty() && x.shape.size() <= kMostAxes && random.chance(percent); percent = 25) {
      x = moved(body, x);
      if (random.chance(80)) x = body.keep(x);
    }
    if (x.shape.size() > kMostAxes) continue;
    if (body.is_program() && !x.shape.empty() && body.left() >= kGatherOperators && random.chance(25)) {
      if (const auto value = with_integers(body, x)) body.finish(tame(body, *value));
      continue;
    }
    const bool named = random.chance(body.module.named_functions_percent);
    const auto value = named ? with_named_functions(body, x) : made_of(body, x, random.below(104));
    if (value) body.finish(tame(body, *value));
  }
}

std::string imports(const std::string& text, const std::string& dtype) {
  std::vector<std::string> names = {dtype.substr(0, dtype.find('.'))};
  std::vector<std::string> functions = {"causal_mask", "cross_entropy", "dropout", "gelu", "gelu_tanh",
                                        "layernorm",   "relu",          "rmsnorm", "silu", "softmax"};
  for (const std::string& name : imported_functions()) functions.push_back(name);
  for (const char* const type : {"int32", "int64", "bool_"}) {
    if (text.find(concat(type, "[")) != std::string::npos) names.emplace_back(type);
  }
  for (const std::string& name : functions) {
    if (text.find(concat(name, "(")) != std::string::npos) names.push_back(name);
  }
  return concat("import numpy as np\nfrom millrace.numpy import ", join(names, ", "), "\n\n");
}

// Programs may miss the budget by a few operators: the largest full one is more frequent, so that sizes reach 40.
int draw_budget(Random& random, ProgramSize size, bool named) {
  if (size == ProgramSize::small) return 1 + static_cast<int>(random.below(12));
  const int drawn = 1 + static_cast<int>(random.below(45));
  return named ? 30 + drawn / 2 : std::min(drawn, 38);
}

}  // namespace

std::string random_program(uint64_t seed, ProgramSize size) {
  Random random(seed);
  random.next();
  Module module;
  module.dtype = random.chance(90) ? "float64" : "dace.float64";
  const std::string sizes = draw_sizes(random, size, module);
  // Half of the programs mostly call functions that transformers do not need.
  const bool named = random.chance(50);
  module.named_functions_percent = named ? 80 : 0;
  Body body(random, module, BodyKind::program, draw_budget(random, size, named));
  fill(body);
  const std::string results = texts(choose_results(body));
  const std::string decorator = module.dtype == "float64" ? "" : "@dace.program\n";
  const std::string text = concat(module.text, "\n\n", decorator, body.text("program", results));
  return imports(text, module.dtype) + sizes + text;
}

}  // namespace millrace::random_programs
