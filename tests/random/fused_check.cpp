#include "random/fused_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "autodiff/verify.h"
#include "base/text.h"
#include "fusion/fuse.h"
#include "fusion/predicates.h"
#include "random/fused_rows.h"
#include "random/inputs.h"
#include "random/points.h"
#include "random/value.h"
#include "reference/bounded.h"

namespace millrace::random_programs {
namespace {

using Real = Bounded<53>;
using Tensors = std::set<TensorId>;

class Structure {
 public:
  Structure(const TrainingGraph& training, const FusedGraph& fused)
      : training_(training), graph_(training.graph), fused_(fused) {
    for (const Operator& reader : graph_.operators) {
      for (const Access& input : reader.inputs) wanted_.insert(input.tensor);
    }
    for (const Output& result : graph_.results) outside_.insert(result.tensor);
    outside_.insert(training.argument_gradients.begin(), training.argument_gradients.end());
    wanted_.insert(outside_.begin(), outside_.end());
  }

  std::optional<std::string> run() {
    cover();
    if (message_.empty()) {
      for (size_t g = 0; g < fused_.groups.size(); ++g) one(g);
      totals();
    }
    return message_.empty() ? std::nullopt : std::optional(message_);
  }

 private:
  bool check(bool holds, const std::string& complaint) {
    if (!holds && message_.empty()) message_ = at_ + complaint;
    return holds;
  }

  const Operator& op(OperatorId id) const { return graph_.operators[id.at()]; }

  void cover() {
    group_of_.assign(graph_.operators.size(), fused_.groups.size());
    for (size_t g = 0; g < fused_.groups.size(); ++g) {
      check(!fused_.groups[g].members.empty(), concat("group ", g, " is empty"));
      for (const OperatorId member : fused_.groups[g].members) {
        if (!check(member.valid() && member.at() < group_of_.size(), "a member is not an operator")) return;
        check(group_of_[member.at()] == fused_.groups.size(), concat(op(member).name, " is in two groups"));
        group_of_[member.at()] = g;
      }
    }
    for (size_t k = 0; k < group_of_.size(); ++k)
      check(group_of_[k] < fused_.groups.size(), concat(graph_.operators[k].name, " is in no group"));
    for (size_t k = 0; k < group_of_.size(); ++k)
      for (const Access& input : graph_.operators[k].inputs) readers_[input.tensor].insert(group_of_[k]);
  }

  void one(size_t g) {
    const FusedOperator& group = fused_.groups[g];
    at_ = concat("group ", g, " (", group.name, "): ");
    check(std::is_sorted(group.members.begin(), group.members.end()), "its members are not in the graph's order");
    for (const OperatorId member : group.members) {
      check(op(member).pass == group.pass, concat(op(member).name, " is of the other pass"));
      check((op(member).kind == OperatorKind::contraction) == (group.kind == FusedKind::contraction),
            concat(op(member).name, " is of another kind"));
    }
    check(group.kind == FusedKind::kernel || group.members.size() == 1, "a contraction is fused");
    tensors(g);
    if (group.kind == FusedKind::kernel) space(group);
    words(group);
    at_.clear();
  }

  static Tensors set_of(const std::vector<TensorId>& tensors) { return {tensors.begin(), tensors.end()}; }

  void same(const char* what, const std::vector<TensorId>& found, const Tensors& expected) {
    const Tensors listed = set_of(found);
    check(listed.size() == found.size(), concat(what, " names a tensor twice"));
    for (const TensorId tensor : found)
      check(expected.contains(tensor),
            concat(what, " has ", graph_.tensor(tensor).name, ", which does not belong there"));
    for (const TensorId tensor : expected)
      check(listed.contains(tensor), concat(what, " lacks ", graph_.tensor(tensor).name));
  }

  void tensors(size_t g) {
    const FusedOperator& group = fused_.groups[g];
    Tensors written;
    for (const OperatorId member : group.members) {
      for (const Access& output : op(member).outputs) written.insert(output.tensor);
    }
    Tensors reads;
    for (const OperatorId member : group.members) {
      for (const Access& input : op(member).inputs) {
        if (!written.contains(input.tensor) && words_of(graph_, input.tensor) > 0) reads.insert(input.tensor);
      }
    }
    Tensors writes;
    Tensors interim;
    for (const TensorId tensor : written) {
      bool needed = outside_.contains(tensor);
      for (const size_t reader : readers_[tensor]) {
        check(reader >= g, concat(graph_.tensor(tensor).name, " is written after it is read"));
        needed = needed || reader != g;
      }
      (needed ? writes : interim).insert(tensor);
    }
    same("reads", group.reads, reads);
    same("writes", group.writes, writes);
    same("interim", group.interim, interim);
  }

