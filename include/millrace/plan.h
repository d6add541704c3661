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
  bool scalar = false;           // a number of the program: pass the address of a double. It has no gradient
  bool read_by_backward = true;  // of arguments and results: else backward takes a null pointer for it too
  int behind = -1;               // the tensor of its list that it lies right behind, in one array; -1: anywhere
};

// Who has the memory that a plan works in: the plan, or the caller alone.
enum class PlanMemory { own, callers };

inline constexpr int64_t kPlanMemoryAlignment = 64;

// The caller's memory, in the order of the lists of Plan. Each pointer is aligned to its tensor's element, and no
// output overlaps anything else.
//
// `saved` holds what forward leaves for its backward, which only reads it: with one for each forward several of them
// can be under way, and backward can be repeated. The same tensors leave the same bytes, all of them written.
// `workspace` is used while a pass runs, and means nothing before and after. Both are aligned to kPlanMemoryAlignment;
// null is the plan's own.
struct Tensors {
  std::span<const void* const> arguments;
  std::span<void* const> results;
  std::span<const void* const> result_gradients;  // forward needs none
  std::span<void* const> argument_gradients;      // forward needs none; what has none may be null
  void* saved = nullptr;                          // Plan::saved_bytes()
  void* workspace = nullptr;                      // Plan::workspace_bytes()
  // Seed and step as two 64-bit numbers beside the tensors (on a GPU in its memory, so that a captured graph draws
  // other masks when they change); null: those of the call.
  const void* random = nullptr;
  // Of a plan on a GPU: all addresses but those of scalars are the device's, aligned to 16 (saved and workspace to
  // 256), and the work is only put on this CUstream. Null: a stream of the plan's own.
  void* stream = nullptr;
};

// Not to be used by several threads at once, not even with memory of theirs. Load it once for each of them, or let them
// take turns.
class Plan {
 public:
  // plan.json, or the folder that it is in. Verifies it whole; compiles its kernels anew where those beside it cannot
  // be used.
  static Result<Plan> load(const std::string& path, PlanMemory memory = PlanMemory::own);

  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  const std::vector<TensorInfo>& arguments() const;
  const std::vector<TensorInfo>& results() const;
  const std::vector<TensorInfo>& result_gradients() const;  // one a result
  const std::vector<TensorInfo>& argument_gradients()
      const;  // one an argument; of one without gradient nothing but its name

  const std::string& device() const;  // where its tensors are: "cpu" or "cuda"
  double predicted_seconds() const;   // of a step
  int64_t saved_bytes() const;        // that forward leaves for backward
  int64_t workspace_bytes() const;    // that a pass works in
  int64_t arena_bytes() const;        // both

  // Dropout masks follow from seed and step alone. Backward comes after a forward on the same arguments, results, saved
  // memory, seed and step, as often as is wanted. Nothing is allocated.
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
