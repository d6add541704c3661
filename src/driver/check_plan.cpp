#include "driver/check_plan.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "driver/callers_tensors.h"
#include "driver/given_tensors.h"
#include "measure/truth.h"
#include "reference/bounded.h"
#include "reference/interpreter.h"

namespace millrace {
namespace {

constexpr uint64_t kSeed = 7;
constexpr uint32_t kStep = 3;
constexpr double kPasses =
    5;  // over the program, in doubles: one exact and one bounded, which takes four times as long
constexpr double kFloat64 = 1e-10;

struct Named {
  std::string name;
  TensorId tensor;
};

std::vector<Named> outputs_of(const TrainingGraph& training) {
  std::vector<Named> outputs;
  for (const Output& result : training.graph.results) outputs.push_back({result.name, result.tensor});
  for (size_t k = 0; k < training.graph.arguments.size(); ++k) {
    if (training.argument_gradients[k].valid())
      outputs.push_back(
          {concat("d_", training.graph.tensor(training.graph.arguments[k]).name), training.argument_gradients[k]});
  }
  return outputs;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double x : values) most = std::max(most, std::abs(x));
  return most;
}

double distance(const std::vector<double>& one, const std::vector<double>& other) {
  double most = 0;
  for (size_t k = 0; k < one.size(); ++k) {
    const double apart = one[k] == other[k] ? 0 : std::abs(one[k] - other[k]);
    most = apart <= most ? most : apart;  // a NaN is taken
  }
  return most;
}

// What each element of an output may be off by.
class Allowance {
 public:
  Allowance(const Graph& graph, const Values<double>& given) : graph_(graph), given_(given) {}

  Result<Done> prepare() {
    exact_ = given_;
    if (Result<Done> ran = interpret(graph_, exact_, {kSeed, kStep}); !ran) return ran;
    for (const Tensor& tensor : graph_.tensors) {
      half_ = half_ || tensor.dtype == DType::float16 || tensor.dtype == DType::bfloat16;
      single_ = single_ || (tensor.dtype == DType::float32 && tensor.role != TensorRole::constant &&
                            tensor.role != TensorRole::scalar);
    }
    if (half_) {
      rounded_ = given_;
      return interpret_rounded(graph_, rounded_, {kSeed, kStep});
    }
    if (!single_) return Done{};
    bounded_.resize(given_.size());
    for (size_t k = 0; k < given_.size(); ++k) {
      for (const double x : given_[k]) bounded_[k].emplace_back(x);
    }
    return interpret(graph_, bounded_, {kSeed, kStep});
  }

  const std::vector<double>& exact(TensorId tensor) const { return exact_[tensor.at()]; }

  // The error as a fraction of what is allowed.
  double fraction(TensorId tensor, const std::vector<double>& found) const {
    const std::vector<double>& wanted = exact_[tensor.at()];
    const DType dtype = graph_.tensor(tensor).dtype;
    if (half_) {
      // An unfused program that happens to be exact still rounds its result.
      const double allowed = 2 * distance(wanted, rounded_[tensor.at()]) + storage_error(dtype, largest(wanted));
      return distance(wanted, found) / allowed;
    }
    if (!single_) return distance(wanted, found) / (kFloat64 * largest(wanted) + 1e-300);
    double worst = 0;
    for (size_t k = 0; k < wanted.size(); ++k) {
      const double allowed = bounded_[tensor.at()][k].error + storage_error(dtype, wanted[k]);
      const double apart = wanted[k] == found[k] ? 0 : std::abs(found[k] - wanted[k]) / allowed;
      worst = apart <= worst ? worst : apart;
    }
    return worst;
  }

 private:
  const Graph& graph_;
  const Values<double>& given_;
  Values<double> exact_;
  Values<double> rounded_;
  Values<Bounded<24>> bounded_;
  bool half_ = false;
  bool single_ = false;
};

}  // namespace

Result<PlanCheck> check_plan(const LoadedPlan& loaded, CpuExecutor& executor, double most_seconds) {
  const Graph& graph = loaded.training.graph;
  PlanCheck check;
  check.seconds = kPasses * reference_seconds(graph);
  if (check.seconds > most_seconds) return check;
  Values<double> given(graph.tensors.size());
  draw_missing(graph, given_tensors(loaded.training), kSeed, given);
  for (size_t k = 0; k < given.size(); ++k) {
    if (graph.tensors[k].role == TensorRole::scalar) continue;
    for (double& x : given[k]) x = rounded_to(graph.tensors[k].dtype, x);
  }
  Allowance allowance(graph, given);
  if (Result<Done> ready = allowance.prepare(); !ready) return ready.error();
  const CallersMemory memory(loaded, given);
  executor.bind(memory.pointers(), kSeed, kStep);
  executor.step();
  Values<double> found(graph.tensors.size());
  memory.take(found);
  for (const Named& output : outputs_of(loaded.training)) {
    const double fraction = allowance.fraction(output.tensor, found[output.tensor.at()]);
    if (!(fraction <= 1)) {
      return Error::make(ErrorKind::failed,
                         concat("'", output.name, "' of the plan is not the reference's: ", fraction,
                                " times as far off as rounding explains"),
                         "this is a defect of Millrace: please report it with the program");
    }
    if (fraction > check.worst) {
      check.worst = fraction;
      check.tensor = output.name;
    }
  }
  check.checked = true;
  return check;
}

}  // namespace millrace
