#include "oracle/operator_tasks.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "oracle/task_maker.h"

namespace millrace {
namespace {

using oracle::Formula;
using oracle::Task;
using oracle::Term;

// From this many products on, operands are copied first, so that neighbouring threads read neighbouring elements.
constexpr double kManyProducts = 1e7;

// The row-major stride of each axis of a tensor.
std::vector<int64_t> axis_strides(const Graph& graph, TensorId tensor) {
  const std::vector<DimId>& dims = graph.tensor(tensor).dims;
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t axis = dims.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * graph.extent(dims[axis]);
  return strides;
}

Walk walk_of(const Graph& graph, const Operator& op, const Access& access) {
  Walk walk{std::vector<int64_t>(op.space.size(), 0), 0};
  const std::vector<int64_t> strides = axis_strides(graph, access.tensor);
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    walk.first += strides[axis] * access.axes[axis].offset;
    for (const IndexTerm& term : access.axes[axis].terms)
      walk.strides[as_index(term.index)] += strides[axis] * term.stride;
  }
  return walk;
}

class OperatorTaskMaker {
 public:
  OperatorTaskMaker(const Graph& graph, const Operator& op) : graph_(graph), op_(op) {
    for (const DimId dim : op.space) extents_.push_back(graph.extent(dim));
    for (size_t index = 0; index < op.space.size(); ++index) (op.reduced[index] ? inner_ : outer_).push_back(index);
    // A sum may be computed in any order, so the longest loop is the innermost.
    std::stable_sort(inner_.begin(), inner_.end(), [&](size_t l, size_t r) { return extent(l) < extent(r); });
    for (const Access& input : op.inputs) inputs_.push_back({{input.tensor}, walk_of(graph, op, input)});
    for (const Access& output : op.outputs) outputs_.push_back({{output.tensor}, walk_of(graph, op, output)});
  }

  OperatorTasks make();

 private:
  // A tensor or temporary, and how it is accessed.
  struct Use {
    TaskTensor tensor;
    Walk walk;
  };

  int64_t extent(size_t index) const { return extents_[index]; }
  const Use& in(size_t k) const { return inputs_[k]; }
  const Use& out(size_t k) const { return outputs_[k]; }

  Use add_temporary(const std::vector<size_t>& indices, TensorId like = {});
  OperatorTask task(TaskKind kind, int formula, const std::vector<size_t>& outer, const std::vector<size_t>& inner,
                    const std::vector<Use>& inputs, const std::vector<Use>& outputs) const;
  Use fold(Term term, const std::vector<Use>& inputs, std::optional<Use> to = {});
  Use mean(Term term, const std::vector<Use>& inputs, std::optional<Use> to = {});
  void map_rows(int formula, const std::vector<Use>& inputs, const Use& to);
  void map_points(const std::vector<Use>& inputs, const std::vector<Use>& outputs);
  void elementwise();
  void gather();
  void scatter_add();
  void join();
  void layernorm();
  void contraction();
  Use packed(const Use& operand, size_t last);

