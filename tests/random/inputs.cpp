#include "random/inputs.h"

#include "random/random.h"
#include "reference/draw_rules.h"

namespace millrace::random_programs {
namespace {

// An argument is a multiple of 2^-52 and smaller than one, a direction a multiple of 2^-29: their sum, with the
// direction scaled by 2^-kFinestStep or more, is a multiple of 2^-52 below two and no rounding moves it.
constexpr int kArgumentBits = 52;
constexpr int kDirectionBits = kArgumentBits - kFinestStep;

std::vector<double> draw(Random& random, int64_t count, int bits) {
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = random.uniform(bits);
  return values;
}

}  // namespace

Inputs draw_inputs(const Graph& graph, uint64_t seed) {
  Random random(~seed);  // not the sequence that made the program
  Inputs inputs;
  const DrawRules rules = draw_rules(graph);
  for (const TensorId argument : graph.arguments) {
    const Tensor& tensor = graph.tensor(argument);
    const int64_t count = elements_of(graph, argument);
    inputs.arguments.push_back(draw(random, count, kArgumentBits));
    if (!is_floating(tensor.dtype)) {
      for (double& value : inputs.arguments.back()) value = drawn_value(rules[argument.at()], value);
    }
    const bool moves = tensor.role == TensorRole::argument && !tensor.fixed;
    inputs.direction.push_back(moves ? draw(random, count, kDirectionBits)
                                     : std::vector<double>(static_cast<size_t>(count), 0.0));
  }
  for (const Output& result : graph.results) {
    inputs.result_gradients.push_back(draw(random, elements_of(graph, result.tensor), kArgumentBits));
  }
  inputs.random.seed = random.next();
  inputs.random.step = static_cast<uint32_t>(random.below(1000));
  return inputs;
}

Values<double> values_at(const Graph& graph, const Inputs& inputs, double step) {
  Values<double> values(graph.tensors.size());
  for (size_t i = 0; i < graph.arguments.size(); ++i) {
    std::vector<double>& moved = values[graph.arguments[i].at()];
    moved = inputs.arguments[i];
    for (size_t e = 0; e < moved.size(); ++e) moved[e] += step * inputs.direction[i][e];
  }
  return values;
}

}  // namespace millrace::random_programs
