#include "measure/recall.h"

#include <map>
#include <optional>

#include "base/text.h"

namespace millrace {
namespace {

constexpr int64_t kLessons = 20'000;  // rows: enough for every config family, and read in a fraction of a second

// The trial's text: the inverse of stored_name().
std::string text_of(const MeasurementRow& row) { return row.key.candidate.substr(0, row.key.candidate.rfind(" k_")); }

}  // namespace

std::string stored_name(const KernelMaker* kernels, const Trial& trial, const Launch& launch) {
  if (launch.kernel.empty() || kernels == nullptr) return trial.text;
  return concat(trial.text, " ", kernels->name_of(launch));
}

Result<Done> Recall::lessons(PartitionClasses& into) const {
  std::vector<PartitionClasses::Learnt> learnt;
  std::set<std::string> families;  // that our own device has measured
  int64_t left = kLessons;
  const auto take = [&](const std::string& device, const auto& is_wanted) -> Result<Done> {
    const Result<std::vector<MeasurementRow>> rows = database_.latest_of(device, left);
    if (!rows) return rows.error();
    left -= static_cast<int64_t>(rows->size());
    for (const MeasurementRow& row : *rows) {
      const std::optional<Lesson> lesson = row.outcome == Outcome::measured ? parse_lesson(row.detail) : std::nullopt;
      if (lesson && is_wanted(*lesson)) learnt.push_back({*lesson, row.seconds});
    }
    return Done{};
  };
  if (Result<Done> own = take(devices_.own, [](const Lesson&) { return true; }); !own) return own;
  for (const PartitionClasses::Learnt& each : learnt) families.insert(each.lesson.family);
  for (const std::string& device : devices_.similar) {
    if (left <= 0 || device == devices_.own) continue;
    const auto is_new = [&](const Lesson& lesson) { return !families.contains(lesson.family); };
    if (Result<Done> similar = take(device, is_new); !similar) return similar;
  }
  into.learn(learnt);
  return Done{};
}

Result<Done> Recall::conversions(const std::vector<TensorDomain>& domains, ConversionTrials& into) const {
  for (const EqualTensors& equal : into.equal_tensors()) {
    const Result<std::vector<MeasurementRow>> rows = database_.all_of(devices_.own, {equal.text});
    if (!rows) return rows.error();
    for (const MeasurementRow& row : *rows) {
      const std::optional<Candidate> candidate = parse_candidate(domains, equal.partition, text_of(row));
      if (candidate && candidate->layouts[0] != candidate->layouts[1])
        into.add(equal.tensors.front(), candidate->layouts[0], candidate->layouts[1]);
    }
  }
  return Done{};
}

// Candidates that an earlier run listed and tried.
bool Recall::add_unlisted(size_t partition_class, const RowsByText& rows, const std::vector<TensorDomain>& domains,
                          PartitionClasses& into) const {
  const PartitionClass& its_class = into.all()[partition_class];
  if (!configs_under_ || its_class.members.empty()) return false;
  const size_t before = its_class.trials.size();
  const size_t number = its_class.members.front();
  const Partition& partition = into.partition(number);
  std::map<std::vector<int>, std::vector<Candidate>> under;
  for (const auto& [text, row] : rows) {
    if (its_class.numbers.contains(text)) continue;
    const std::optional<Candidate> candidate = parse_candidate(domains, partition, text);
    if (!candidate || !into.fits(partition, *candidate)) continue;
    const auto [known, fresh] = under.try_emplace(candidate->layouts);
    if (fresh) known->second = configs_under_(partition, candidate->layouts);
    for (const Candidate& each : known->second) {
      if (each.config == candidate->config) into.add_recalled(number, each);
    }
  }
  return its_class.trials.size() > before;
}

Result<Done> Recall::outcomes(const std::vector<TensorDomain>& domains, Refinements& refinements,
                              PartitionClasses& into) {
  std::vector<std::string> texts;
  for (const PartitionClass& each : into.all()) {
    if (looked_up_.insert(each.text).second) texts.push_back(each.text);
  }
  const Result<std::vector<MeasurementRow>> rows = database_.all_of(devices_.own, texts);
  if (!rows) return rows.error();
  std::map<std::string, RowsByText> by_partition;
  for (const MeasurementRow& row : *rows) by_partition[row.key.partition][text_of(row)] = &row;
  for (size_t k = 0; k < into.all().size(); ++k) {
    const auto found = by_partition.find(into.all()[k].text);
    if (found == by_partition.end()) continue;
    recall_class(k, found->second, into);
    // Refinements are not candidates yet: add those that were tried.
    std::vector<std::string> tried;
    for (const auto& [text, row] : found->second) tried.push_back(text);
    const bool unlisted = add_unlisted(k, found->second, domains, into);
    if (refinements.add_tried(k, tried) || unlisted) recall_class(k, found->second, into);
  }
  return Done{};
}

void Recall::recall_class(size_t partition_class, const RowsByText& rows, PartitionClasses& into) {
  const PartitionClass& its_class = into.all()[partition_class];
  for (const auto& [text, row] : rows) {
    const auto number = its_class.numbers.find(text);
    if (number == its_class.numbers.end()) continue;
    const TrialId id{partition_class, number->second};
    const Trial& trial = into.trial(id);
    if (!is_repeatable(row->outcome)) continue;  // it is tried again
    if (trial.known || row->key.candidate != stored_name(kernels_, trial, into.launch_of(trial))) continue;
    into.note(id, *row);
    known_ += 1;
  }
}

}  // namespace millrace
