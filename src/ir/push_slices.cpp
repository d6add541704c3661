#include "ir/push_slices.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/unique_names.h"

namespace millrace {
namespace {

constexpr size_t kMostSlices = 16;     // of one operator
constexpr size_t kMostPushed = 50000;  // operators that replace sliced ones, in all: a hostile program may slice slices

// An access of an input, by the numbers of the operator and the input.
struct SliceUse {
  size_t op = 0;
  size_t input = 0;
};

// An access to a slice. Its indices are numbered in the order in which they run through the tensor.
struct PushedSlice {
  std::vector<Position> axes;
  std::vector<int64_t> extents;
  std::vector<DimId> dims;
  std::vector<int> indices;  // of the reader

  bool same(const PushedSlice& other) const { return axes == other.axes && extents == other.extents; }
};

// Makes the PushedSlice of an access.
PushedSlice slice_of(const Graph& graph, const Operator& op, const Access& access) {
  PushedSlice slice;
  std::vector<Position> by(op.space.size(), kFixed);
  for (const Position& axis : access.axes) {
    std::vector<IndexTerm> terms = axis.terms;
    std::stable_sort(terms.begin(), terms.end(),
                     [](const IndexTerm& l, const IndexTerm& r) { return std::abs(l.stride) > std::abs(r.stride); });
    for (const IndexTerm& term : terms) {
      const DimId dim = op.space[as_index(term.index)];
      if (!by[as_index(term.index)].terms.empty()) continue;
      by[as_index(term.index)] = static_cast<int>(slice.indices.size());
      slice.indices.push_back(term.index);
      slice.dims.push_back(dim);
      slice.extents.push_back(graph.extent(dim));
    }
  }
  for (const Position& axis : access.axes) slice.axes.push_back(substituted(axis, by));
  return slice;
}

int64_t points_of_slice(const PushedSlice& slice) {
  int64_t points = 1;
  for (const int64_t extent : slice.extents) points *= extent;
  return points;
}

// Whether the access reads each of its elements once, but not the whole tensor in order: a slice, a digit or a flip.
bool is_slice(const Graph& graph, const Operator& op, const Access& access) {
  const bool flips = std::any_of(access.axes.begin(), access.axes.end(), [](const Position& axis) {
    return std::any_of(axis.terms.begin(), axis.terms.end(), [](const IndexTerm& term) { return term.stride < 0; });
  });
  const int64_t words = words_touched(graph, op, access);
  if (!flips && words == elements_of(graph, access.tensor)) return false;
  return words == points_of_slice(slice_of(graph, op, access));
}

class SlicePusher {
 public:
  SlicePusher(Graph& graph, Pass pass, const std::vector<TensorId>& needed)
      : graph_(graph), pass_(pass), is_result_(graph.tensors.size(), false) {
    for (const TensorId tensor : needed) {
      if (tensor.valid()) is_result_[tensor.at()] = true;
    }
  }

  void run() {
    uses_.resize(graph_.tensors.size());
    for (size_t k = 0; k < graph_.operators.size(); ++k) add_uses(k);
    const bool any = std::any_of(uses_.begin(), uses_.end(), [&](const std::vector<SliceUse>& uses) {
      return std::any_of(uses.begin(), uses.end(), [&](const SliceUse& use) { return reads_slice(use); });
    });
    if (!any) return;
    for (const Output& result : graph_.results) is_result_[result.tensor.at()] = true;
    for (const Operator& op : graph_.operators) operator_names_.claim(op.name);
    for (const Tensor& tensor : graph_.tensors) tensor_names_.claim(tensor.name);
    const size_t count = graph_.operators.size();
    std::vector<std::vector<size_t>> replacements(count);
    for (size_t k = count; k-- > 0;) replacements[k] = push(k);
    std::vector<Operator> operators;
    for (const std::vector<size_t>& replacement : replacements) {
      for (const size_t op : replacement) {
        if (!gone_.contains(op)) operators.push_back(std::move(graph_.operators[op]));
      }
    }
    graph_.operators = std::move(operators);
  }

 private:
  void add_uses(size_t k) {
    const Operator& op = graph_.operators[k];
    for (size_t input = 0; input < op.inputs.size(); ++input) uses_[op.inputs[input].tensor.at()].push_back({k, input});
  }

  bool reads_slice(const SliceUse& use) const {
    const Operator& op = graph_.operators[use.op];
    if (op.kind == OperatorKind::join || is_gathered_table(op, use.input)) return false;
    return is_slice(graph_, op, op.inputs[use.input]);
  }

  // The most slices into which the operator may be divided. A reduction or contraction has one: computing only that
  // slice saves work, but several slices are computed faster together.
  size_t most_slices(const Operator& op) const {
    const bool whole = op.outputs.size() == 1 && !is_result_[op.outputs[0].tensor.at()] &&
                       std::all_of(op.outputs[0].axes.begin(), op.outputs[0].axes.end(),
                                   [](const Position& axis) { return axis.is_index(); });
    if (!whole || std::any_of(op.inputs.begin(), op.inputs.end(), takes_diagonal)) return 0;
    switch (op.kind) {
      case OperatorKind::dropout:  // these operators depend on their position
      case OperatorKind::join:
      case OperatorKind::index:
      case OperatorKind::causal_mask:
      case OperatorKind::causal_mask_dx:
      case OperatorKind::embed_diagonal: return 0;
      case OperatorKind::contraction:
      case OperatorKind::sum:
      case OperatorKind::max:
      case OperatorKind::min: return 1;
      default: return info_of(op.kind).operator_class == OperatorClass::elementwise ? kMostSlices : 0;
    }
  }

