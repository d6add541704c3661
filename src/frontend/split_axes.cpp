// Axes and the indices that run along them form classes: if one of a class is split at a point (a divisor of its
// extent), all of them are, so that plain accesses stay plain. A class is split at the points that a reader suggests
// and that no access forbids. An input of a join that is placed beside others also gets the join's outer digit, as an
// axis of extent one. Then its operators run along a part of the join's indices, and fusion can put them into one
// kernel.
#include "frontend/split_axes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/text.h"
#include "frontend/view_parts.h"

namespace millrace {
namespace {

constexpr int64_t kMostChunks = 16;  // of a join; with more, an index for them does not pay off
constexpr int kMostRounds = 4;       // new indices may suggest new points

// A position as q · unit + r with 0 <= r < unit.
struct Quotient {
  Position high;
  Position low;
};

// Nothing if the terms that are not multiples of `unit` may reach it.
std::optional<Quotient> divided(const Position& position, int64_t unit, const std::vector<int64_t>& extents) {
  Quotient quotient;
  int64_t least = 0;
  int64_t reach = 0;
  for (const IndexTerm& term : position.terms) {
    if (term.stride % unit == 0) {
      quotient.high.terms.push_back({term.index, term.stride / unit});
      continue;
    }
    quotient.low.terms.push_back(term);
    const int64_t span = term.stride * (extents[as_index(term.index)] - 1);
    least += std::min<int64_t>(span, 0);
    reach += std::abs(span);
  }
  const int64_t first = (((position.offset + least) % unit) + unit) % unit;
  if (first + reach >= unit) return std::nullopt;
  quotient.low.offset = first - least;
  quotient.high.offset = (position.offset - quotient.low.offset) / unit;
  return quotient;
}

class AxisSplitter {
 public:
  explicit AxisSplitter(Graph& graph) : graph_(graph), producers_(producers_of(graph)) {}

  // Whether anything was split.
  bool run() {
    number_nodes();
    for (size_t k = 0; k < graph_.operators.size(); ++k) suggest_points(k);
    if (!any_points(suggested_) && !any_points(sliced_)) return false;
    for (size_t k = 0; k < graph_.operators.size(); ++k) link(k);
    gather_suggestions();
    for (size_t k = 0; k < graph_.operators.size(); ++k) forbid_points(k);
    choose_points();
    if (points_.empty()) return false;
    for (const Operator& op : graph_.operators) find_joined_nodes(op);
    return rewrite();
  }

 private:
  // Nodes: the axes of computed tensors that are no results, then the indices of all operators.
  void number_nodes() {
    std::vector<bool> fixed(graph_.tensors.size(), false);
    for (const Output& result : graph_.results) fixed[result.tensor.at()] = true;
    int next = 0;
    for (size_t k = 0; k < graph_.tensors.size(); ++k) {
      const bool splits = graph_.tensors[k].role == TensorRole::computed && !fixed[k];
      axis_nodes_.push_back(splits ? next : kFixed);
      if (splits) next += static_cast<int>(graph_.tensors[k].dims.size());
    }
    for (const Operator& op : graph_.operators) {
      index_nodes_.push_back(next);
      next += static_cast<int>(op.space.size());
    }
    parents_.resize(static_cast<size_t>(next));
    std::iota(parents_.begin(), parents_.end(), 0);
  }

  static bool any_points(const std::map<int, std::map<int64_t, int>>& nodes) {
    return std::any_of(nodes.begin(), nodes.end(), [](const auto& entry) { return !entry.second.empty(); });
  }

  int class_of(int node) {
    while (parents_[as_index(node)] != node) {
      parents_[as_index(node)] = parents_[as_index(parents_[as_index(node)])];
      node = parents_[as_index(node)];
    }
    return node;
  }

  std::vector<int64_t> extents_of_space(const Operator& op) const {
    std::vector<int64_t> extents;
    for (const DimId dim : op.space) extents.push_back(graph_.extent(dim));
    return extents;
  }

