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

// The C++ type of stored elements.
std::string storage_name(DType dtype);
// Replaces a token of a recipe wherever it occurs.
void replace_all(std::string& text, const std::string& token, const std::string& by);

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

using Positions = std::vector<Position>;  // one per axis of a tensor, by the indices of the partition's space

// The condition 0 <= position < extent.
struct Guard {
  Position position;
  int64_t extent = 1;
};

// What a generator writes for the tokens of an expression (recipe.h).
struct OperandTexts {
  std::function<std::string(int number)> input;
  std::function<std::string(const NestValue&)> value;
  std::function<std::string()> mask;
  std::function<std::string(size_t index)> position;  // of the point along an index of the operator's space
  std::function<std::string(const std::vector<Guard>&)> holds;
  std::function<std::string(const std::string& id)> gathered;  // the element of the table that an id selects
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
  int read_port(TensorId tensor) const;
  int written_port(TensorId tensor) const;

  // The position on each axis of an access, or of the tensor of a layout conversion, by the indices of the partition's
  // space.
  Positions positions_along(int member, const Access& access) const;
  Positions own_positions(TensorId tensor) const;

  // Where an element of a tensor with these strides is: how its offset changes with each index, and the offset if all
  // indices are zero.
  static Position element_of(const Positions& positions, const std::vector<int64_t>& strides);
  static std::string text_of(const Position& position);
  static int64_t stride_along(int index, const Positions& positions, const std::vector<int64_t>& strides);

  // A member's own index as a function of the partition's indices.
  Position own_index(int member, size_t index) const;
  // Where a member computes: its own indices are inside their extents. Empty: everywhere.
  std::vector<Guard> guards_of(int member) const;
  // Where an input of a member may be read: where the member computes and, for a join, in the input's region.
  std::vector<Guard> guards_of_input(int member, size_t input) const;
  // The region of an input of a join.
  std::vector<Guard> inside(int member, size_t input) const;
  // Whether a guard depends on an index.
  static bool changes_along(const std::vector<Guard>& guards, int index);
  // The condition as C++; `moving` is the index that has `+ lane` added, or kNoIndex.
  static std::string condition_of(const std::vector<Guard>& guards, int moving, const std::string& lane);

  std::vector<int> outer_loops() const;

  // The offset of a point in an array over these indices, the last of which has this stride.
  std::string offset_in(const std::vector<int>& indices, int64_t stride) const;

  // How many points a member's reductions run over.
  int64_t reduced_points(int member) const;

  static std::string value_name(const NestValue& value);
  static NestValue value_of(const PlacedInstruction& placed);
  static std::string identity(InstructionKind kind);
  static std::string operation(InstructionKind kind);

  // The member's output that is this tensor, if the nest computes it.
  std::optional<NestValue> made_inside(TensorId tensor) const;

  // The indices that a reduction across rows keeps, outermost first.
  std::vector<int> kept_by(int member) const;

  // An instruction's expression with operands in place of tokens. Numbers that the kernel needs are added to `values`.
  std::string expanded(const PlacedInstruction& placed, const OperandTexts& texts,
                       std::vector<KernelValue>& values) const;

  // How a gather reads its table: at these positions, plus the id's position on the gathered axis times its stride.
  struct GatheredAccess {
    int port = 0;
    Positions positions;  // zero on the gathered axis
    int64_t stride = 0;   // of the gathered axis
    int64_t extent = 1;
    Positions ids;
    std::vector<Guard> guards;
  };
  GatheredAccess gathered_access(int member) const;

  // The condition of causal_mask and embed_diagonal.
  std::string condition(int member, const std::function<std::string(size_t)>& position) const;

  // A constant or scalar input as a kernel value; nothing if the tensor is neither.
  std::optional<KernelValue> number_in(TensorId tensor) const;
};

// The position of a value among those that the kernel takes; adds it if it is new.
size_t number_value(std::vector<KernelValue>& values, const KernelValue& value);

}  // namespace millrace::codegen
