// Running a plan from C++: a layer's forward and backward on the caller's tensors, with no Python anywhere.
//
//   millrace::Result<millrace::Plan> plan = millrace::Plan::load("plan");
//   millrace::Tensors tensors;  // pointers to memory laid out as plan->arguments() and the others say
//   plan->step(tensors, seed, step);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/result.h"

namespace millrace {

// A tensor as the plan takes or gives it: dense, its axes in some order.
struct TensorInfo {
  std::string name;              // of a gradient d_NAME
  std::string dtype;             // float16, bfloat16, float32 or float64
  std::vector<int64_t> shape;    // in the program's order of axes
  std::vector<int64_t> strides;  // in elements, one an axis
  std::vector<int> order;        // the axes, outermost first
  int64_t bytes = 0;
  bool scalar = false;  // a number of the program: pass the address of a double. It has no gradient
};

// The caller's memory, in the order of the lists of Plan. Each pointer is aligned to its tensor's element, and no
// output overlaps anything else.
struct Tensors {
  std::span<const void* const> arguments;
  std::span<void* const> results;
  std::span<const void* const> result_gradients;  // forward needs none
  std::span<void* const> argument_gradients;      // forward needs none; what stands at a scalar is not looked at
};

// Not to be used by several threads at once: they would share its memory. Load it once for each of them.
class Plan {
 public:
  // plan.json, or the folder that it is in. Verifies it whole; compiles its kernels anew where those beside it cannot
  // be used.
  static Result<Plan> load(const std::string& path);

  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  const std::vector<TensorInfo>& arguments() const;
  const std::vector<TensorInfo>& results() const;
  const std::vector<TensorInfo>& result_gradients() const;    // one a result
  const std::vector<TensorInfo>& argument_gradients() const;  // one an argument; of a scalar nothing but its name

  double predicted_seconds() const;  // of a step
  int64_t arena_bytes() const;       // that the plan holds beside the caller's tensors

  // Dropout masks follow from seed and step alone. Backward comes after a forward on the same arguments, results, seed
  // and step, once: it uses up what forward left. Nothing is allocated.
  Result<Done> forward(const Tensors& tensors, uint64_t seed, uint32_t step);
  Result<Done> backward(const Tensors& tensors, uint64_t seed, uint32_t step);
  // Forward, then backward.
  Result<Done> step(const Tensors& tensors, uint64_t seed, uint32_t step);

 private:
  struct Implementation;
  explicit Plan(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace millrace
