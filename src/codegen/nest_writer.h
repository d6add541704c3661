// What the writers of kernels share: a partition's tensors and loops, its schedule, and how text refers to them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "codegen/kernel_text.h"
#include "codegen/schedule.h"

namespace millrace {

class NestWriter {
 protected:
  NestWriter(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
             const KernelConfig& config);

  struct Port {
    TensorId tensor;
    bool written = false;
    Layout layout;
    std::vector<int64_t> strides;  // one an axis
  };

  static size_t at(int index) { return static_cast<size_t>(index); }
  static std::string index_name(int index);
  static void line(std::string& text, int depth, const std::string& content);
  static std::string storage_name(DType dtype);
  // Replaces a token by what it stands for.
  static std::string replaced(std::string text, const std::string& token, const std::string& by);

  int64_t extent(int index) const { return partition_.space[at(index)].extent; }
  int64_t points(const std::vector<int>& indices) const;
  const Operator& op(int member) const { return graph_.operators[partition_.members[at(member)].at()]; }

  std::string type_of(const Port& port) const;
  int port_of(TensorId tensor, bool written) const;

  // The index of the partition's space along each axis: of an access, and of a conversion's tensor.
  std::vector<int> indices_along(int member, const Access& access) const;
  std::vector<int> own_indices(TensorId tensor) const;

  // How far an access moves with each index.
  static std::map<int, int64_t> steps_of(const std::vector<int>& indices, const std::vector<int64_t>& strides);
  static std::string sum_of(const std::map<int, int64_t>& steps);
  static int64_t step_along(int index, const std::vector<int>& indices, const std::vector<int64_t>& strides);

  std::vector<int> outer_loops() const;

  // Where a point lies among the points of these indices, the last of which are neighbours `stride` apart.
  std::string place_in(const std::vector<int>& indices, int64_t stride) const;

  // The number of a value that the kernel is given.
  size_t number_value(const KernelValue& value);

  // How many points a member's reductions run over.
  int64_t reduced_points(int member) const;

  static std::string value_name(const StepValue& value);
  static StepValue value_of(const PlacedStep& placed);
  static std::string identity(StepKind kind);
  static std::string operation(StepKind kind);

  // The member's output that a tensor is, where the nest makes it itself.
  std::optional<StepValue> made_inside(TensorId tensor) const;

  // The outermost first indices that a reduction across rows keeps.
  std::vector<int> kept_by(int member) const;

  // The condition of causal_mask and embed_diagonal, over what `place` says of an index of the member's space.
  template <class Place>
  std::string condition(int member, const Place& place) const {
    const Operator& own = op(member);
    if (own.kind != OperatorKind::embed_diagonal)
      return place(own.space.size() - 1) + " > " + place(own.space.size() - 2);
    std::string equal;
    for (size_t index = 0; index < own.diagonal.size(); ++index) {
      if (own.diagonal[index] == static_cast<int>(index)) continue;
      equal += (equal.empty() ? "(" : " & (") + place(index) + " == " + place(at(own.diagonal[index])) + ")";
    }
    return equal.empty() ? "mr::position<E>(0) == mr::position<E>(0)" : equal;
  }

  const Graph& graph_;
  const Partition& partition_;
  const KernelConfig& config_;
  std::vector<Port> ports_;
  std::string real_ = "float";
  bool lanes_ = false;  // the vector's lanes are rows
  RowShape rows_;
  std::vector<int> loops_;
  Schedule schedule_;
  KernelText made_;
};

}  // namespace millrace
