// Runs a few steps of a plan on generated tensors: run_plan PLAN [STEPS]
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "millrace/plan.h"

namespace {

// Memory for a list of tensors, and pointers to it. std::vector<double> is aligned for every storage type.
struct Buffers {
  std::vector<std::vector<double>> memory;
  std::vector<void*> pointers;
  std::vector<const void*> readable;

  explicit Buffers(const std::vector<millrace::TensorInfo>& tensors) : pointers(tensors.size()) {
    for (size_t first = 0; first < tensors.size(); ++first) {
      if (tensors[first].follows >= 0) continue;
      // One array for a tensor and those that must directly follow it.
      int64_t bytes = 0;
      for (size_t k = first; k < tensors.size(); k = follower(tensors, k)) bytes += tensors[k].bytes;
      char* at = reinterpret_cast<char*>(memory.emplace_back(static_cast<size_t>(bytes) / sizeof(double) + 1).data());
      for (size_t k = first; k < tensors.size(); k = follower(tensors, k)) {
        pointers[k] = at;
        at += tensors[k].bytes;
      }
    }
    readable.assign(pointers.begin(), pointers.end());
  }

  // The tensor that must directly follow tensor `k`; the number of tensors if none.
  static size_t follower(const std::vector<millrace::TensorInfo>& tensors, size_t k) {
    size_t next = 0;
    while (next < tensors.size() && tensors[next].follows != static_cast<int>(k)) ++next;
    return next;
  }
};

// Small numbers of both signs; 16-bit types stay zero.
void fill(const millrace::TensorInfo& tensor, void* to) {
  const int64_t elements = tensor.scalar ? 1 : tensor.bytes / (tensor.dtype == "float64" ? 8 : 4);
  for (int64_t k = 0; k < elements; ++k) {
    const double value = static_cast<double>((k * 37) % 101 - 50) / 100;
    if (tensor.dtype == "float64") static_cast<double*>(to)[k] = value;
    if (tensor.dtype == "float32") static_cast<float*>(to)[k] = static_cast<float>(value);
  }
}

double mean(const millrace::TensorInfo& tensor, const void* from) {
  const int64_t elements = tensor.bytes / (tensor.dtype == "float64" ? 8 : 4);
  double sum = 0;
  for (int64_t k = 0; k < elements; ++k) {
    if (tensor.dtype == "float64") sum += static_cast<const double*>(from)[k];
    if (tensor.dtype == "float32") sum += static_cast<double>(static_cast<const float*>(from)[k]);
  }
  return sum / static_cast<double>(elements);
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

  Buffers arguments(plan->arguments());
  Buffers results(plan->results());
  Buffers result_gradients(plan->result_gradients());
  Buffers argument_gradients(plan->argument_gradients());
  for (size_t k = 0; k < arguments.pointers.size(); ++k) fill(plan->arguments()[k], arguments.pointers[k]);
  for (size_t k = 0; k < results.pointers.size(); ++k) fill(plan->result_gradients()[k], result_gradients.pointers[k]);
  const millrace::Tensors tensors{arguments.readable, results.pointers, result_gradients.readable,
                                  argument_gradients.pointers};

  const int steps = argc > 2 ? std::atoi(argv[2]) : 3;
  for (int step = 0; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    const millrace::Result<millrace::Done> done = plan->step(tensors, 1, static_cast<uint32_t>(step));
    if (!done) return complain(done.error());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    std::printf("step %d: mean of %s %.6f, %.3f ms (predicted %.3f ms)\n", step, plan->results()[0].name.c_str(),
                mean(plan->results()[0], results.pointers[0]), taken.count() * 1e3, plan->predicted_seconds() * 1e3);
  }
  return 0;
}
