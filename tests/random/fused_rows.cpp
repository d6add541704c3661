#include "random/fused_rows.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "ir/verify.h"
#include "random/points.h"
#include "random/row_member.h"
#include "reference/bounded.h"
#include "reference/scalar.h"

namespace millrace::random_programs {
namespace {

constexpr int64_t kNowhere = -1;  // on an index of the group that an operator or an output does not run along

// How the results of rows are combined if an output does not run along an outer index.
enum class Fold { none, sum, max, min };

// What the members of a group write. A row keeps the elements that it wrote and the points where it wrote them.
template <class Scalar>
struct PassedTensor {
  std::vector<Scalar> values;
  std::vector<int64_t> rows;  // one per element: the number of the row that wrote it last, or kNowhere
  std::vector<Point> points;  // one per element: of the group's space, kNowhere where the element is one number
  bool folded = false;        // complete only after all rows
  Fold fold = Fold::none;
  bool in_memory = false;
};

template <class Scalar>
class Rows {
 public:
  Rows(const Graph& graph, const FusedOperator& group, const RandomState& random, Memory<Scalar>& memory)
      : graph_(graph), group_(group), random_(random), memory_(memory) {
    whole_ = group.kind == FusedKind::contraction;  // a library runs it
    std::vector<bool> passed(graph.tensors.size(), false);
    for (size_t m = 0; m < group.members.size(); ++m) {
      std::vector<bool> outer;
      for (size_t k = 0; k < op(m).space.size(); ++k) outer.push_back(is_outer(m, k));
      members_.push_back(row_member<Scalar>(graph, op(m), outer, passed, random));
      check_loads(m);
      for (const Access& output : op(m).outputs) {
        pass(m, output.tensor);
        passed[output.tensor.at()] = true;
      }
    }
  }

  std::optional<std::string> run() {
    for (const RowMember<Scalar>& member : members_) {
      if (const Result<Done> valid = verify(member.graph); !valid) complain(to_string(valid.error()));
    }
    Point extents;  // of the rows
    for (const FusedIndex& index : group_.space)
      extents.push_back(index.outer && !whole_ ? graph_.extent(index.dim) : 1);
    Point row(extents.size(), 0);
    do {
      for (size_t m = 0; m < members_.size() && complaint_.empty(); ++m) run_member(m, row);
      ++row_;
    } while (complaint_.empty() && next_point(extents, row));
    for (const auto& [tensor, passed] : passed_) {
      if (std::find(passed.rows.begin(), passed.rows.end(), kNowhere) != passed.rows.end())
        complain(concat("no row writes one of the elements of ", graph_.tensor(tensor).name));
    }
    for (size_t m = 0; m < members_.size(); ++m) finish(op(m));
    return complaint_.empty() ? std::nullopt : std::optional(complaint_);
  }

 private:
  void complain(const std::string& complaint) {
    if (complaint_.empty()) complaint_ = complaint;
  }

  const Operator& op(size_t member) const { return graph_.operators[group_.members[member].at()]; }

  // The group's index for an index of a member, or kFixed.
  int index_of(size_t member, size_t k) const { return whole_ ? kFixed : group_.index_of[member][k]; }
  bool is_outer(size_t member, size_t k) const {
    const int index = index_of(member, k);
    return index != kFixed && group_.space[as_index(index)].outer;
  }

  // Checks, before anything is written, that every input is in memory unless an earlier member passes it.
  void check_loads(size_t member) {
    for (const RowLoad<Scalar>& load : members_[member].loads) {
      if (load.from == nullptr || passed_.contains(load.from->tensor)) continue;
      if (memory_.values[load.from->tensor.at()].empty())
        complain(concat("reads ", graph_.tensor(load.from->tensor).name, ", which is not in memory"));
    }
  }

  void pass(size_t member, TensorId tensor) {
    const auto elements = static_cast<size_t>(elements_of(graph_, tensor));
    PassedTensor<Scalar>& passed = passed_[tensor];
    passed.values.resize(elements, Scalar(0));
    passed.rows.resize(elements, kNowhere);
    passed.points.resize(elements);
    passed.folded = crosses_rows(member);
    passed.in_memory = std::find(group_.writes.begin(), group_.writes.end(), tensor) != group_.writes.end();
    if (passed.folded && passed.in_memory) passed.fold = fold_of(op(member));
  }

