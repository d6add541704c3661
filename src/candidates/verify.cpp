#include "candidates/verify.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/text.h"

namespace millrace {
namespace {

using Complaint = std::optional<std::string>;

bool within(int number, size_t count) { return number >= 0 && as_index(number) < count; }

// Whether the numbers are different, and each is below `count`.
bool are_distinct(const std::vector<int>& numbers, size_t count) {
  return std::all_of(numbers.begin(), numbers.end(), [&](int number) { return within(number, count); }) &&
         std::set<int>(numbers.begin(), numbers.end()).size() == numbers.size();
}

bool is_scalar(const Tensor& tensor) {
  return tensor.role == TensorRole::scalar || tensor.role == TensorRole::constant;
}

class Check {
 public:
  Check(const TrainingGraph& training, const Candidates& candidates)
      : training_(training), graph_(training.graph), c_(candidates), producers_(producers_of(graph_)) {}

  Complaint run() {
    for (auto step : {&Check::domains, &Check::contiguous_groups, &Check::partitions, &Check::choice_points,
                      &Check::operators, &Check::reads, &Check::results}) {
      if (Complaint complaint = (this->*step)()) return complaint;
    }
    return {};
  }

 private:
  const std::string& name(TensorId tensor) const { return graph_.tensor(tensor).name; }
  const std::string& name(OperatorId op) const { return graph_.operators[op.at()].name; }
  const Partition& partition(int number) const { return c_.partitions[as_index(number)].partition; }

  Complaint domains() {
    if (c_.domains.size() != graph_.tensors.size()) return "there is not one domain per tensor";
    for (size_t k = 0; k < c_.domains.size(); ++k) {
      const TensorDomain& domain = c_.domains[k];
      const Tensor& tensor = graph_.tensors[k];
      if (domain.layouts.empty() != is_scalar(tensor))
        return concat(tensor.name, is_scalar(tensor) ? " is a number with layouts" : " has no layouts");
      if (domain.pinned >= 0 && !within(domain.pinned, domain.layouts.size()))
        return concat(tensor.name, " is pinned to a layout outside its domain");
      if (!are_distinct(domain.otherwise, domain.layouts.size()))
        return concat(tensor.name, " may be converted to a layout outside its domain");
    }
    return {};
  }

  Complaint contiguous_groups() {
    if (c_.callers_contiguous_groups > c_.contiguous_groups.size()) return "the caller has too many contiguous groups";
    std::set<TensorId> members;
    for (const std::vector<TensorId>& group : c_.contiguous_groups) {
      for (const TensorId tensor : group) {
        if (!members.insert(tensor).second) return concat(name(tensor), " is in contiguous groups twice");
      }
    }
    return {};
  }

  // --- Partitions by themselves ---

  Complaint partitions() {
    std::set<std::string> names;
    for (const PartitionCandidates& one : c_.partitions) {
      const Partition& own = one.partition;
      if (!names.insert(own.name).second) return concat("two partitions are named '", own.name, "'");
      if (own.operators.empty()) return concat("partition '", own.name, "' carries out no operator");
      if (own.index_of.size() != own.members.size())
        return concat("partition '", own.name, "' does not have one index map per member");
      for (const TensorId tensor : tensors_of(own)) {
        if (is_scalar(graph_.tensor(tensor)))
          return concat("partition '", own.name, "' has the number ", name(tensor), " in memory");
      }
      for (const Candidate& candidate : one.candidates) {
        if (const Complaint complaint = check(own, candidate))
          return concat("a candidate of partition '", own.name, "' ", *complaint);
      }
    }
    return {};
  }

  Complaint check(const Partition& own, const Candidate& candidate) const {
    const std::vector<TensorId> tensors = tensors_of(own);
    if (candidate.layouts.size() != tensors.size()) return "does not have one layout per tensor";
    for (size_t k = 0; k < tensors.size(); ++k) {
      const TensorDomain& domain = c_.domains[tensors[k].at()];
      const int layout = candidate.layouts[k];
      if (!within(layout, domain.layouts.size()))
        return concat("has ", name(tensors[k]), " in a layout outside its domain");
      const bool written = k >= own.reads.size();
      const bool allowed = written && domain.pinned >= 0 ? layout == domain.pinned : domain.allows(layout);
      if (!allowed) return concat("has ", name(tensors[k]), " in a layout other than the pinned one");
    }
    if (!std::isfinite(candidate.estimate) || candidate.estimate < 0) return "has no valid estimate";
    return std::visit([&](const auto& config) { return check(own, config); }, candidate.config);
  }

