// The tables of an elimination as a smaller problem.
#include <map>
#include <set>

#include "base/id.h"
#include "select/eliminator.h"

namespace millrace {
namespace {

// What a row of a table needs, as a candidate of a partition: the layouts that are read, then those that are written.
struct RowNeeds {
  ProblemPartition partition;
  ProblemCandidate candidate;
};

}  // namespace

// Keeps the candidates that a leaf still has a row for.
static void keep_rows(std::vector<ProblemCandidate>& candidates, const UsageTable& leaf) {
  std::set<int> rows;
  for (const auto& [candidate, unused] : leaf.origin) rows.insert(candidate);
  std::erase_if(candidates, [&](const ProblemCandidate& candidate) { return !rows.contains(candidate.candidate); });
}

static RowNeeds needs_of(const UsageTable& table, size_t row, const std::vector<Usages>& usages) {
  RowNeeds needs;
  needs.candidate.seconds = table.cost[row];
  for (size_t k = 0; k < table.tensors.size(); ++k) {
    for (const int l : usages[table.tensors[k]][table.row(row)[k]].read) {
      needs.partition.tensors.push_back(table.tensors[k]);
      needs.candidate.layouts.push_back(l);
    }
  }
  needs.partition.reads = needs.partition.tensors.size();
  for (size_t k = 0; k < table.tensors.size(); ++k) {
    const int base = usages[table.tensors[k]][table.row(row)[k]].base;
    if (base < 0) continue;
    needs.partition.tensors.push_back(table.tensors[k]);
    needs.candidate.layouts.push_back(base);
  }
  return needs;
}

// Rows with equal needs (the same tensors, equally many layouts of each) are the candidates of one partition, and these
// partitions are the alternatives of a choice point.
void Eliminator::add_candidates(Condensed& condensed, const UsageTable& table) const {
  Problem& result = condensed.problem;
  std::map<std::vector<size_t>, size_t> kinds;  // tensors by slot, then the number of reads → partition
  const size_t choice_point = result.choice_points.size();
  result.choice_points.emplace_back();
  for (size_t r = 0; r < table.rows(); ++r) {
    RowNeeds needs = needs_of(table, r, usages_);
    std::vector<size_t> kind = needs.partition.tensors;
    kind.push_back(needs.partition.reads);
    const auto [entry, fresh] = kinds.try_emplace(std::move(kind), result.partitions.size());
    if (fresh) {
      needs.partition.choice_point = choice_point;
      result.choice_points.back().push_back({result.partitions.size()});
      result.partitions.push_back(std::move(needs.partition));
      condensed.partitions.push_back({&table, {}, 0});
    }
    std::vector<size_t>& rows = condensed.partitions[entry->second].rows;
    needs.candidate.candidate = static_cast<int>(rows.size());
    rows.push_back(r);
    result.partitions[entry->second].candidates.push_back(std::move(needs.candidate));
  }
  const size_t alternatives = result.choice_points.back().size();
  result.open.emplace_back(alternatives, true);
  for (size_t a = 0; a < alternatives; ++a) {
    ProblemPartition& partition = result.partitions[result.choice_points.back()[a][0]];
    partition.in.assign(alternatives, false);
    partition.in[a] = true;
  }
}

// A choice point whose partitions are not joined stays as it is, without the candidates that are dominated.
void Eliminator::add_unjoined(Condensed& condensed, size_t choice_point) const {
  Problem& result = condensed.problem;
  std::map<size_t, size_t> numbers;  // partition → partition
  result.choice_points.emplace_back();
  result.open.push_back(problem_.open[choice_point]);
  for (const std::vector<size_t>& alternative : problem_.choice_points[choice_point]) {
    result.choice_points.back().emplace_back();
    for (const size_t p : alternative) {
      const auto [entry, fresh] = numbers.try_emplace(p, result.partitions.size());
      result.choice_points.back().back().push_back(entry->second);
      if (!fresh) continue;
      result.partitions.push_back(problem_.partitions[p]);
      keep_rows(result.partitions.back().candidates, *kept_[p]);
      result.partitions.back().choice_point = result.choice_points.size() - 1;
      condensed.partitions.push_back({nullptr, {}, p});
    }
  }
}

Condensed Eliminator::condensed() const {
  Condensed result;
  result.problem.tensors = problem_.tensors;
  for (ProblemTensor& tensor : result.problem.tensors) {
    tensor.touches.clear();
    tensor.choice_points.clear();
  }
  std::vector<UsageTable*> tables = tables_;
  std::sort(tables.begin(), tables.end(), [](const UsageTable* a, const UsageTable* b) { return a->first < b->first; });
  std::vector<bool> added(problem_.choice_points.size(), false);
  for (const UsageTable* table : tables) {
    if (table->choice_points.empty()) {
      add_candidates(result, *table);
      continue;
    }
    const size_t s = table->choice_points[0];
    if (!added[s]) add_unjoined(result, s);
    added[s] = true;
  }
  add_touches(result.problem);
  return result;
}

}  // namespace millrace
