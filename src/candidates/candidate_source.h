// The candidates of a partition, the most promising first. They come in groups (configs.h). A group is made only if it
// could have one of the candidates asked for; nothing lists them all. Test: tests/candidates/candidate_source_test.cpp
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "candidates/candidates.h"
#include "candidates/enumerate.h"

namespace millrace {

class ConfigGroups;

// Yields the candidates that a partition's list does not have.
class CandidateSource {
 public:
  // All arguments must outlive it.
  CandidateSource(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                  const PartitionCandidates& listed);
  ~CandidateSource();
  CandidateSource(const CandidateSource&) = delete;
  CandidateSource& operator=(const CandidateSource&) = delete;

  // The next most promising ones; fewer than `most` only if there are no others.
  std::vector<Candidate> next(size_t most);

 private:
  void find_groups();
  std::vector<Candidate> new_ones_of(size_t group);

  const Graph& graph_;
  const std::vector<TensorDomain>& domains_;
  const EnumerateOptions& options_;
  const PartitionCandidates& listed_;
  std::unique_ptr<ConfigGroups> groups_;            // null: not yet found
  std::vector<std::pair<double, size_t>> waiting_;  // bounds and numbers of groups that may have new ones; ascending
  std::unordered_set<std::string> yielded_;         // keys of those listed or yielded
};

// The sources of all partitions, made when they are needed.
class CandidateSources {
 public:
  // All arguments must outlive it.
  CandidateSources(const Graph& graph, const Candidates& listed, const EnumerateOptions& options)
      : graph_(graph), listed_(listed), options_(options) {}

  std::vector<Candidate> next(size_t partition, size_t most) {
    std::unique_ptr<CandidateSource>& source = sources_[partition];
    if (!source)
      source = std::make_unique<CandidateSource>(graph_, listed_.domains, options_, listed_.partitions[partition]);
    return source->next(most);
  }

 private:
  const Graph& graph_;
  const Candidates& listed_;
  const EnumerateOptions& options_;
  std::map<size_t, std::unique_ptr<CandidateSource>> sources_;
};

}  // namespace millrace