  const Graph& graph_;
  const Operator& op_;
  std::vector<int64_t> extents_;
  std::vector<size_t> outer_;  // the indices that are not reduced
  std::vector<size_t> inner_;
  std::vector<Use> inputs_;
  std::vector<Use> outputs_;
  OperatorTasks made_;
};

OperatorTaskMaker::Use OperatorTaskMaker::add_temporary(const std::vector<size_t>& indices, TensorId like) {
  const Use use{{{}, static_cast<int>(made_.temporaries.size())}, row_major(extents_, indices)};
  made_.temporaries.push_back({points_of(extents_, indices), like});
  return use;
}

OperatorTask OperatorTaskMaker::task(TaskKind kind, int formula, const std::vector<size_t>& outer,
                                     const std::vector<size_t>& inner, const std::vector<Use>& inputs,
                                     const std::vector<Use>& outputs) const {
  OperatorTask made;
  made.kind = kind;
  std::vector<Walk> read;
  std::vector<Walk> written;
  for (const Use& use : inputs) {
    made.inputs.push_back(use.tensor);
    read.push_back(use.walk);
  }
  for (const Use& use : outputs) {
    made.outputs.push_back(use.tensor);
    written.push_back(use.walk);
  }
  made.task = make_task(formula, extents_, outer, inner, read, written);
  made.task.number = op_.value;
  made.task.subsequence = op_.subsequence;
  return made;
}

// A sum or extremum of each row: into `to` if it is given, else into a temporary.
OperatorTaskMaker::Use OperatorTaskMaker::fold(Term term, const std::vector<Use>& inputs, std::optional<Use> to) {
  Use result = to ? *to : add_temporary(outer_);
  made_.tasks.push_back(task(TaskKind::fold, term, outer_, inner_, inputs, {result}));
  return result;
}

OperatorTaskMaker::Use OperatorTaskMaker::mean(Term term, const std::vector<Use>& inputs, std::optional<Use> to) {
  Use result = fold(term, inputs, std::move(to));
  made_.tasks.back().task.divisor = static_cast<double>(made_.tasks.back().task.length);
  return result;
}

void OperatorTaskMaker::map_rows(int formula, const std::vector<Use>& inputs, const Use& to) {
  made_.tasks.push_back(task(TaskKind::map, formula, outer_, {}, inputs, {to}));
}

// The operator's formula at every point, in the order of the space.
void OperatorTaskMaker::map_points(const std::vector<Use>& inputs, const std::vector<Use>& outputs) {
  std::vector<size_t> all(op_.space.size());
  for (size_t k = 0; k < all.size(); ++k) all[k] = k;
  made_.tasks.push_back(task(TaskKind::map, static_cast<int>(op_.kind), all, {}, inputs, outputs));
}

void OperatorTaskMaker::elementwise() {
  map_points(inputs_, outputs_);
  for (size_t k = 0; k < op_.diagonal.size(); ++k) made_.tasks.back().task.diagonal[k] = op_.diagonal[k];
}

void OperatorTaskMaker::gather() {
  map_points(inputs_, outputs_);
  Task& task = made_.tasks.back().task;
  const TensorId table = op_.inputs[0].tensor;
  task.positions = graph_.extent(graph_.tensor(table).dims[as_index(op_.gathered)]);
  task.gathered_stride = axis_strides(graph_, table)[as_index(op_.gathered)];
}

void OperatorTaskMaker::scatter_add() {
  fold(Term::kSelected, inputs_, out(0));
  Task& task = made_.tasks.back().task;
  task.positions = extent(as_index(op_.gathered));
  const auto at = std::find(outer_.begin(), outer_.end(), as_index(op_.gathered));
  task.gathered = static_cast<int>(at - outer_.begin());
}

// Writes the outside value everywhere, then each input in its region.
void OperatorTaskMaker::join() {
  map_points({}, outputs_);
  made_.tasks.back().task.formula = Formula::kFill;
  for (size_t k = 0; k < op_.inputs.size(); ++k) {
    map_points({in(k)}, outputs_);
    Task& task = made_.tasks.back().task;
    task.formula = static_cast<int>(OperatorKind::copy);
    task.points = 1;
    for (size_t index = 0; index < op_.space.size(); ++index) {
      const Range& range = op_.regions[k][index];
      task.extents[index] = range.length();
      task.points *= range.length();
      task.in[0].first += range.first * task.in[0].strides[index];
      task.out[0].first += range.first * task.out[0].strides[index];
    }
  }
}

void OperatorTaskMaker::layernorm() {
  mean(Term::kValue, {in(0)}, out(1));
  const Use variance = mean(Term::kSquaredDeviation, {in(0), out(1)});
  map_rows(Formula::kReciprocalRoot, {variance}, out(2));
  map_points({in(0), in(1), in(2), out(1), out(2)}, {out(0)});
}

// A copy in which the index `last` is contiguous; the operand itself if it is already, or if a copy would be larger.
OperatorTaskMaker::Use OperatorTaskMaker::packed(const Use& operand, size_t last) {
  const int64_t along = operand.walk.strides[last];
  if (along == 0 || along == 1) return operand;
  std::vector<size_t> indices;
  for (const std::vector<size_t>* list : {&outer_, &inner_}) {
    for (const size_t index : *list) {
      if (index != last && operand.walk.strides[index] != 0) indices.push_back(index);
    }
  }
  indices.push_back(last);
  double elements = 1;
  for (const size_t index : indices) elements *= static_cast<double>(extent(index));
  if (elements > 2 * static_cast<double>(elements_of(graph_, operand.tensor.tensor))) return operand;
  Use copy = add_temporary(indices, operand.tensor.tensor);
  made_.tasks.push_back(task(TaskKind::map, static_cast<int>(OperatorKind::copy), indices, {}, {operand}, {copy}));
  return copy;
}

void OperatorTaskMaker::contraction() {
  std::vector<Use> factors = {in(0), in(1)};
  std::vector<size_t> outer = outer_;
  if (static_cast<double>(millrace::points_of(graph_, op_)) >= kManyProducts && !outer.empty()) {
    const auto longest =
        std::max_element(outer.begin(), outer.end(), [&](size_t l, size_t r) { return extent(l) < extent(r); });
    std::rotate(longest, longest + 1, outer.end());
    for (Use& factor : factors) factor = packed(factor, outer.back());
  }
  made_.tasks.push_back(task(TaskKind::contract, Term::kProduct, outer, inner_, factors, {out(0)}));
  for (size_t k = 2; k < op_.inputs.size(); ++k)
    map_rows(static_cast<int>(OperatorKind::multiply), {out(0), in(k)}, out(0));
}

OperatorTasks OperatorTaskMaker::make() {
  switch (op_.kind) {
    case OperatorKind::gather: gather(); break;
    case OperatorKind::scatter_add: scatter_add(); break;
    case OperatorKind::join: join(); break;
    case OperatorKind::sum: fold(Term::kValue, inputs_, out(0)); break;
    case OperatorKind::max: fold(Term::kLargest, inputs_, out(0)); break;
    case OperatorKind::min: fold(Term::kSmallest, inputs_, out(0)); break;
    case OperatorKind::extremum_dx:
      map_points({in(0), in(1), in(2), fold(Term::kEqual, {in(0), in(1)})}, outputs_);
      break;
    case OperatorKind::softmax: {
      const Use largest = fold(Term::kLargest, inputs_);
      const Use total = fold(Term::kShiftedExponential, {in(0), largest});
      map_points({in(0), largest, total}, outputs_);
      break;
    }
    case OperatorKind::log_sum_exp: {
      const Use largest = fold(Term::kLargest, inputs_);
      const Use total = fold(Term::kShiftedExponential, {in(0), largest});
      map_rows(static_cast<int>(op_.kind), {largest, total}, out(0));
      break;
    }
    case OperatorKind::softmax_dx: map_points({in(0), in(1), fold(Term::kProduct, {in(0), in(1)})}, outputs_); break;
    case OperatorKind::layernorm: layernorm(); break;
    case OperatorKind::layernorm_dx: {
      const Use weighted = mean(Term::kProduct, {in(4), in(1)});
      const Use slope = mean(Term::kNormalized, {in(4), in(1), in(0), in(2), in(3)});
      map_points({in(0), in(1), in(2), in(3), in(4), weighted, slope}, outputs_);
      break;
    }
    case OperatorKind::layernorm_dw:
      fold(Term::kDeviation, {in(3), in(0), in(1), in(2)}, out(0));
      fold(Term::kValue, {in(3)}, out(1));
      break;
    case OperatorKind::rmsnorm: {
      const Use square = mean(Term::kProduct, {in(0), in(0)});
      map_rows(Formula::kReciprocalRoot, {square}, out(1));
      map_points({in(0), in(1), out(1)}, {out(0)});
      break;
    }
    case OperatorKind::rmsnorm_dx: {
      const Use slope = mean(Term::kProductOfThree, {in(3), in(1), in(0)});
      map_points({in(0), in(1), in(2), in(3), slope}, outputs_);
      break;
    }
    case OperatorKind::rmsnorm_dw: fold(Term::kProductOfThree, {in(2), in(0), in(1)}, out(0)); break;
    case OperatorKind::contraction: contraction(); break;
    default: elementwise();
  }
  return std::move(made_);
}

}  // namespace

Result<OperatorTasks> tasks_of(const Graph& graph, const Operator& op) {
  if (op.space.size() > oracle::kMostIndices)
    return Error::make(ErrorKind::failed,
                       concat("the oracle on the GPU takes operators of at most ", oracle::kMostIndices,
                              " indices, but '", op.name, "' has ", op.space.size()));
  return OperatorTaskMaker(graph, op).make();
}

}  // namespace millrace
