// Runs a plan from C++: a layer's forward and backward on the caller's tensors, without Python.
// Test: tests/driver/plan_folder_test.cpp
//
//   millrace::Result<millrace::Plan> plan = millrace::Plan::load("plan");
//   millrace::Tensors tensors;  // pointers to memory, laid out as plan->arguments() and the other lists say
//   plan->step(tensors, seed, step);
//
// millrace/tensors.h allocates them, and sets and gets their elements by name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/result.h"

namespace millrace {

// A tensor as the plan takes or returns it: dense, its axes in some order.
struct TensorInfo {
  std::string name;              // d_NAME for a gradient
  std::string dtype;             // float16, bfloat16, float32, float64, int32, int64 or bool
  std::vector<int64_t> shape;    // in the program's order of axes
  std::vector<int64_t> strides;  // in elements, one per axis
  std::vector<int> order;        // the axes, outermost first
  int64_t bytes = 0;
  bool scalar = false;           // a number: pass the address of a double. It has no gradient
  bool read_by_backward = true;  // arguments and results: if false, backward also accepts a null pointer
  int follows = -1;              // the tensor of its list that it directly follows in memory; -1: none
};

// Who owns the memory that a plan works in.
enum class PlanMemory { own, callers };

inline constexpr int64_t kPlanMemoryAlignment = 64;

// The caller's memory, in the order of the lists of Plan. Each pointer is aligned to its tensor's element, and no
// output overlaps anything else.
//
// `saved` holds what forward saves for its backward, which only reads it. With one `saved` per forward, several of them
// can be in flight, and backward can be repeated. Equal inputs produce equal bytes in it, and every byte is written.
// `workspace` is used while a pass runs; its content is undefined before and after. Both are aligned to
// kPlanMemoryAlignment; null means the plan's own memory.
struct Tensors {
  std::span<const void* const> arguments;
  std::span<void* const> results;
  std::span<const void* const> result_gradients;  // not needed by forward
  std::span<void* const> argument_gradients;      // not needed by forward; null for arguments without a gradient
  void* saved = nullptr;                          // Plan::saved_bytes()
  void* workspace = nullptr;                      // Plan::workspace_bytes()
  // Seed and step as two 64-bit numbers in the tensors' memory (for a GPU in GPU memory, so that a captured graph draws
  // new masks when they change); null: those of the call.
  const void* random = nullptr;
  // For a plan on a GPU: all addresses except scalars' are device addresses, aligned to 16 (saved and workspace to
  // 256), and calls only enqueue work on this CUstream. Null: the plan's own stream.
  void* stream = nullptr;
};

// Not thread-safe, even if each thread passes its own memory. Load the plan once per thread, or use a lock.
class Plan {
 public:
  // `path`: plan.json or its folder. Verifies the whole plan, and recompiles its kernels if the stored ones cannot be
  // used.
  static Result<Plan> load(const std::string& path, PlanMemory memory = PlanMemory::own);

  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  const std::vector<TensorInfo>& arguments() const;
  const std::vector<TensorInfo>& results() const;
  const std::vector<TensorInfo>& result_gradients() const;  // one per result
  // One per argument; only the name is set for an argument without a gradient.
  const std::vector<TensorInfo>& argument_gradients() const;

  // One of them by its name; an error that names the others if there is none.
  Result<TensorInfo> argument(std::string_view name) const;
  Result<TensorInfo> result(std::string_view name) const;
  Result<TensorInfo> gradient(std::string_view name) const;  // "d_x", of an argument or of a result

  const std::string& device() const;  // where the tensors must be: "cpu" or "cuda"
  double predicted_seconds() const;   // per step
  int64_t saved_bytes() const;        // of Tensors::saved
  int64_t workspace_bytes() const;    // of Tensors::workspace
  int64_t arena_bytes() const;        // both

  // On the CPU, passes flush denormal numbers to zero in their threads by default, and restore the caller's setting;
  // see docs/decisions/0015-numbers-and-denormals.md. After this call they keep denormals.
  void keep_denormals();

  // Dropout masks depend only on seed and step. Call backward after a forward with the same arguments, results, saved
  // memory, seed and step, any number of times. Nothing is allocated.
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
