// A partition's loop nest as both generators see it: tensors, loops and schedule, and the text that refers to them.
// Test: tests/codegen/cpu_kernel_test.cpp, cuda_kernel_test.cpp
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "codegen/kernel_text.h"
#include "codegen/schedule.h"

namespace millrace::codegen {

struct NestInput {
  const Graph& graph;
  const Partition& partition;
  const std::vector<Layout>& layouts;  // one for each tensor of the partition: first its reads, then its writes
  const KernelConfig& config;
};

// A tensor of the partition; pointer pK of the kernel is port K.
struct Port {
  TensorId tensor;
  bool written = false;
  Layout layout;
  std::vector<int64_t> strides;  // one for each axis
};

// What a generator writes for the tokens of an expression (recipe.h).
struct OperandTexts {
  std::function<std::string(int number)> input;
  std::function<std::string(const NestValue&)> value;
  std::function<std::string()> mask;
  std::function<std::string(size_t index)> position;  // of the point along an index of the operator's space
};

struct Nest {
  explicit Nest(const NestInput& input);

  const Graph& graph;
  const Partition& partition;
  const KernelConfig& config;
  std::vector<Port> ports;
  std::string real = "float";
  bool rows_in_lanes = false;  // the lanes of a vector are rows
  RowShape row_shape;
  std::vector<int> loops;
  Schedule schedule;

  static size_t at(int index) { return static_cast<size_t>(index); }
  static std::string index_name(int index);

  int64_t extent(int index) const { return partition.space[at(index)].extent; }
  int64_t points(const std::vector<int>& indices) const;
  int64_t real_bytes() const { return real == "double" ? 8 : 4; }
  const Operator& op(int member) const { return graph.operators[partition.members[at(member)].at()]; }

  std::string type_of(const Port& port) const;
  int port_of(TensorId tensor, bool written) const;

  // The index of the partition's space along each axis of an access, and of the tensor of a layout conversion.
  std::vector<int> indices_along(int member, const Access& access) const;
  std::vector<int> own_indices(TensorId tensor) const;

  // How far an access moves with each index.
  static std::map<int, int64_t> index_strides(const std::vector<int>& indices, const std::vector<int64_t>& strides);
  static std::string sum_of(const std::map<int, int64_t>& by_index);
  static int64_t stride_along(int index, const std::vector<int>& indices, const std::vector<int64_t>& strides);

  std::vector<int> outer_loops() const;

  // The offset of a point in an array over these indices, the last of which has this stride.
  std::string offset_in(const std::vector<int>& indices, int64_t stride) const;

  // How many points a member's reductions run over.
  int64_t reduced_points(int member) const;

  static std::string value_name(const NestValue& value);
  static NestValue value_of(const PlacedInstruction& placed);
  static std::string identity(InstructionKind kind);
  static std::string operation(InstructionKind kind);

  // The member's output that this tensor is, if the nest computes it.
  std::optional<NestValue> made_inside(TensorId tensor) const;

  // The indices that a reduction across rows keeps, outermost first.
  std::vector<int> kept_by(int member) const;

  // An instruction's expression with operands in place of tokens. Numbers that the kernel needs are added to `values`.
  std::string expanded(const PlacedInstruction& placed, const OperandTexts& texts,
                       std::vector<KernelValue>& values) const;

  // The condition of causal_mask and embed_diagonal.
  std::string condition(int member, const std::function<std::string(size_t)>& position) const;

  // A constant or scalar input as a kernel value; nothing if the tensor is neither.
  std::optional<KernelValue> number_in(TensorId tensor) const;
};

// The position of a value among those that the kernel takes; adds it if it is new.
size_t number_value(std::vector<KernelValue>& values, const KernelValue& value);

}  // namespace millrace::codegen