  // Calls visit(node of the axis or kFixed, extent, position) for all axes of all accesses.
  template <class Visit>
  void for_each_axis(const Operator& op, const Visit& visit) const {
    for (const std::vector<Access>* accesses : {&op.inputs, &op.outputs}) {
      for (const Access& access : *accesses) {
        const int first = axis_nodes_[access.tensor.at()];
        for (size_t axis = 0; axis < access.axes.size(); ++axis) {
          visit(first == kFixed ? kFixed : first + static_cast<int>(axis),
                graph_.extent(graph_.tensor(access.tensor).dims[axis]), access.axes[axis]);
        }
      }
    }
  }

  static void suggest(std::map<int64_t, int>& points, int64_t point, int64_t extent) {
    if (point > 1 && point < extent && extent % point == 0) ++points[point];
  }

  // The points that a position on an axis suggests: the steps and the ends of its terms, and the chunks of a join.
  // Points that only a slice suggests count only if no operator reads the whole axis.
  void suggest_points(size_t k) {
    const Operator& op = graph_.operators[k];
    const std::vector<int64_t> extents = extents_of_space(op);
    std::map<int, int64_t> chunks;  // of the indices of a join
    for_each_axis(op, [&](int node, int64_t extent, const Position& position) {
      const bool slices = position.terms.size() == 1;
      for (const IndexTerm& term : position.terms) {
        const int64_t stride = std::abs(term.stride);
        const int64_t length = extents[as_index(term.index)];
        if (op.kind == OperatorKind::join && stride == 1 && slices) {
          int64_t& chunk = chunks.try_emplace(term.index, length).first->second;
          chunk = std::gcd(chunk, std::gcd(extent, position.offset));
        }
        if (node == kFixed || length == 1) continue;
        std::map<int64_t, int>& points = slices ? sliced_[node] : suggested_[node];
        suggest(points, stride, extent);
        suggest(points, stride * length, extent);
        name_digit(node, stride, length, op.space[as_index(term.index)]);
      }
    });
    for (const auto& [index, chunk] : chunks) {
      const int64_t length = extents[as_index(index)];
      if (length / chunk <= kMostChunks) suggest(suggested_[index_nodes_[k] + index], chunk, length);
    }
    for (const Access& input : op.inputs) mark_whole(input, extents);
  }

  void mark_whole(const Access& input, const std::vector<int64_t>& extents) {
    const int first = axis_nodes_[input.tensor.at()];
    if (first == kFixed) return;
    for (size_t axis = 0; axis < input.axes.size(); ++axis) {
      const Position& position = input.axes[axis];
      const bool whole = position.is_index() && !position.terms.empty() &&
                         extents[as_index(position.index())] == graph_.extent(graph_.tensor(input.tensor).dims[axis]);
      if (whole) read_whole_.insert(first + static_cast<int>(axis));
    }
  }

  void name_digit(int node, int64_t unit, int64_t extent, DimId dim) { names_[node].try_emplace({unit, extent}, dim); }

  // An axis and the index that runs along all of it are of one class. An index of a join may be longer than the axis.
  void link(size_t k) {
    const Operator& op = graph_.operators[k];
    const std::vector<int64_t> extents = extents_of_space(op);
    for_each_axis(op, [&](int node, int64_t extent, const Position& position) {
      if (node == kFixed || position.terms.size() != 1 || position.terms[0].stride != 1) return;
      const int index = position.terms[0].index;
      const int64_t length = extents[as_index(index)];
      const bool joins =
          op.kind == OperatorKind::join && length >= extent && std::gcd(std::gcd(extent, length), position.offset) > 1;
      if (joins || (length == extent && position.offset == 0))
        parents_[as_index(class_of(index_nodes_[k] + index))] = class_of(node);
    });
  }

  void gather_suggestions() {
    for (const auto& [node, points] : sliced_) {
      if (read_whole_.contains(node)) continue;
      for (const auto& [point, times] : points) wanted_[class_of(node)][point] += times;
    }
    for (const auto& [node, points] : suggested_) {
      for (const auto& [point, times] : points) wanted_[class_of(node)][point] += times;
    }
    for (const auto& [node, names] : names_) digit_names_[class_of(node)].insert(names.begin(), names.end());
  }

  void forbid(int node, int64_t point) { wanted_[node].erase(point); }