  bool outer(const FusedOperator& group, int index) const { return group.space[static_cast<size_t>(index)].outer; }

  void space(const FusedOperator& group) {
    if (!check(group.index_of.size() == group.members.size(), "it does not have one index map per member")) return;
    if (!check(group.shift_of.size() == group.members.size(), "it does not have shifts for each member")) return;
    std::vector<bool> reduced(group.space.size(), false);
    for (size_t m = 0; m < group.members.size(); ++m) {
      if (!member_space(group, m, reduced)) return;
    }
    for (size_t index = 0; index < group.space.size(); ++index) {
      const Implementation implementation = group.space[index].implementation;
      const std::string which = concat("index ", index, ": ");
      if (group.space[index].outer) {
        check((implementation == Implementation::grid_reduction) == reduced[index],
              which + "rows must be reduced across the grid");
        check(reduced[index] || implementation == Implementation::block || implementation == Implementation::thread,
              which + "a row must belong to a block or a thread");
      } else {
        check(implementation != Implementation::block && implementation != Implementation::grid_reduction,
              which + "an index inside a row must stay in one block");
        const bool reduces =
            implementation == Implementation::warp_reduction || implementation == Implementation::block_reduction;
        check(!reduces || reduced[index], which + "no member reduces along it");
      }
    }
  }

  // Whether the member runs along all of a group's index or, if it computes each element alone, along a part. A
  // dropout's mask depends on the element's number, so it runs along all.
  void part_of_index(const FusedOperator& group, size_t m, size_t k) {
    const Operator& member = op(group.members[m]);
    const bool elementwise = info_of(member.kind).operator_class == OperatorClass::elementwise;
    const int64_t extent = graph_.extent(member.space[k]);
    const int64_t of_group = graph_.extent(group.space[as_index(group.index_of[m][k])].dim);
    const int64_t shift = group.shift_of[m][k];
    const bool part = elementwise && member.kind != OperatorKind::dropout && extent < of_group;
    check(extent == of_group || part, concat(member.name, ": its index ", k, " has another extent"));
    check(shift >= 0 && shift + extent <= of_group, concat(member.name, ": its index ", k, " leaves the group's"));
  }

  // Indices map one to one to group indices or parts of them, and include all outer indices. A reduction is over a row,
  // all rows or everything, and no member uses a reduction across rows.
  bool member_space(const FusedOperator& group, size_t m, std::vector<bool>& reduced) {
    const Operator& member = op(group.members[m]);
    const std::vector<int>& index_of = group.index_of[m];
    if (!check(index_of.size() == member.space.size(), member.name + ": it does not have one group index per index"))
      return false;
    if (!check(group.shift_of[m].size() == member.space.size(), member.name + ": it does not have one shift per index"))
      return false;
    std::set<int> used;
    std::set<int> reduced_here;
    for (size_t k = 0; k < index_of.size(); ++k) {
      const int64_t extent = graph_.extent(member.space[k]);
      if (index_of[k] < 0) {
        check(extent == 1, concat(member.name, ": its index ", k, " is none of the group's"));
        continue;
      }
      if (!check(static_cast<size_t>(index_of[k]) < group.space.size(), member.name + ": unknown index")) return false;
      part_of_index(group, m, k);
      check(used.insert(index_of[k]).second, member.name + ": two of its indices map to one");
      if (member.reduced[k] && extent > 1) reduced_here.insert(index_of[k]);
      if (member.reduced[k]) reduced[static_cast<size_t>(index_of[k])] = true;
    }
    std::set<int> rows;
    std::set<int> inside;
    for (const int index : used) {
      if (graph_.extent(group.space[static_cast<size_t>(index)].dim) > 1)
        (outer(group, index) ? rows : inside).insert(index);
    }
    for (size_t index = 0; index < group.space.size(); ++index) {
      const bool trivial = graph_.extent(group.space[index].dim) == 1;
      check(trivial || !group.space[index].outer || rows.contains(static_cast<int>(index)),
            concat(member.name, ": does not run along outer index ", index));
    }
    std::set<int> everything = rows;
    everything.insert(inside.begin(), inside.end());
    check(reduced_here.empty() || reduced_here == rows || reduced_here == inside || reduced_here == everything,
          member.name + ": reduces a part of a row or of the rows");
    const bool across = std::any_of(reduced_here.begin(), reduced_here.end(), [&](int k) { return outer(group, k); });
    for (const Access& output : member.outputs) {
      for (const OperatorId reader : group.members) {
        for (const Access& input : op(reader).inputs)
          check(!across || input.tensor != output.tensor, member.name + ": is used before all rows are done");
      }
    }
    crosses_ = crosses_ || across;
    return true;
  }

