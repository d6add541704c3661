#include "candidates/choice_points.h"

#include <algorithm>
#include <map>
#include <set>

namespace millrace {
namespace {

constexpr size_t kMostSearched = 4096;  // alternatives examined if epilogues or attentions absorb operators

// Partitions of which either all run or none.
struct Bundle {
  std::vector<int> partitions;
  std::vector<OperatorId> operators;
};

class ChoicePointFinder {
 public:
  ChoicePointFinder(const std::vector<PartitionCandidates>& partitions, const std::vector<FusedOperator>& groups,
                    const ChoicePointRules& rules)
      : partitions_(partitions), groups_(groups), rules_(rules) {}

  std::vector<ChoicePoint> run() {
    std::map<size_t, std::vector<Bundle>> bundles;
    for (Bundle& bundle : all_bundles())
      bundles[choice_point_of(bundle.operators.front())].push_back(std::move(bundle));
    std::vector<ChoicePoint> choice_points;
    for (auto& [number, own] : bundles) choice_points.push_back(find(number, own));
    return choice_points;
  }

 private:
  const Partition& partition(int number) const { return partitions_[as_index(number)].partition; }
  size_t choice_point_of(OperatorId op) const { return rules_.choice_point_of[op.at()]; }

  std::vector<Bundle> all_bundles() const {
    std::map<std::string, int> numbers;
    for (size_t k = 0; k < partitions_.size(); ++k) numbers[partitions_[k].partition.name] = static_cast<int>(k);
    std::vector<Bundle> several;
    std::set<int> bundled;
    for (const std::vector<std::string>& names : rules_.bundles) {
      Bundle bundle;
      bool complete = true;  // a partition may have been dropped
      for (const std::string& name : names) {
        const auto found = numbers.find(name);
        complete = complete && found != numbers.end();
        if (found == numbers.end()) continue;
        bundle.partitions.push_back(found->second);
        bundled.insert(found->second);
        const std::vector<OperatorId>& operators = partition(found->second).operators;
        bundle.operators.insert(bundle.operators.end(), operators.begin(), operators.end());
      }
      if (complete) several.push_back(std::move(bundle));
    }
    std::vector<Bundle> bundles;
    for (int k = 0; k < static_cast<int>(partitions_.size()); ++k) {
      if (!bundled.contains(k)) bundles.push_back({{k}, partition(k).operators});
    }
    bundles.insert(bundles.end(), several.begin(), several.end());
    return bundles;
  }

  ChoicePoint find(size_t number, std::vector<Bundle>& bundles) const {
    // Larger partitions first: the first alternative is the fused one, with separate contractions.
    std::stable_sort(bundles.begin(), bundles.end(), [&](const Bundle& l, const Bundle& r) {
      return partition(l.partitions.front()).members.size() > partition(r.partitions.front()).members.size();
    });
    std::set<OperatorId> operators;
    bool many = false;
    for (const Bundle& bundle : bundles) {
      operators.insert(bundle.operators.begin(), bundle.operators.end());
      many = many || std::any_of(bundle.partitions.begin(), bundle.partitions.end(), [&](int k) {
               const Partition& one = partition(k);
               return one.product.has_epilogue() || one.product.adds() || one.kind == PartitionKind::attention;
             });
    }
    for (const OperatorId op : rules_.optional) operators.erase(op);
    std::vector<const FusedOperator*> kernels;
    for (const FusedOperator& group : groups_) {
      if (group.members.size() > 1 && choice_point_of(group.members.front()) == number) kernels.push_back(&group);
    }
    std::vector<int> chosen;
    std::set<OperatorId> done;
    std::vector<std::vector<int>> all;
    enumerate(bundles, {operators.begin(), operators.end()}, many ? kMostSearched : kMostAlternatives, chosen, done,
              all);
    ChoicePoint found;
    for (std::vector<int>& alternative : all) {
      if (std::any_of(kernels.begin(), kernels.end(), [&](const auto* group) { return mixes(*group, alternative); }))
        continue;
      std::sort(alternative.begin(), alternative.end());
      found.alternatives.push_back(std::move(alternative));
    }
    if (found.alternatives.size() > kMostAlternatives) {  // keep the default, and those with the fewest launches
      std::stable_sort(std::next(found.alternatives.begin()), found.alternatives.end(),
                       [](const auto& l, const auto& r) { return l.size() < r.size(); });
      found.alternatives.resize(kMostAlternatives);
    }
    return found;
  }

  // All sets of partitions that carry out each operator of the choice point once, and optional ones at most once.
  void enumerate(const std::vector<Bundle>& bundles, const std::vector<OperatorId>& operators, size_t most,
                 std::vector<int>& chosen, std::set<OperatorId>& done, std::vector<std::vector<int>>& found) const {
    if (found.size() >= most) return;
    const auto next =
        std::find_if(operators.begin(), operators.end(), [&](OperatorId op) { return !done.contains(op); });
    if (next == operators.end()) {
      found.push_back(chosen);
      return;
    }
    for (const Bundle& bundle : bundles) {
      if (!has(bundle.operators, *next) || std::any_of(bundle.operators.begin(), bundle.operators.end(),
                                                       [&](OperatorId op) { return done.contains(op); }))
        continue;
      chosen.insert(chosen.end(), bundle.partitions.begin(), bundle.partitions.end());
      done.insert(bundle.operators.begin(), bundle.operators.end());
      enumerate(bundles, operators, most, chosen, done, found);
      for (const OperatorId op : bundle.operators) done.erase(op);
      chosen.resize(chosen.size() - bundle.partitions.size());
    }
  }

  // Whether an alternative is not worth measuring. A kernel is either fused, or all of its members are separate.
  // Epilogues absorb either all of its members that they can, or none; the rest is fused.
  bool mixes(const FusedOperator& group, const std::vector<int>& alternative) const {
    size_t fused = 0;
    size_t separate = 0;
    bool absorbed = false;
    bool added = false;
    bool left = false;  // could have been absorbed
    for (const int number : alternative) {
      const Partition& one = partition(number);
      const std::vector<OperatorId> shared = common(one.operators, group.members);
      if (shared.empty()) continue;
      if (one.product.has_epilogue()) {
        absorbed = true;
      } else {
        left = left || !common(shared, rules_.absorbable).empty();
      }
      added = added || one.product.adds();
      if (!one.members.empty()) ++(one.members.size() > 1 ? fused : separate);
    }
    return (fused > 0 && separate > 0) || (absorbed && left) || ((absorbed || added) && separate > 1);
  }

  const std::vector<PartitionCandidates>& partitions_;
  const std::vector<FusedOperator>& groups_;
  const ChoicePointRules& rules_;
};

}  // namespace

bool has(const std::vector<OperatorId>& operators, OperatorId op) {
  return std::find(operators.begin(), operators.end(), op) != operators.end();
}

std::vector<OperatorId> common(const std::vector<OperatorId>& one, const std::vector<OperatorId>& other) {
  std::vector<OperatorId> both;
  std::copy_if(one.begin(), one.end(), std::back_inserter(both), [&](OperatorId op) { return has(other, op); });
  return both;
}

std::vector<ChoicePoint> find_choice_points(const std::vector<PartitionCandidates>& partitions,
                                            const std::vector<FusedOperator>& groups, const ChoicePointRules& rules) {
  return ChoicePointFinder(partitions, groups, rules).run();
}

}  // namespace millrace