  // Whether the operator needs the index whole: a causal mask compares two whole indices, and a diagonal is taken of
  // whole axes.
  static bool is_one(const Operator& op, size_t index) {
    if (op.kind == OperatorKind::index) return true;
    if (op.kind == OperatorKind::causal_mask && index + 2 >= op.space.size()) return true;
    return std::any_of(op.inputs.begin(), op.inputs.end(),
                       [&](const Access& input) { return runs_along(input, index) && takes_diagonal(input); });
  }

  // Whether the region of an input of a join would not be a box when the index is split.
  static bool cuts_region(const Operator& op, size_t index, int64_t point) {
    return std::any_of(op.regions.begin(), op.regions.end(), [&](const Region& region) {
      return region[index].first % point != 0 || (region[index].last + 1) % point != 0;
    });
  }

  // A point must divide the extents of its class, and split every position on its axes into digits.
  void forbid_points(size_t k) {
    const Operator& op = graph_.operators[k];
    const std::vector<int64_t> extents = extents_of_space(op);
    if (op.kind == OperatorKind::gather && axis_nodes_[op.inputs[0].tensor.at()] != kFixed)
      wanted_.erase(class_of(axis_nodes_[op.inputs[0].tensor.at()] + op.gathered));  // ids count all of its positions
    for (size_t index = 0; index < op.space.size(); ++index) {
      const int in_class = class_of(index_nodes_[k] + static_cast<int>(index));
      const auto wanted = wanted_.find(in_class);
      if (wanted == wanted_.end()) continue;
      std::erase_if(wanted->second, [&](const auto& entry) {
        const int64_t point = entry.first;
        return point < extents[index] &&
               (extents[index] % point != 0 || is_one(op, index) || cuts_region(op, index, point));
      });
    }
    for_each_axis(op, [&](int node, int64_t extent, const Position& position) {
      const auto wanted = node == kFixed ? wanted_.end() : wanted_.find(class_of(node));
      if (wanted == wanted_.end()) return;
      std::erase_if(wanted->second, [&](const auto& entry) {
        const int64_t point = entry.first;
        return point < extent && (extent % point != 0 || !splits(k, position, point, class_of(node)));
      });
    });
  }

  // Whether the position has digits at this point, when the indices of its class are split there.
  bool splits(size_t k, const Position& position, int64_t point, int in_class) {
    std::vector<int64_t> extents = extents_of_space(graph_.operators[k]);
    std::vector<Position> by = in_order(extents.size());
    const size_t count = extents.size();
    for (size_t index = 0; index < count; ++index) {
      if (extents[index] <= point || class_of(index_nodes_[k] + static_cast<int>(index)) != in_class) continue;
      by[index] = Position({{static_cast<int>(index), 1}, {static_cast<int>(extents.size()), point}}, 0);
      extents.push_back(extents[index] / point);
      extents[index] = point;
    }
    return divided(substituted(position, by), point, extents).has_value();
  }

  // The points that were suggested most often come first; each must be a digit of those before it.
  void choose_points() {
    for (const auto& [in_class, wanted] : wanted_) {
      std::vector<std::pair<int, int64_t>> order;
      for (const auto& [point, times] : wanted) order.emplace_back(-times, point);
      std::sort(order.begin(), order.end());
      SplitPoints chosen = {1};
      for (const auto& [times, point] : order) {
        if (const auto both = common_points(chosen, {1, point})) chosen = *both;
      }
      if (chosen.size() > 1) points_[in_class] = chosen;
    }
  }

  // The axes that a join reads along a longer index.
  void find_joined_nodes(const Operator& op) {
    if (op.kind != OperatorKind::join) return;
    const std::vector<int64_t> extents = extents_of_space(op);
    for (const Access& input : op.inputs) {
      for (size_t axis = 0; axis < input.axes.size(); ++axis) {
        const Position& position = input.axes[axis];
        const bool runs = position.terms.size() == 1 && position.terms[0].stride == 1;
        const int64_t extent = graph_.extent(graph_.tensor(input.tensor).dims[axis]);
        if (runs && extent < extents[as_index(position.terms[0].index)]) add_joined(input.tensor, axis);
      }
    }
  }

