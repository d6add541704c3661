#include "measure/gpu/truths_ahead.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <set>
#include <thread>

#include "base/parallel.h"
#include "measure/trial.h"

namespace millrace {
namespace {

constexpr size_t kMostAhead = 3;
constexpr size_t kCoresEach = 4;
constexpr double kBytesAnElement = 40;  // a value with its error, as it is drawn, and as it is expected

Result<Truth> truth_or_inputs(const Graph& graph, const Part& part, uint64_t seed) {
  if (is_large(part)) return draw_inputs(graph, part, seed, false);
  return truth_of(graph, part, seed);
}

double bytes_for(const Graph& graph, const Part& part) {
  std::set<TensorId> tensors;
  for (const TensorId tensor : tensors_of(part)) tensors.insert(tensor);
  for (const std::vector<OperatorId>* operators : {&part.operators, &part.repeats}) {
    for (const OperatorId id : *operators) {
      for (const Access& output : graph.operators[id.at()].outputs) tensors.insert(output.tensor);
    }
  }
  double elements = 0;
  for (const TensorId tensor : tensors) elements += static_cast<double>(elements_of(graph, tensor));
  return kBytesAnElement * elements;
}

}  // namespace

AheadLimits AheadLimits::of_machine() {
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return {std::min<size_t>(kMostAhead, std::thread::hardware_concurrency() / kCoresEach), memory / 4};
}

void TruthsAhead::begin(const std::string& text, const Part& part) {
  if (coming_.contains(text) || coming_.size() >= limits_.count) return;
  const double bytes = bytes_for(*graph_, part);
  double sum = bytes;
  for (const auto& [other, coming] : coming_) sum += coming.bytes;
  if (sum > limits_.bytes) return;
  const auto work = [graph = graph_, part, seed = seed_]() -> std::optional<Result<Truth>> {
    step_back();
    try {
      return truth_or_inputs(*graph, part, seed);
    } catch (const std::bad_alloc&) {
      return std::nullopt;
    }
  };
  coming_[text] = {std::async(std::launch::async, work), bytes};
}

Result<Truth> TruthsAhead::take(const std::string& text, const Part& part) {
  const auto found = coming_.find(text);
  if (found == coming_.end()) return truth_or_inputs(*graph_, part, seed_);
  std::optional<Result<Truth>> truth = found->second.truth.get();
  coming_.erase(found);
  return truth ? std::move(*truth) : truth_or_inputs(*graph_, part, seed_);
}

}  // namespace millrace