  static Complaint check(const Partition& own, const KernelConfig& config) {
    const size_t count = own.space.size();
    if (own.kind == PartitionKind::attention || own.members.empty()) return "is a kernel of a partition without a nest";
    if (config.loops.size() != count || !are_distinct(config.loops, count)) return "does not loop over each index once";
    if (config.vector != kNoIndex && !within(config.vector, count)) return "has a vector along no index of its nest";
    if (config.block != kNoIndex && !within(config.block, count)) return "has blocks along no index of its nest";
    if (config.threads < 1) return "has no threads";
    return {};
  }

  static Complaint check(const Partition& own, const GemmConfig& config) {
    if (own.kind != PartitionKind::contraction) return "is a product, but its partition is not a contraction";
    std::vector<int> all = config.m;
    all.insert(all.end(), config.n.begin(), config.n.end());
    all.insert(all.end(), config.k.begin(), config.k.end());
    if (!are_distinct(all, own.product.indices.size()))
      return "has an index twice in m, n and k, or an index that the product lacks";
    if (config.threads < 1) return "has no threads";
    const bool unfolds = config.unfolded != kNoIndex;
    if (unfolds && (!within(config.unfolded, 2) || !is_window(own.product, as_index(config.unfolded))))
      return "unfolds an operand without windows";
    return {};
  }

  static Complaint check(const Partition& own, const AttentionConfig& config) {
    if (own.kind != PartitionKind::attention) return "is an attention config, but its partition is not an attention";
    if (config.warps < 1 || config.row_tiles < 1 || config.tile_columns < 1 || config.stages < 1)
      return "has no warps, tiles or stages";
    return {};
  }

  static Complaint check(const Partition& own, const CpuAttentionConfig& config) {
    if (own.kind != PartitionKind::attention) return "is an attention config, but its partition is not an attention";
    if (config.tile_queries < 1 || config.tile_keys < 1 || config.threads < 1) return "has no tiles or threads";
    return {};
  }

  static Complaint check(const Partition& own, const CudnnConfig& /*config*/) {
    if (own.kind != PartitionKind::attention) return "is an attention config, but its partition is not an attention";
    return {};
  }

  // --- Partitions together ---

  Complaint choice_points() {
    std::vector<int> choice_point_of(c_.partitions.size(), kNoIndex);
    for (size_t k = 0; k < c_.choice_points.size(); ++k) {
      if (c_.choice_points[k].alternatives.empty()) return concat("choice point ", k, " has no alternative");
      for (const std::vector<int>& alternative : c_.choice_points[k].alternatives) {
        if (!are_distinct(alternative, c_.partitions.size()))
          return concat("an alternative of choice point ", k, " has a partition twice, or one that does not exist");
        for (const int number : alternative) {
          int& known = choice_point_of[as_index(number)];
          if (known != kNoIndex && known != static_cast<int>(k))
            return concat("partition '", partition(number).name, "' is in two choice points");
          known = static_cast<int>(k);
        }
      }
    }
    return {};
  }

