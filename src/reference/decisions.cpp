#include "reference/decisions.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace millrace {
namespace {

// How many of an operator's first inputs it compares; a ReLU and a sign compare it with 0.
size_t sides_of(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::relu:
    case OperatorKind::sign: return 1;
    case OperatorKind::less:
    case OperatorKind::less_equal:
    case OperatorKind::equal:
    case OperatorKind::not_equal:
    case OperatorKind::extremum_dx: return 2;
    default: return 0;
  }
}

double largest_distance(const std::vector<double>& one, const std::vector<double>& other) {
  double most = 0;
  for (size_t k = 0; k < one.size(); ++k) most = std::max(most, one[k] == other[k] ? 0 : std::abs(one[k] - other[k]));
  return most;
}

}  // namespace

Decisions::Decisions(const Graph& graph) {
  differences_.name = graph.name;
  differences_.dims = graph.dims;
  const auto side = [&](const Access& access) {
    const auto known = std::find(sources_.begin(), sources_.end(), access.tensor);
    const TensorId tensor(static_cast<size_t>(known - sources_.begin()));
    if (known == sources_.end()) {
      sources_.push_back(access.tensor);
      Tensor source = graph.tensor(access.tensor);
      if (source.role == TensorRole::computed) source.role = TensorRole::argument;
      differences_.tensors.push_back(std::move(source));
    }
    return Access{tensor, access.axes};
  };
  std::vector<Operator> found;
  for (const Operator& op : graph.operators) {
    const size_t sides = sides_of(op.kind);
    if (sides == 0) continue;
    Operator difference;
    difference.name = op.name;
    difference.kind = sides == 1 ? OperatorKind::copy : OperatorKind::subtract;
    difference.space = op.space;
    difference.reduced.assign(op.space.size(), false);
    for (size_t k = 0; k < sides; ++k) difference.inputs.push_back(side(op.inputs[k]));
    found.push_back(std::move(difference));
  }
  for (Operator& difference : found) {
    difference.outputs.push_back({TensorId(differences_.tensors.size()), in_order(difference.space.size())});
    differences_.tensors.push_back({concat(difference.name, " difference"), DType::float64, difference.space});
    differences_.operators.push_back(std::move(difference));
  }
}

Result<Values<double>> Decisions::differences_in(const Values<double>& values) const {
  Values<double> made(differences_.tensors.size());
  for (size_t k = 0; k < sources_.size(); ++k) made[k] = values[sources_[k].at()];
  if (Result<Done> ran = interpret(differences_, made, {}); !ran) return ran.error();
  made.erase(made.begin(), made.begin() + std::ssize(sources_));
  return made;
}

Result<bool> Decisions::are_clear(const Values<double>& exact, const Values<double>& rounded) const {
  const Result<Values<double>> exact_differences = differences_in(exact);
  if (!exact_differences) return exact_differences.error();
  const Result<Values<double>> rounded_differences = differences_in(rounded);
  if (!rounded_differences) return rounded_differences.error();
  for (size_t decision = 0; decision < exact_differences->size(); ++decision) {
    const std::vector<double>& difference = (*exact_differences)[decision];
    const std::vector<double>& computed = (*rounded_differences)[decision];
    const double error = largest_distance(difference, computed);
    for (size_t k = 0; k < difference.size(); ++k) {
      const bool always_equal = difference[k] == 0 && computed[k] == 0;
      if (!always_equal && std::abs(difference[k]) <= 2 * error) return false;
    }
  }
  return true;
}

}  // namespace millrace