  // This axis of a map, the map's index along it, and the same for the maps that it reads.
  void add_joined(TensorId tensor, size_t axis) {
    const OperatorId maker = producers_[tensor.at()];
    if (axis_nodes_[tensor.at()] == kFixed || !maker.valid()) return;
    const Operator& op = graph_.operators[maker.at()];
    const Position& written = op.outputs[0].axes[axis];
    const bool maps =
        info_of(op.kind).operator_class == OperatorClass::elementwise && op.outputs.size() == 1 && op.regions.empty();
    if (!maps || !written.is_index() || written.terms.empty() || is_one(op, as_index(written.index()))) return;
    if (!joined_.insert(axis_nodes_[tensor.at()] + static_cast<int>(axis)).second) return;
    joined_.insert(index_nodes_[maker.at()] + written.index());
    for (const Access& input : op.inputs) {
      for (size_t k = 0; k < input.axes.size(); ++k)
        if (input.axes[k] == written) add_joined(input.tensor, k);
    }
  }

  // The digits of a node, outermost first: the units at which it is split, from the largest to one.
  std::vector<int64_t> units_of(int node, int64_t extent) {
    std::vector<int64_t> units;
    const auto points = node == kFixed ? points_.end() : points_.find(class_of(node));
    if (points == points_.end()) return {1};
    std::copy_if(points->second.rbegin(), points->second.rend(), std::back_inserter(units), [&](int64_t point) {
      return point == 1 || point < extent || (point == extent && joined_.contains(node));
    });
    return units;
  }

  std::vector<DimId> dims_of_digits(int node, DimId whole, const std::vector<int64_t>& units) {
    std::vector<DimId> dims;
    int64_t end = graph_.extent(whole);
    for (size_t k = 0; k < units.size(); ++k) {
      dims.push_back(digit_dim(node, whole, units[k], end / units[k], k));
      end = units[k];
    }
    return dims;
  }

  DimId digit_dim(int node, DimId whole, int64_t unit, int64_t extent, size_t digit) {
    const auto& names = digit_names_[class_of(node)];
    const auto named = names.find({unit, extent});
    if (named != names.end()) return named->second;
    const Dim& old = graph_.dims[whole.at()];
    const Dim made = {old.name == concat(old.extent) ? concat(extent) : concat(old.name, ".", digit), extent};
    if (dims_.empty()) {
      for (size_t k = 0; k < graph_.dims.size(); ++k)
        dims_.try_emplace({graph_.dims[k].name, graph_.dims[k].extent}, DimId(k));
    }
    const auto [entry, fresh] = dims_.try_emplace({made.name, extent}, DimId(graph_.dims.size()));
    if (fresh) graph_.dims.push_back(made);
    return entry->second;
  }

  // Returns false and changes nothing if a position cannot be written in digits.
  bool rewrite() {
    std::vector<Operator> operators = graph_.operators;
    for (size_t k = 0; k < operators.size(); ++k) {
      if (!rewrite_operator(k, operators[k])) return false;
    }
    for (size_t k = 0; k < graph_.tensors.size(); ++k) {
      if (axis_nodes_[k] == kFixed) continue;
      std::vector<DimId> dims;
      for (size_t axis = 0; axis < graph_.tensors[k].dims.size(); ++axis) {
        const DimId whole = graph_.tensors[k].dims[axis];
        const int node = axis_nodes_[k] + static_cast<int>(axis);
        const std::vector<int64_t> units = units_of(node, graph_.extent(whole));
        const std::vector<DimId> digits =
            units.size() == 1 ? std::vector<DimId>{whole} : dims_of_digits(node, whole, units);
        dims.insert(dims.end(), digits.begin(), digits.end());
      }
      graph_.tensors[k].dims = std::move(dims);
    }
    graph_.operators = std::move(operators);
    return true;
  }

  // The gathered axis after those before it are split.
  int moved_axis(const Operator& op) {
    const int first = axis_nodes_[op.inputs[0].tensor.at()];
    const std::vector<DimId>& dims = graph_.tensor(op.inputs[0].tensor).dims;
    size_t moved = 0;
    for (int axis = 0; axis < op.gathered; ++axis)
      moved += units_of(first == kFixed ? kFixed : first + axis, graph_.extent(dims[as_index(axis)])).size();
    return static_cast<int>(moved);
  }