  // Every alternative of a choice point carries out the same operators, so every combination carries out all.
  Complaint operators() {
    choice_point_of_.assign(graph_.operators.size(), kNoIndex);
    for (size_t k = 0; k < c_.choice_points.size(); ++k) {
      std::optional<std::set<OperatorId>> wanted;
      for (const std::vector<int>& alternative : c_.choice_points[k].alternatives) {
        std::set<OperatorId> done;
        for (const int number : alternative) {
          for (const OperatorId op : partition(number).operators) {
            if (!done.insert(op).second)
              return concat("an alternative of choice point ", k, " carries out ", name(op), " twice");
            int& known = choice_point_of_[op.at()];
            if (known != kNoIndex && known != static_cast<int>(k)) return concat(name(op), " is in two choice points");
            known = static_cast<int>(k);
          }
        }
        for (const OperatorId statistic : training_.statistics) done.erase(statistic);
        if (wanted && done != *wanted)
          return concat("alternatives of choice point ", k, " carry out different operators");
        wanted = std::move(done);
      }
    }
    for (size_t op = 0; op < graph_.operators.size(); ++op) {
      const auto& optional = training_.statistics;
      if (choice_point_of_[op] == kNoIndex &&
          std::find(optional.begin(), optional.end(), OperatorId(op)) == optional.end())
        return concat("no partition carries out ", name(OperatorId(op)));
    }
    // A partition may be in no alternative, because their number is limited; its operators are in one choice point.
    for (const PartitionCandidates& one : c_.partitions) {
      std::set<int> numbers;
      for (const OperatorId op : one.partition.operators) numbers.insert(choice_point_of_[op.at()]);
      numbers.erase(kNoIndex);
      if (numbers.size() > 1) return concat("partition '", one.partition.name, "' has operators of two choice points");
    }
    return {};
  }

  // Whether every alternative of a choice point writes a tensor in a partition before `end`.
  bool always_writes(const ChoicePoint& choice_point, TensorId tensor, int end) const {
    return std::all_of(choice_point.alternatives.begin(), choice_point.alternatives.end(),
                       [&](const std::vector<int>& alternative) { return writes(alternative, tensor, end); });
  }

  bool writes(const std::vector<int>& alternative, TensorId tensor, int end) const {
    return std::any_of(alternative.begin(), alternative.end(), [&](int number) {
      const std::vector<TensorId>& written = partition(number).writes;
      return number < end && std::find(written.begin(), written.end(), tensor) != written.end();
    });
  }

  // A tensor from another choice point is written by all alternatives of that choice point; a tensor from the same one,
  // by the same alternative.
  Complaint reads() {
    for (size_t k = 0; k < c_.choice_points.size(); ++k) {
      for (const std::vector<int>& alternative : c_.choice_points[k].alternatives) {
        for (const int number : alternative) {
          for (const TensorId tensor : partition(number).reads) {
            const OperatorId producer = producers_[tensor.at()];
            if (!producer.valid()) continue;  // the caller's
            const int from = choice_point_of_[producer.at()];
            const bool written = from == static_cast<int>(k) ? writes(alternative, tensor, number)
                                 : from != kNoIndex ? always_writes(c_.choice_points[as_index(from)], tensor, number)
                                                    : false;
            if (!written)
              return concat("partition '", partition(number).name, "' reads ", name(tensor), " before it is written");
          }
        }
      }
    }
    return {};
  }

  Complaint results() {
    std::vector<TensorId> wanted;
    for (const Output& result : graph_.results) wanted.push_back(result.tensor);
    for (const TensorId gradient : training_.argument_gradients) {
      if (gradient.valid()) wanted.push_back(gradient);
    }
    for (const TensorId tensor : wanted) {
      const OperatorId producer = producers_[tensor.at()];
      if (!producer.valid()) continue;
      const ChoicePoint& from = c_.choice_points[as_index(choice_point_of_[producer.at()])];
      if (!always_writes(from, tensor, static_cast<int>(c_.partitions.size())))
        return concat("an alternative does not write the result ", name(tensor));
    }
    return {};
  }

  const TrainingGraph& training_;
  const Graph& graph_;
  const Candidates& c_;
  std::vector<OperatorId> producers_;
  std::vector<int> choice_point_of_;  // per operator; kNoIndex: a statistic that is never carried out
};

}  // namespace

Result<Done> verify(const TrainingGraph& training, const Candidates& candidates) {
  if (const Complaint complaint = Check(training, candidates).run())
    return Error::make(ErrorKind::failed, concat("invalid candidates: ", *complaint),
                       "this is a bug in Millrace: please report it with the program");
  return Done{};
}

}  // namespace millrace
