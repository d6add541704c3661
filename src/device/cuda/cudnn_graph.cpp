#include "device/cuda/cudnn_graph.h"

#include <algorithm>
#include <span>

#include "base/text.h"

namespace millrace {
namespace {

CudnnDescriptor owned(const Cudnn& library, void* descriptor) {
  return {descriptor, [&library](void* made) { library.destroy_descriptor(made); }};
}

}  // namespace

CudnnShape CudnnShape::transposed() const {
  CudnnShape made = *this;
  std::swap(made.extents[2], made.extents[3]);
  std::swap(made.strides[2], made.strides[3]);
  return made;
}

// ---- Descriptors ----

void CudnnGraph::check(int status, const char* what) {
  if (!state_ || status == cudnn::kSuccess) return;
  state_ = library_->check(status, what);
}

CudnnDescriptor CudnnGraph::make(cudnn::DescriptorType type) {
  void* descriptor = nullptr;
  check(library_->create_descriptor(type, &descriptor), "make a descriptor");
  return owned(*library_, descriptor);
}

void CudnnGraph::set(void* descriptor, cudnn::Attribute name, cudnn::AttributeType type, int64_t count,
                     const void* elements) {
  if (state_) check(library_->set_attribute(descriptor, name, type, count, elements), "describe an attention");
}

void CudnnGraph::set_descriptor(void* descriptor, cudnn::Attribute name, void* value) {
  set(descriptor, name, cudnn::kTypeDescriptor, 1, static_cast<const void*>(&value));
}

void CudnnGraph::set_tensor(void* operation, cudnn::Attribute name, Id id) {
  if (id != 0) set_descriptor(operation, name, tensor(id));
}

void CudnnGraph::finish(void* descriptor, const char* what) {
  if (state_) check(library_->finalize(descriptor), what);
}

void CudnnGraph::finish_operation(CudnnDescriptor operation, const char* what) {
  finish(operation.get(), what);
  operations_.push_back(std::move(operation));
}

// ---- Tensors ----

CudnnGraph::Id CudnnGraph::add(cudnn::DataType type, const CudnnShape& shape, Kind kind) {
  constexpr int64_t kAlignment = 16;
  const Id id = std::ssize(tensors_) + 1;
  const bool is_virtual = kind == Kind::intermediate;
  const bool by_value = kind == Kind::scalar;
  CudnnDescriptor made = make(cudnn::kTensor);
  set(made.get(), cudnn::kTensorId, cudnn::kTypeInt64, 1, &id);
  set(made.get(), cudnn::kTensorDataType, cudnn::kTypeDataType, 1, &type);
  set(made.get(), cudnn::kTensorAlignment, cudnn::kTypeInt64, 1, &kAlignment);
  set(made.get(), cudnn::kTensorDimensions, cudnn::kTypeInt64, 4, shape.extents.data());
  set(made.get(), cudnn::kTensorStrides, cudnn::kTypeInt64, 4, shape.strides.data());
  set(made.get(), cudnn::kTensorIsVirtual, cudnn::kTypeBoolean, 1, &is_virtual);
  set(made.get(), cudnn::kTensorIsByValue, cudnn::kTypeBoolean, 1, &by_value);
  finish(made.get(), "describe a tensor");
  tensors_.push_back(std::move(made));
  return id;
}

CudnnGraph::Id CudnnGraph::scalar(cudnn::DataType type) {
  return add(type, {{1, 1, 1, 1}, {1, 1, 1, 1}}, Kind::scalar);
}

// ---- Operations ----

void CudnnGraph::multiply_matrices(Id a, Id b, Id c) {
  const cudnn::DataType precision = cudnn::kFloat;
  const CudnnDescriptor matmul = make(cudnn::kMatmul);
  set(matmul.get(), cudnn::kMatmulComputeType, cudnn::kTypeDataType, 1, &precision);
  finish(matmul.get(), "describe a product");
  CudnnDescriptor operation = make(cudnn::kOperationMatmul);
  set_tensor(operation.get(), cudnn::kOperationMatmulA, a);
  set_tensor(operation.get(), cudnn::kOperationMatmulB, b);
  set_tensor(operation.get(), cudnn::kOperationMatmulC, c);
  set_descriptor(operation.get(), cudnn::kOperationMatmulDescriptor, matmul.get());
  finish_operation(std::move(operation), "add a product");
}

void CudnnGraph::pointwise(cudnn::PointwiseMode mode, cudnn::DataType precision, const Operands& operands, Id result) {
  const CudnnDescriptor described = make(cudnn::kPointwise);
  set(described.get(), cudnn::kPointwiseMode, cudnn::kTypePointwiseMode, 1, &mode);
  set(described.get(), cudnn::kPointwiseMathPrecision, cudnn::kTypeDataType, 1, &precision);
  finish(described.get(), "describe an elementwise operation");
  CudnnDescriptor operation = make(cudnn::kOperationPointwise);
  set_descriptor(operation.get(), cudnn::kOperationPointwiseDescriptor, described.get());
  set_tensor(operation.get(), cudnn::kOperationPointwiseX, operands.x);
  set_tensor(operation.get(), cudnn::kOperationPointwiseB, operands.b);
  set_tensor(operation.get(), cudnn::kOperationPointwiseT, operands.t);
  set_tensor(operation.get(), cudnn::kOperationPointwiseY, result);
  finish_operation(std::move(operation), "add an elementwise operation");
}

void CudnnGraph::index_along(int64_t axis, Id x, Id result) {
  const cudnn::PointwiseMode mode = cudnn::kGenerateIndex;
  const cudnn::DataType precision = cudnn::kFloat;
  const CudnnDescriptor described = make(cudnn::kPointwise);
  set(described.get(), cudnn::kPointwiseMode, cudnn::kTypePointwiseMode, 1, &mode);
  set(described.get(), cudnn::kPointwiseMathPrecision, cudnn::kTypeDataType, 1, &precision);
  set(described.get(), cudnn::kPointwiseAxis, cudnn::kTypeInt64, 1, &axis);
  finish(described.get(), "describe an index");
  CudnnDescriptor operation = make(cudnn::kOperationPointwise);
  set_descriptor(operation.get(), cudnn::kOperationPointwiseDescriptor, described.get());
  set_tensor(operation.get(), cudnn::kOperationPointwiseX, x);
  set_tensor(operation.get(), cudnn::kOperationPointwiseY, result);
  finish_operation(std::move(operation), "add an index");
}

void CudnnGraph::reduce(cudnn::ReductionOperator op, Id x, Id result) {
  const cudnn::DataType precision = cudnn::kFloat;
  const CudnnDescriptor described = make(cudnn::kReduction);
  set(described.get(), cudnn::kReductionOperator, cudnn::kTypeReductionOperator, 1, &op);
  set(described.get(), cudnn::kReductionComputeType, cudnn::kTypeDataType, 1, &precision);
  finish(described.get(), "describe a reduction");
  CudnnDescriptor operation = make(cudnn::kOperationReduction);
  set_tensor(operation.get(), cudnn::kOperationReductionX, x);
  set_tensor(operation.get(), cudnn::kOperationReductionY, result);
  set_descriptor(operation.get(), cudnn::kOperationReductionDescriptor, described.get());
  finish_operation(std::move(operation), "add a reduction");
}

void CudnnGraph::reshape(Id x, Id result) {
  CudnnDescriptor operation = make(cudnn::kOperationReshape);
  set_tensor(operation.get(), cudnn::kOperationReshapeX, x);
  set_tensor(operation.get(), cudnn::kOperationReshapeY, result);
  finish_operation(std::move(operation), "add a transposition");
}

// ---- The plan ----

CudnnDescriptor CudnnGraph::operation_graph(cudnnContext* handle) {
  std::vector<void*> operations;
  for (const CudnnDescriptor& operation : operations_) operations.push_back(operation.get());
  CudnnDescriptor graph = make(cudnn::kOperationGraph);
  set(graph.get(), cudnn::kGraphHandle, cudnn::kTypeHandle, 1, static_cast<const void*>(&handle));
  set(graph.get(), cudnn::kGraphOperations, cudnn::kTypeDescriptor, std::ssize(operations), operations.data());
  finish(graph.get(), "compute this attention");
  return graph;
}

std::vector<CudnnDescriptor> CudnnGraph::engine_configs(void* graph) {
  const cudnn::HeuristicsMode mode = cudnn::kHeuristicsA;
  const CudnnDescriptor heuristics = make(cudnn::kEngineHeuristics);
  set_descriptor(heuristics.get(), cudnn::kHeuristicsGraph, graph);
  set(heuristics.get(), cudnn::kHeuristicsMode, cudnn::kTypeHeuristicsMode, 1, &mode);
  finish(heuristics.get(), "compute this attention");
  int64_t count = 0;
  if (state_)
    check(library_->get_attribute(heuristics.get(), cudnn::kHeuristicsResults, cudnn::kTypeDescriptor, 0, &count,
                                  nullptr),
          "choose how to compute an attention");
  std::vector<CudnnDescriptor> configs;
  std::vector<void*> pointers;
  for (int64_t k = 0; k < count; ++k) pointers.push_back(configs.emplace_back(make(cudnn::kEngineConfig)).get());
  if (state_)
    check(library_->get_attribute(heuristics.get(), cudnn::kHeuristicsResults, cudnn::kTypeDescriptor, count, &count,
                                  pointers.data()),
          "choose how to compute an attention");
  configs.resize(state_ ? static_cast<size_t>(count) : 0);
  return configs;
}

bool CudnnGraph::adds_in_fixed_order(const CudnnDescriptor& config) {
  CudnnDescriptor engine = make(cudnn::kEngine);
  void* pointer = engine.get();
  std::array<int, cudnn::kNumericalNotes> notes{};
  int64_t count = 0;
  if (library_->get_attribute(config.get(), cudnn::kConfigEngine, cudnn::kTypeDescriptor, 1, &count, &pointer) !=
          cudnn::kSuccess ||
      library_->get_attribute(pointer, cudnn::kEngineNumericalNote, cudnn::kTypeNumericalNote, cudnn::kNumericalNotes,
                              &count, notes.data()) != cudnn::kSuccess)
    return false;
  const std::span<const int> known(notes.data(), std::min(static_cast<size_t>(count), notes.size()));
  return std::find(known.begin(), known.end(), cudnn::kNondeterministic) == known.end();
}

Result<std::unique_ptr<CudnnPlan>> CudnnGraph::plan_of(const CudnnDescriptor& config,
                                                       std::shared_ptr<cudnnContext> handle) {
  state_ = Done{};
  CudnnDescriptor plan = make(cudnn::kExecutionPlan);
  cudnnContext* const pointer = handle.get();
  set(plan.get(), cudnn::kPlanHandle, cudnn::kTypeHandle, 1, static_cast<const void*>(&pointer));
  set_descriptor(plan.get(), cudnn::kPlanEngineConfig, config.get());
  finish(plan.get(), "compute this attention");
  int64_t bytes = 0;
  int64_t count = 0;
  if (state_)
    check(library_->get_attribute(plan.get(), cudnn::kPlanWorkspaceSize, cudnn::kTypeInt64, 1, &count, &bytes),
          "tell how much memory an attention needs");
  if (!state_) return state_.error();
  return std::make_unique<CudnnPlan>(*library_, std::move(handle), std::move(plan), bytes);
}

Result<std::unique_ptr<CudnnPlan>> CudnnGraph::plan(const std::shared_ptr<cudnnContext>& handle) {
  const CudnnDescriptor graph = operation_graph(handle.get());
  const std::vector<CudnnDescriptor> configs = engine_configs(graph.get());
  if (!state_) return state_.error();
  Error reason = Error::make(ErrorKind::failed, "cuDNN has no engine for this attention that adds in a fixed order");
  for (const CudnnDescriptor& config : configs) {
    if (!adds_in_fixed_order(config)) continue;
    Result<std::unique_ptr<CudnnPlan>> made = plan_of(config, handle);
    if (made) return made;
    reason = made.error();
  }
  return reason;
}

Result<Done> CudnnPlan::run(const std::vector<int64_t>& ids, const std::vector<void*>& pointers, void* workspace,
                            void* stream) const {
  void* made = nullptr;
  int status = library_->create_descriptor(cudnn::kVariantPack, &made);
  const CudnnDescriptor pack = owned(*library_, made);
  const auto set = [&](cudnn::Attribute name, cudnn::AttributeType type, int64_t count, const void* elements) {
    if (status == cudnn::kSuccess) status = library_->set_attribute(pack.get(), name, type, count, elements);
  };
  set(cudnn::kPackIds, cudnn::kTypeInt64, std::ssize(ids), ids.data());
  set(cudnn::kPackPointers, cudnn::kTypeVoidPointer, std::ssize(pointers), pointers.data());
  set(cudnn::kPackWorkspace, cudnn::kTypeVoidPointer, 1, static_cast<const void*>(&workspace));
  if (status == cudnn::kSuccess) status = library_->finalize(pack.get());
  if (status == cudnn::kSuccess) status = library_->set_stream(handle_.get(), stream);
  if (status == cudnn::kSuccess) status = library_->execute(handle_.get(), plan_.get(), pack.get());
  return library_->check(status, "run an attention");
}

}  // namespace millrace