  void words(const FusedOperator& group) {
    // Rows of up to this length surely stay in fast memory; with longer rows, an operator alone may reread too.
    constexpr int64_t kShortRow = 1024;
    bool long_rows = false;
    int64_t before = 0;
    for (const OperatorId member : group.members) {
      int64_t row = 1;
      for (size_t k = 0; k < op(member).space.size(); ++k)
        row *= op(member).reduced[k] ? graph_.extent(op(member).space[k]) : 1;
      long_rows = long_rows || row > kShortRow;
      Tensors touched;
      for (const Access& input : op(member).inputs) touched.insert(input.tensor);
      for (const TensorId tensor : touched) before += words_read(graph_, {member}, tensor);
      for (const Access& output : op(member).outputs)
        before += wanted_.contains(output.tensor) ? words_of(graph_, output.tensor) : 0;
    }
    check(group.words_before == before || (long_rows && group.words_before > before),
          concat("moves ", before, " words unfused, not ", group.words_before));
    check(!group.rereads || long_rows, "rereads a short row");
    check(group.partial_words >= 0 && (crosses_ || group.partial_words == 0),
          "partial words without a reduction across the grid");
    check(group.loops >= 1 && (group.loops > 1 || !group.rereads), "rereads without another loop");
    int64_t after = group.partial_words;
    for (const TensorId tensor : group.writes) after += words_of(graph_, tensor);
    for (const TensorId tensor : group.reads)
      after +=
          words_read(graph_, group.members, tensor) * (group.rereads && along_row(group, tensor) ? group.loops : 1);
    check(group.words_after == after, concat("moves ", after, " words, not ", group.words_after));
    check(after <= group.words_before, "moves more words than its members as separate kernels");
    crosses_ = false;
  }

  bool along_row(const FusedOperator& group, TensorId tensor) const {
    for (size_t m = 0; m < group.members.size(); ++m) {
      for (const Access& input : op(group.members[m]).inputs) {
        for (size_t k = 0; k < group.index_of[m].size() && input.tensor == tensor; ++k) {
          const int of_group = group.index_of[m][k];
          if (of_group >= 0 && !outer(group, of_group) && runs_along(input, k)) return true;
        }
      }
    }
    return false;
  }

  void totals() {
    int64_t before = 0;
    int64_t after = 0;
    for (const FusedOperator& group : fused_.groups) {
      before += group.words_before;
      after += group.words_after;
    }
    check(fused_.words_before == before, "the words unfused are not the groups' sum");
    check(fused_.words_after == after, "the words are not the groups' sum");
    const auto by_mask = [&](MaskStorage masks) { return fused_.words_after_by_mask[static_cast<size_t>(masks)]; };
    check(by_mask(MaskStorage::words) == after, "masks as words are not counted as words");
    check(by_mask(MaskStorage::bits) <= by_mask(MaskStorage::words), "masks as bits move more than as words");
    check(by_mask(MaskStorage::regenerated) <= by_mask(MaskStorage::bits),
          "regenerated masks move more words than masks as bits");
  }

  const TrainingGraph& training_;
  const Graph& graph_;
  const FusedGraph& fused_;
  Tensors outside_;                               // needed by the caller
  Tensors wanted_;                                // needed by an operator or the caller: nothing else is written
  std::map<TensorId, std::set<size_t>> readers_;  // the groups that read a tensor
  std::vector<size_t> group_of_;                  // one per operator
  bool crosses_ = false;                          // a member of the current group reduces across rows
  std::string at_;
  std::string message_;
};

// The given tensors: arguments, scalars and the results' gradients.
template <class Scalar>
Values<Scalar> given(const Graph& graph, const Values<double>& values) {
  Values<Scalar> taken(graph.tensors.size());
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    const TensorRole role = graph.tensors[k].role;
    if (role != TensorRole::computed && role != TensorRole::constant)
      taken[k].assign(values[k].begin(), values[k].end());
  }
  return taken;
}

template <class Scalar>
Memory<Scalar> memory_with(const Graph& graph, const Values<double>& values) {
  return {given<Scalar>(graph, values), std::vector<bool>(graph.tensors.size(), false)};
}

// How far rounding may separate the unfused run and the fused one if the order of a sum differs. Runs both again with
// bounds: seldom, since few programs have such a sum whose rounding differs.
class Tolerances {
 public:
  Tolerances(const TrainingGraph& training, const FusedGraph& fused, const Values<double>& values, RandomState random)
      : unfused_(given<Real>(training.graph, values)), fused_(memory_with<Real>(training.graph, values)) {
    if (const Result<Done> done = interpret<Real>(training.graph, unfused_, random); !done) return;
    for (const FusedOperator& group : fused.groups) run_group(training.graph, group, random, fused_);
  }