  bool crosses_rows(size_t member) const {
    for (size_t k = 0; k < op(member).space.size(); ++k) {
      if (op(member).reduced[k] && graph_.extent(op(member).space[k]) > 1 && is_outer(member, k)) return true;
    }
    return false;
  }

  Fold fold_of(const Operator& op) {
    switch (op.kind) {
      case OperatorKind::sum:
      case OperatorKind::scatter_add:
      case OperatorKind::layernorm_dw:
      case OperatorKind::rmsnorm_dw: return Fold::sum;
      case OperatorKind::max: return Fold::max;
      case OperatorKind::min: return Fold::min;
      default: complain(concat(op.name, " uses a reduction across rows")); return Fold::none;
    }
  }

  // The member's first point in a row; nothing if it does nothing there.
  std::optional<Point> first_point(size_t member, const Point& row) const {
    Point first(op(member).space.size(), 0);
    for (size_t k = 0; k < first.size(); ++k) {
      if (!is_outer(member, k)) continue;
      first[k] = row[as_index(index_of(member, k))] - group_.shift_of[member][k];
      if (first[k] < 0 || first[k] >= graph_.extent(op(member).space[k])) return std::nullopt;
    }
    return first;
  }

  // Calls body(point of the member, element of the row's tensor).
  template <class Body>
  void for_each_element(size_t member, const Point& first, const RowTensor& tensor, const Body& body) const {
    Point extents(first.size(), 1);
    for (const size_t k : tensor.along) {
      if (!is_outer(member, k)) extents[k] = graph_.extent(op(member).space[k]);
    }
    Point inner(first.size(), 0);
    size_t element = 0;
    do {
      Point point = first;
      for (size_t k = 0; k < point.size(); ++k) point[k] += inner[k];
      body(point, element++);
    } while (next_point(extents, inner));
  }

  void run_member(size_t member, const Point& row) {
    const std::optional<Point> first = first_point(member, row);
    if (!first) return;
    const RowMember<Scalar>& in_row = members_[member];
    Values<Scalar> values(in_row.graph.tensors.size());
    for (const RowLoad<Scalar>& load : in_row.loads) {
      for_each_element(member, *first, load.to, [&](const Point& point, size_t) {
        values[load.to.id.at()].push_back(load.from == nullptr ? load.generated(point)
                                          : load.gathered      ? read_gathered(member, point)
                                                               : read(member, *load.from, point));
      });
    }
    if (const Result<Done> done = interpret<Scalar>(in_row.graph, values, random_); !done)
      return complain(to_string(done.error()));
    for (const RowStore& store : in_row.stores) {
      for_each_element(member, *first, store.from, [&](const Point& point, size_t element) {
        write(member, store, point, values[store.from.id.at()][element]);
      });
    }
  }

  // The point of the group's space, as far as the given indices of the member determine it.
  template <class Indices>
  Point in_group(size_t member, const Point& point, const Indices& indices) const {
    Point at(group_.space.size(), kNowhere);
    for (const size_t k : indices) {
      const int index = index_of(member, k);
      if (index != kFixed) at[as_index(index)] = point[k] + group_.shift_of[member][k];
    }
    return at;
  }

  Point in_group(size_t member, const Point& point) const {
    std::vector<size_t> all(point.size());
    for (size_t k = 0; k < all.size(); ++k) all[k] = k;
    return in_group(member, point, all);
  }

