#include "candidates/choice_points.h"

#include <algorithm>
#include <map>
#include <set>

namespace millrace {
namespace {

constexpr size_t kMostCovers = 4096;  // that are looked at to find them, where products or attentions absorb others

// What is taken or left as one: a partition, or several.
struct Choice {
  std::vector<int> partitions;
  std::vector<OperatorId> operators;
};

class ChoicePointFinder {
 public:
  ChoicePointFinder(const std::vector<PartitionCandidates>& partitions, const std::vector<FusedOperator>& groups,
                    const ChoicePointRules& rules)
      : partitions_(partitions), groups_(groups), rules_(rules) {}

  std::vector<ChoicePoint> run() {
    std::map<size_t, std::vector<Choice>> choices;
    for (Choice& choice : all_choices())
      choices[choice_point_of(choice.operators.front())].push_back(std::move(choice));
    std::vector<ChoicePoint> choice_points;
    for (auto& [number, of_choice_point] : choices) choice_points.push_back(find(number, of_choice_point));
    return choice_points;
  }

 private:
  const Partition& partition(int number) const { return partitions_[static_cast<size_t>(number)].partition; }
  size_t choice_point_of(OperatorId op) const { return rules_.choice_point_of[op.at()]; }

  std::vector<Choice> all_choices() const {
    std::map<std::string, int> numbers;
    for (size_t k = 0; k < partitions_.size(); ++k) numbers[partitions_[k].partition.name] = static_cast<int>(k);
    std::vector<Choice> bundles;
    std::set<int> bundled;
    for (const std::vector<std::string>& names : rules_.bundles) {
      Choice choice;
      bool whole = true;  // a partition may have been dropped
      for (const std::string& name : names) {
        const auto found = numbers.find(name);
        whole = whole && found != numbers.end();
        if (found == numbers.end()) continue;
        choice.partitions.push_back(found->second);
        bundled.insert(found->second);
        const std::vector<OperatorId>& operators = partition(found->second).operators;
        choice.operators.insert(choice.operators.end(), operators.begin(), operators.end());
      }
      if (whole) bundles.push_back(std::move(choice));
    }
    std::vector<Choice> choices;
    for (int k = 0; k < static_cast<int>(partitions_.size()); ++k) {
      if (!bundled.contains(k)) choices.push_back({{k}, partition(k).operators});
    }
    choices.insert(choices.end(), bundles.begin(), bundles.end());
    return choices;
  }

  ChoicePoint find(size_t number, std::vector<Choice>& choices) const {
    // Larger partitions first: the first cover is the fused one, with contractions apart.
    std::stable_sort(choices.begin(), choices.end(), [&](const Choice& l, const Choice& r) {
      return partition(l.partitions.front()).members.size() > partition(r.partitions.front()).members.size();
    });
    std::set<OperatorId> operators;
    bool many = false;
    for (const Choice& choice : choices) {
      operators.insert(choice.operators.begin(), choice.operators.end());
      many = many || std::any_of(choice.partitions.begin(), choice.partitions.end(), [&](int k) {
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
    std::vector<std::vector<int>> covers;
    cover(choices, {operators.begin(), operators.end()}, many ? kMostCovers : kMostAlternatives, chosen, done, covers);
    ChoicePoint found;
    for (std::vector<int>& alternative : covers) {
      if (std::any_of(kernels.begin(), kernels.end(), [&](const auto* group) { return mixes(*group, alternative); }))
        continue;
      std::sort(alternative.begin(), alternative.end());
      found.alternatives.push_back(std::move(alternative));
    }
    if (found.alternatives.size() > kMostAlternatives) {  // the default, and those of fewest launches
      std::stable_sort(std::next(found.alternatives.begin()), found.alternatives.end(),
                       [](const auto& l, const auto& r) { return l.size() < r.size(); });
      found.alternatives.resize(kMostAlternatives);
    }
    return found;
  }

  // All ways to choose partitions that carry out each operator of the choice point once, of optional ones at most once.
  void cover(const std::vector<Choice>& choices, const std::vector<OperatorId>& operators, size_t most,
             std::vector<int>& chosen, std::set<OperatorId>& done, std::vector<std::vector<int>>& covers) const {
    if (covers.size() >= most) return;
    const auto next =
        std::find_if(operators.begin(), operators.end(), [&](OperatorId op) { return !done.contains(op); });
    if (next == operators.end()) {
      covers.push_back(chosen);
      return;
    }
    for (const Choice& choice : choices) {
      if (!has(choice.operators, *next) || std::any_of(choice.operators.begin(), choice.operators.end(),
                                                       [&](OperatorId op) { return done.contains(op); }))
        continue;
      chosen.insert(chosen.end(), choice.partitions.begin(), choice.partitions.end());
      done.insert(choice.operators.begin(), choice.operators.end());
      cover(choices, operators, most, chosen, done, covers);
      for (const OperatorId op : choice.operators) done.erase(op);
      chosen.resize(chosen.size() - choice.partitions.size());
    }
  }

  // A kernel is either fused or all of its members are apart: between the two lies nothing worth measuring. Either all
  // of it that epilogues can absorb is absorbed, or nothing; and what products leave of it is fused.
  bool mixes(const FusedOperator& group, const std::vector<int>& alternative) const {
    size_t fused = 0;
    size_t apart = 0;
    bool absorbed = false;
    bool added = false;
    bool left = false;  // could have been absorbed
    for (const int number : alternative) {
      const Partition& one = partition(number);
      const std::vector<OperatorId> of_group = common(one.operators, group.members);
      if (of_group.empty()) continue;
      if (one.product.has_epilogue()) {
        absorbed = true;
      } else {
        left = left || !common(of_group, rules_.absorbable).empty();
      }
      added = added || one.product.adds();
      if (!one.members.empty()) ++(one.members.size() > 1 ? fused : apart);
    }
    return (fused > 0 && apart > 0) || (absorbed && left) || ((absorbed || added) && apart > 1);
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