  bool rewrite_operator(size_t k, Operator& op) {
    if (op.kind == OperatorKind::gather) op.gathered = moved_axis(op);
    std::vector<Position> by;
    std::vector<DimId> space;
    std::vector<bool> reduced;
    for (size_t index = 0; index < op.space.size(); ++index) {
      const int node = index_nodes_[k] + static_cast<int>(index);
      const std::vector<int64_t> units = units_of(node, graph_.extent(op.space[index]));
      const std::vector<DimId> dims =
          units.size() == 1 ? std::vector<DimId>{op.space[index]} : dims_of_digits(node, op.space[index], units);
      Position position;
      for (size_t digit = 0; digit < units.size(); ++digit) {
        position.terms.push_back({static_cast<int>(space.size()), units[digit]});
        space.push_back(dims[digit]);
        reduced.push_back(op.reduced[index]);
      }
      by.push_back(std::move(position));
    }
    for (Region& region : op.regions) region = in_digits(region, by, space);
    op.space = std::move(space);
    op.reduced = std::move(reduced);
    const std::vector<int64_t> extents = extents_of_space(op);
    for (std::vector<Access>* accesses : {&op.inputs, &op.outputs}) {
      for (Access& access : *accesses) {
        if (!rewrite_access(access, by, extents)) return false;
      }
    }
    return true;
  }

  // A region whose ends are multiples of the outermost digit's unit.
  Region in_digits(const Region& region, const std::vector<Position>& by, const std::vector<DimId>& space) const {
    Region split;
    for (const DimId dim : space) split.push_back({0, graph_.extent(dim) - 1});
    for (size_t index = 0; index < region.size(); ++index) {
      const IndexTerm& outermost = by[index].terms.front();
      split[as_index(outermost.index)] = {region[index].first / outermost.stride,
                                          (region[index].last + 1) / outermost.stride - 1};
    }
    return split;
  }

  bool rewrite_access(Access& access, const std::vector<Position>& by, const std::vector<int64_t>& extents) {
    const int first = axis_nodes_[access.tensor.at()];
    std::vector<Position> axes;
    for (size_t axis = 0; axis < access.axes.size(); ++axis) {
      Position rest = substituted(access.axes[axis], by);
      const int64_t extent = graph_.extent(graph_.tensor(access.tensor).dims[axis]);
      const int node = first == kFixed ? kFixed : first + static_cast<int>(axis);
      for (const int64_t unit : units_of(node, extent)) {
        if (unit == 1) break;
        const std::optional<Quotient> digit = divided(rest, unit, extents);
        if (!digit) return false;
        axes.push_back(digit->high);
        rest = digit->low;
      }
      axes.push_back(std::move(rest));
    }
    access.axes = std::move(axes);
    return true;
  }

  Graph& graph_;
  std::vector<OperatorId> producers_;
  std::vector<int> axis_nodes_;   // of each tensor: the node of its first axis, or kFixed if its shape is the caller's
  std::vector<int> index_nodes_;  // of each operator: the node of its first index
  std::vector<int> parents_;
  std::map<int, std::map<int64_t, int>> suggested_;  // points of a node, and how often each was suggested
  std::map<int, std::map<int64_t, int>> sliced_;     // the same, suggested by slices
  std::set<int> read_whole_;                         // axes of tensors
  std::map<int, std::map<int64_t, int>> wanted_;     // points of a class
  std::map<int, std::map<std::pair<int64_t, int64_t>, DimId>> names_;        // of a node's digits, by unit and extent
  std::map<int, std::map<std::pair<int64_t, int64_t>, DimId>> digit_names_;  // of a class
  std::map<std::pair<std::string, int64_t>, DimId> dims_;
  std::map<int, SplitPoints> points_;  // of a class
  std::set<int> joined_;               // nodes that are split at their own extent: a digit of one
};

}  // namespace

void split_axes(Graph& graph) {
  for (int round = 0; round < kMostRounds; ++round) {
    if (!AxisSplitter(graph).run()) return;
  }
}

}  // namespace millrace