  // A tensor that a member wrote in this row can only be read at the same point of the group's space.
  Scalar read(size_t member, const Access& access, const Point& point) {
    const std::string& name = graph_.tensor(access.tensor).name;
    const auto input = static_cast<size_t>(&access - op(member).inputs.data());
    if (op(member).kind == OperatorKind::join && !is_in(op(member).regions[input], point)) return Scalar(0);
    const std::optional<size_t> element = element_at(graph_, access, point);
    if (!element) {
      complain(concat(op(member).name, " reads outside of ", name));
      return Scalar(0);
    }
    const auto found = passed_.find(access.tensor);
    if (found == passed_.end()) {
      const std::vector<Scalar>& values = memory_.values[access.tensor.at()];
      return *element < values.size() ? values[*element] : Scalar(0);
    }
    const PassedTensor<Scalar>& passed = found->second;
    if (passed.folded) complain(concat(op(member).name, " reads ", name, ", which no row has"));
    if (passed.rows[*element] != row_ || !same_point(passed.points[*element], in_group(member, point)))
      complain(concat(op(member).name, " reads ", name, " at a point other than where it was written"));
    return passed.values[*element];
  }

  // The element of the table at the position that the point's id selects.
  Scalar read_gathered(size_t member, const Point& point) {
    const Operator& gather = op(member);
    const double id = value_of(read(member, gather.inputs[1], point));
    Access table = gather.inputs[0];
    table.axes[as_index(gather.gathered)] = Position({}, static_cast<int64_t>(id));
    return read(member, table, point);
  }

  bool same_point(const Point& written, const Point& read) const {
    for (size_t index = 0; index < written.size(); ++index) {
      const bool only_one = graph_.extent(group_.space[index].dim) == 1;
      if (written[index] != kNowhere && written[index] != read[index] && !only_one) return false;
    }
    return true;
  }

  void write(size_t member, const RowStore& store, const Point& point, const Scalar& value) {
    PassedTensor<Scalar>& passed = passed_.at(store.to->tensor);
    const std::string& name = graph_.tensor(store.to->tensor).name;
    const std::optional<size_t> element = element_at(graph_, *store.to, point);
    if (!element) return complain(concat(op(member).name, " writes outside of ", name));
    const bool again = passed.rows[*element] != kNowhere;
    if (again && passed.fold == Fold::none && (passed.in_memory || !passed.folded))
      return complain(concat("two rows write one element of ", name));
    Scalar& kept = passed.values[*element];
    kept = again ? folded(passed.fold, kept, value) : value;
    passed.rows[*element] = row_;
    passed.points[*element] = in_group(member, point, store.from.along);
  }

  static Scalar folded(Fold fold, const Scalar& before, const Scalar& value) {
    switch (fold) {
      case Fold::none: return value;
      case Fold::sum: return before + value;
      case Fold::max: return larger(before, value);
      case Fold::min: return smaller(before, value);
    }
    return value;
  }

  // Stores the outputs. A maximum does not depend on the order of the rows; a sum does.
  void finish(const Operator& op) {
    bool reordered = std::any_of(op.inputs.begin(), op.inputs.end(),
                                 [&](const Access& input) { return memory_.reordered[input.tensor.at()]; });
    const bool picks = op.kind == OperatorKind::max || op.kind == OperatorKind::min;
    for (const Access& output : op.outputs) {
      const PassedTensor<Scalar>& passed = passed_.at(output.tensor);
      reordered = reordered || (!picks && passed.folded);
      memory_.reordered[output.tensor.at()] = reordered;
      if (passed.in_memory) memory_.values[output.tensor.at()] = passed.values;
    }
  }

  const Graph& graph_;
  const FusedOperator& group_;
  const RandomState& random_;
  Memory<Scalar>& memory_;
  bool whole_ = false;  // one row has everything
  std::vector<RowMember<Scalar>> members_;
  std::map<TensorId, PassedTensor<Scalar>> passed_;
  int64_t row_ = 0;  // the number of the current row
  std::string complaint_;
};

}  // namespace

template <class Scalar>
std::optional<std::string> run_group(const Graph& graph, const FusedOperator& group, const RandomState& random,
                                     Memory<Scalar>& memory) {
  return Rows<Scalar>(graph, group, random, memory).run();
}

template std::optional<std::string> run_group(const Graph&, const FusedOperator&, const RandomState&, Memory<double>&);
template std::optional<std::string> run_group(const Graph&, const FusedOperator&, const RandomState&,
                                              Memory<Bounded<53>>&);

}  // namespace millrace::random_programs
