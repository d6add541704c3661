// Builds a graph of cuDNN's operations, and the plan that executes it.
// Test: tests/device/cuda/cudnn_attention_test.cpp
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/id.h"
#include "device/cuda/cudnn.h"

namespace millrace {

using CudnnDescriptor = std::unique_ptr<void, std::function<void(void*)>>;

// A tensor of four axes.
struct CudnnShape {
  std::array<int64_t, 4> extents{};
  std::array<int64_t, 4> strides{};

  CudnnShape transposed() const;  // exchanges its two last axes
};

// A graph that the library has accepted, ready to run.
class CudnnPlan {
 public:
  CudnnPlan(const Cudnn& library, std::shared_ptr<cudnnContext> handle, CudnnDescriptor plan, int64_t workspace_bytes)
      : library_(&library), handle_(std::move(handle)), plan_(std::move(plan)), workspace_bytes_(workspace_bytes) {}

  int64_t workspace_bytes() const { return workspace_bytes_; }
  // `pointers`: of the tensor with each id; those of scalars point to host memory, which is read before this returns.
  Result<Done> run(const std::vector<int64_t>& ids, const std::vector<void*>& pointers, void* workspace,
                   void* stream) const;

 private:
  const Cudnn* library_;
  std::shared_ptr<cudnnContext> handle_;
  CudnnDescriptor plan_;
  int64_t workspace_bytes_;
};

// Operations in the order in which they are added. After a failure, it only keeps the first error, which plan()
// returns.
class CudnnGraph {
 public:
  using Id = int64_t;  // of a tensor

  explicit CudnnGraph(const Cudnn& library) : library_(&library) {}

  // ---- Tensors ----

  Id stored(cudnn::DataType type, const CudnnShape& shape) { return add(type, shape, Kind::stored); }
  Id intermediate(cudnn::DataType type, const CudnnShape& shape) { return add(type, shape, Kind::intermediate); }
  Id scalar(cudnn::DataType type);

  // ---- Operations ----

  void multiply_matrices(Id a, Id b, Id c);
  // Missing operands are 0.
  struct Operands {
    Id x = 0;
    Id b = 0;
    Id t = 0;
  };
  void pointwise(cudnn::PointwiseMode mode, cudnn::DataType precision, const Operands& operands, Id result);
  void index_along(int64_t axis, Id x, Id result);
  void reduce(cudnn::ReductionOperator op, Id x, Id result);
  void reshape(Id x, Id result);

  // ---- The plan ----

  // Uses the heuristic's first choice that the library accepts and that adds in a fixed order.
  Result<std::unique_ptr<CudnnPlan>> plan(const std::shared_ptr<cudnnContext>& handle);

 private:
  enum class Kind { stored, intermediate, scalar };

  Id add(cudnn::DataType type, const CudnnShape& shape, Kind kind);
  void* tensor(Id id) const { return tensors_[as_index(id - 1)].get(); }
  CudnnDescriptor make(cudnn::DescriptorType type);
  void check(int status, const char* what);
  void set(void* descriptor, cudnn::Attribute name, cudnn::AttributeType type, int64_t count, const void* elements);
  void set_tensor(void* operation, cudnn::Attribute name, Id id);
  void set_descriptor(void* descriptor, cudnn::Attribute name, void* value);
  void finish(void* descriptor, const char* what);
  void finish_operation(CudnnDescriptor operation, const char* what);
  CudnnDescriptor operation_graph(cudnnContext* handle);
  std::vector<CudnnDescriptor> engine_configs(void* graph);
  bool adds_in_fixed_order(const CudnnDescriptor& config);
  Result<std::unique_ptr<CudnnPlan>> plan_of(const CudnnDescriptor& config, std::shared_ptr<cudnnContext> handle);

  const Cudnn* library_;
  std::vector<CudnnDescriptor> tensors_;
  std::vector<CudnnDescriptor> operations_;
  Result<Done> state_ = Done{};
};

}  // namespace millrace
