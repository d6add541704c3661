// Runs a few steps of a plan on generated tensors, of any floating type: run_plan PLAN [STEPS]
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "millrace/plan.h"
#include "millrace/tensors.h"

namespace {

// Small numbers of both signs, with a mean above zero.
std::vector<double> numbers(const millrace::TensorInfo& tensor) {
  size_t elements = 1;
  for (const int64_t extent : tensor.shape) elements *= static_cast<size_t>(extent);
  std::vector<double> values;
  for (size_t k = 0; k < elements; ++k) values.push_back(static_cast<double>(k * 37 % 101) / 100 - 0.25);
  return values;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

int complain(const millrace::Error& error) {
  std::fputs(millrace::to_string(error).c_str(), stderr);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: run_plan PLAN [STEPS]\n", stderr);
    return 2;
  }
  millrace::Result<millrace::Plan> plan = millrace::Plan::load(argv[1]);
  if (!plan) return complain(plan.error());
  millrace::Result<millrace::PlanTensors> tensors = millrace::PlanTensors::allocate(*plan);
  if (!tensors) return complain(tensors.error());
  for (const auto* list : {&plan->arguments(), &plan->result_gradients()}) {
    for (const millrace::TensorInfo& tensor : *list) {
      const millrace::Result<millrace::Done> set = tensors->set(tensor.name, numbers(tensor));
      if (!set) return complain(set.error());
    }
  }

  const std::string& name = plan->results().front().name;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 3;
  for (int step = 0; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    const millrace::Result<millrace::Done> done = plan->step(tensors->view(), 1, static_cast<uint32_t>(step));
    if (!done) return complain(done.error());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    std::printf("step %d: mean of %s %.6f, %.3f ms (predicted %.3f ms)\n", step, name.c_str(),
                mean(*tensors->get(name)), taken.count() * 1e3, plan->predicted_seconds() * 1e3);
  }
  return 0;
}