  double at(TensorId tensor, size_t element) const {
    return unfused_[tensor.at()][element].error + fused_.values[tensor.at()][element].error;
  }

 private:
  Values<Real> unfused_;
  Memory<Real> fused_;
};

// As in the interpreter's checks: equal bits, except for the sign of zero.
bool equal(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

std::optional<std::string> check_structure(const TrainingGraph& training, const FusedGraph& fused) {
  return Structure(training, fused).run();
}

// If an element depends on a sum across rows, the order of summation differs from the unfused run. All other arithmetic
// is the same.
std::optional<std::string> check_fused(const TrainingGraph& training, const FusedGraph& fused,
                                       const Values<double>& expected, RandomState random) {
  if (std::optional<std::string> complaint = check_structure(training, fused)) return complaint;
  const Graph& graph = training.graph;
  Memory<double> memory = memory_with<double>(graph, expected);
  std::optional<Tolerances> tolerances;
  for (const FusedOperator& group : fused.groups) {
    if (const std::optional<std::string> complaint = run_group(graph, group, random, memory))
      return concat("group ", group.name, ": ", *complaint);
    for (const TensorId tensor : group.writes) {
      const std::vector<double>& found = memory.values[tensor.at()];
      for (size_t e = 0; e < found.size(); ++e) {
        const double wanted = expected[tensor.at()][e];
        if (equal(found[e], wanted)) continue;
        double tolerance = 0;
        if (memory.reordered[tensor.at()]) {
          if (!tolerances) tolerances.emplace(training, fused, expected, random);
          tolerance = tolerances->at(tensor, e);
        }
        if (std::abs(found[e] - wanted) <= tolerance) continue;
        return concat("group ", group.name, ": ", graph.tensor(tensor).name, " element ", e, " is ",
                      number_text(found[e]), " fused, ", number_text(wanted), " unfused, tolerance ",
                      number_text(tolerance));
      }
    }
  }
  return std::nullopt;
}

std::optional<std::string> check_fusion(const TrainingGraph& training, uint64_t seed) {
  const Graph& graph = training.graph;
  const Inputs inputs = draw_inputs(graph, seed);
  Values<double> values = values_at(graph, inputs, 0);
  for (size_t r = 0; r < training.result_gradients.size(); ++r)
    values[training.result_gradients[r].at()] = inputs.result_gradients[r];
  if (const Result<Done> done = interpret<double>(graph, values, inputs.random); !done) return to_string(done.error());
  const FusedGraph fused = fuse(training);
  if (std::optional<std::string> wrong = check_fused(training, fused, values, inputs.random)) return wrong;
  Recomputed recomputed = recompute(training, fused, false);
  if (std::optional<std::string> wrong = check_saving_less(training, fused, recomputed, values, inputs.random))
    return concat("with recomputation: ", *wrong);
  const Recomputed predicated = save_predicates(training, fused, std::move(recomputed), false);
  if (predicated.training.predicates.empty()) return std::nullopt;
  if (std::optional<std::string> wrong = check_saving_less(training, fused, predicated, values, inputs.random))
    return concat("with saved predicates: ", *wrong);
  return std::nullopt;
}

std::optional<std::string> check_saving_less(const TrainingGraph& training, const FusedGraph& fused,
                                             const Recomputed& made, const Values<double>& expected,
                                             RandomState random) {
  if (made.training.repeated.empty() && made.training.predicates.empty()) return std::nullopt;
  if (const Result<Done> valid = verify(made.training); !valid) return to_string(valid.error());
  if (moved_words(fused) <= moved_words(made.fused)) return "no fewer words are moved";
  Values<double> values(made.training.graph.tensors.size());
  for (size_t k = 0; k < expected.size(); ++k) {
    if (training.graph.tensors[k].role != TensorRole::computed) values[k] = expected[k];
  }
  if (const Result<Done> done = interpret<double>(made.training.graph, values, random); !done)
    return to_string(done.error());
  for (size_t k = 0; k < expected.size(); ++k) {  // the same operators on the same numbers: equal bits
    const auto same = [](double l, double r) { return l == r || (std::isnan(l) && std::isnan(r)); };
    if (!std::equal(expected[k].begin(), expected[k].end(), values[k].begin(), values[k].end(), same))
      return concat(training.graph.tensors[k].name, " differs");
  }
  return check_fused(made.training, made.fused, values, random);
}

}  // namespace millrace::random_programs