  // The operators that replace operator k: itself if it stays.
  std::vector<size_t> push(size_t k) {
    const Operator op = graph_.operators[k];
    const std::vector<SliceUse> uses = op.outputs.empty() ? std::vector<SliceUse>{} : uses_[op.outputs[0].tensor.at()];
    const size_t most = uses.empty() || op.pass != pass_ ? 0 : most_slices(op);
    if (most == 0 || !std::all_of(uses.begin(), uses.end(), [&](const SliceUse& u) { return reads_slice(u); }))
      return {k};
    std::vector<PushedSlice> slices;
    std::vector<size_t> slice_of_use;
    int64_t points = 0;
    for (const SliceUse& use : uses) {
      const Operator& reader = graph_.operators[use.op];
      const PushedSlice slice = slice_of(graph_, reader, reader.inputs[use.input]);
      const auto known =
          std::find_if(slices.begin(), slices.end(), [&](const PushedSlice& s) { return s.same(slice); });
      slice_of_use.push_back(static_cast<size_t>(known - slices.begin()));
      if (known != slices.end()) continue;
      slices.push_back(slice);
      points += points_of_slice(slice);
      if (slices.size() > most || points > elements_of(graph_, op.outputs[0].tensor)) return {k};
    }
    if (pushed_ + slices.size() > kMostPushed) return {k};
    pushed_ += slices.size();
    for (const Access& input : op.inputs)
      std::erase_if(uses_[input.tensor.at()], [&](const SliceUse& use) { return use.op == k; });
    return replace(op, slices, uses, slice_of_use);
  }

  std::vector<size_t> replace(const Operator& op, const std::vector<PushedSlice>& slices,
                              const std::vector<SliceUse>& uses, const std::vector<size_t>& slice_of_use) {
    const Tensor tensor = graph_.tensor(op.outputs[0].tensor);
    operator_names_.release(op.name);
    tensor_names_.release(tensor.name);
    graph_.tensors[op.outputs[0].tensor.at()].name += " whole";  // unused from here on
    std::vector<size_t> made;
    for (const PushedSlice& slice : slices) {
      Operator part = part_of(op, slice);
      part.name = operator_names_.take(op.name, " ");
      Tensor output = tensor;
      output.name = tensor_names_.take(tensor.name, ".");
      output.dims = slice.dims;
      part.outputs = {{TensorId(graph_.tensors.size()), in_order(slice.dims.size())}};
      graph_.tensors.push_back(std::move(output));
      uses_.emplace_back();
      is_result_.push_back(false);
      made.push_back(graph_.operators.size());
      graph_.operators.push_back(std::move(part));
      add_uses(made.back());
    }
    for (size_t k = 0; k < uses.size(); ++k) {
      Access& access = graph_.operators[uses[k].op].inputs[uses[k].input];
      const Operator& part = graph_.operators[made[slice_of_use[k]]];
      const Operator& reader = graph_.operators[uses[k].op];
      const PushedSlice slice = slice_of(graph_, reader, access);
      access = {part.outputs[0].tensor, {}};
      for (const int index : slice.indices) access.axes.emplace_back(index);
    }
    for (size_t k = 0; k < uses.size(); ++k) {
      Operator& part = graph_.operators[made[slice_of_use[k]]];
      const TensorId old = part.outputs[0].tensor;
      const TensorId result = copied_result(graph_.operators[uses[k].op], old);
      if (!result.valid()) continue;
      std::swap(graph_.tensors[result.at()].name, graph_.tensors[old.at()].name);
      part.outputs[0].tensor = result;
      gone_.insert(uses[k].op);
      for (const SliceUse& use : uses) {
        Access& access = graph_.operators[use.op].inputs[use.input];
        if (access.tensor == old) access.tensor = result;
      }
    }
    return made;
  }

  // The operator over the positions of a slice of its output; the indices that it reduces stay.
  static Operator part_of(const Operator& op, const PushedSlice& slice) {
    Operator part = op;
    part.space = slice.dims;
    part.reduced.assign(slice.dims.size(), false);
    std::vector<Position> by(op.space.size(), kFixed);
    for (size_t axis = 0; axis < slice.axes.size(); ++axis) {
      const int index = op.outputs[0].axes[axis].index();
      if (index != kFixed) by[as_index(index)] = slice.axes[axis];
    }
    for (size_t index = 0; index < op.space.size(); ++index) {
      if (!op.reduced[index]) continue;
      by[index] = static_cast<int>(part.space.size());
      part.space.push_back(op.space[index]);
      part.reduced.push_back(true);
    }
    for (Access& input : part.inputs) {
      for (Position& axis : input.axes) axis = substituted(axis, by);
    }
    return part;
  }

  // The result that the operator only copies from this tensor, if it does.
  TensorId copied_result(const Operator& op, TensorId tensor) const {
    const Access whole{tensor, in_order(op.space.size())};
    const bool copies = op.kind == OperatorKind::copy && op.inputs[0] == whole && op.outputs[0].axes == whole.axes;
    if (!copies || is_result_[tensor.at()]) return {};
    const TensorId result = op.outputs[0].tensor;
    const bool same_type = graph_.tensor(result).dtype == graph_.tensor(tensor).dtype;
    return is_result_[result.at()] && same_type ? result : TensorId();
  }

  Graph& graph_;
  Pass pass_;
  std::vector<bool> is_result_;
  std::vector<std::vector<SliceUse>> uses_;  // of each tensor
  UniqueNames operator_names_;
  UniqueNames tensor_names_;
  std::set<size_t> gone_;  // copies that another operator makes unnecessary
  size_t pushed_ = 0;
};

}  // namespace

void push_slices(Graph& graph, Pass pass, const std::vector<TensorId>& needed) {
  SlicePusher(graph, pass, needed).run();
}

}  // namespace millrace
