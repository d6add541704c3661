#include "candidates/choice_points.h"

#include <algorithm>
#include <map>
#include <set>

namespace millrace {
namespace {

constexpr size_t kMostSearched = 4096;  // alternatives examined if epilogues or attentions absorb operators

// Partitions that run all together, or not at all.
struct Bundle {
  std::vector<int> partitions;
  std::vector<OperatorId> operators;
};

constexpr size_t kNoKernel = static_cast<size_t>(-1);

class ChoicePointFinder {
 public:
  ChoicePointFinder(const std::vector<PartitionCandidates>& partitions, const std::vector<FusedOperator>& groups,
                    const ChoicePointRules& rules)
      : partitions_(partitions),
        rules_(rules),
        kernel_of_(rules.choice_point_of.size(), kNoKernel),
        absorbable_(rules.choice_point_of.size(), false) {
    for (size_t number = 0; number < groups.size(); ++number) {
      if (groups[number].members.size() < 2) continue;
      for (const OperatorId member : groups[number].members) kernel_of_[member.at()] = number;
    }
    for (const OperatorId op : rules.absorbable) absorbable_[op.at()] = true;
  }

  std::vector<ChoicePoint> run() {
    std::map<size_t, std::vector<Bundle>> bundles;
    for (Bundle& bundle : all_bundles())
      bundles[choice_point_of(bundle.operators.front())].push_back(std::move(bundle));
    std::vector<ChoicePoint> choice_points;
    for (auto& [number, own] : bundles) choice_points.push_back(find(own));
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

  // The sets of partitions that carry out each operator of a choice point once, and optional ones at most once.
  struct Search {
    std::vector<OperatorId> operators;
    std::map<OperatorId, std::vector<const Bundle*>> bundles_of;
    size_t most = 0;
    std::vector<int> chosen = {};
    std::set<OperatorId> done = {};
    std::vector<std::vector<int>> found = {};
  };

  ChoicePoint find(std::vector<Bundle>& bundles) const {
    // Larger partitions first: the first alternative is the fused one, with separate contractions.
    std::stable_sort(bundles.begin(), bundles.end(), [&](const Bundle& l, const Bundle& r) {
      return partition(l.partitions.front()).members.size() > partition(r.partitions.front()).members.size();
    });
    std::set<OperatorId> operators;
    bool many = false;
    size_t most = kMostAlternatives;
    for (const Bundle& bundle : bundles) {
      operators.insert(bundle.operators.begin(), bundle.operators.end());
      for (const int k : bundle.partitions) most = std::max(most, most_alternatives(partition(k)));
      many = many || std::any_of(bundle.partitions.begin(), bundle.partitions.end(), [&](int k) {
               const Partition& one = partition(k);
               return one.product.has_epilogue() || one.product.adds() || one.kind == PartitionKind::attention;
             });
    }
    for (const OperatorId op : rules_.optional) operators.erase(op);
    Search search{{operators.begin(), operators.end()}, {}, many ? kMostSearched : kMostAlternatives};
    for (const Bundle& bundle : bundles) {
      for (const OperatorId op : bundle.operators) {
        std::vector<const Bundle*>& own = search.bundles_of[op];
        if (own.empty() || own.back() != &bundle) own.push_back(&bundle);
      }
    }
    enumerate(search, 0);
    std::vector<std::vector<int>>& all = search.found;
    ChoicePoint found;
    for (std::vector<int>& alternative : all) {
      if (mixes(alternative)) continue;
      std::sort(alternative.begin(), alternative.end());
      found.alternatives.push_back(std::move(alternative));
    }
    if (found.alternatives.size() > most) {  // keep the default, and those with the fewest launches
      std::stable_sort(std::next(found.alternatives.begin()), found.alternatives.end(),
                       [](const auto& l, const auto& r) { return l.size() < r.size(); });
      found.alternatives.resize(most);
    }
    return found;
  }

  // Finds all sets. The operators before the position `next` are done.
  static void enumerate(Search& search, size_t next) {
    if (search.found.size() >= search.most) return;
    while (next < search.operators.size() && search.done.contains(search.operators[next])) ++next;
    if (next == search.operators.size()) {
      search.found.push_back(search.chosen);
      return;
    }
    for (const Bundle* bundle : search.bundles_of[search.operators[next]]) {
      if (std::any_of(bundle->operators.begin(), bundle->operators.end(),
                      [&](OperatorId op) { return search.done.contains(op); }))
        continue;
      search.chosen.insert(search.chosen.end(), bundle->partitions.begin(), bundle->partitions.end());
      search.done.insert(bundle->operators.begin(), bundle->operators.end());
      enumerate(search, next);
      for (const OperatorId op : bundle->operators) search.done.erase(op);
      search.chosen.resize(search.chosen.size() - bundle->partitions.size());
    }
  }

  // What an alternative does with one kernel.
  struct Use {
    size_t fused = 0;
    size_t separate = 0;
    bool absorbed = false;
    bool added = false;
    bool left = false;  // a member could have been absorbed

    // A kernel is either fused, or all of its members are separate. Epilogues absorb either all of its members that
    // they can, or none; the rest is fused.
    bool mixes() const {
      return (fused > 0 && separate > 0) || (absorbed && left) || ((absorbed || added) && separate > 1);
    }
  };

  // Whether an alternative is not worth measuring.
  bool mixes(const std::vector<int>& alternative) const {
    std::map<size_t, Use> uses;  // by kernel
    for (const int number : alternative) {
      const Partition& one = partition(number);
      std::set<size_t> kernels;
      for (const OperatorId op : one.operators) {
        if (kernel_of_[op.at()] == kNoKernel) continue;
        kernels.insert(kernel_of_[op.at()]);
        if (!one.product.has_epilogue() && absorbable_[op.at()]) uses[kernel_of_[op.at()]].left = true;
      }
      for (const size_t kernel : kernels) {
        Use& use = uses[kernel];
        use.absorbed = use.absorbed || one.product.has_epilogue();
        use.added = use.added || one.product.adds();
        if (!one.members.empty()) ++(one.members.size() > 1 ? use.fused : use.separate);
      }
    }
    return std::any_of(uses.begin(), uses.end(), [](const auto& use) { return use.second.mixes(); });
  }

  const std::vector<PartitionCandidates>& partitions_;
  const ChoicePointRules& rules_;
  std::vector<size_t> kernel_of_;  // one per operator: its group, if that has other members
  std::vector<bool> absorbable_;   // one per operator
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
