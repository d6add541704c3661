// Candidates described for people: "GEMM m=BJ n=HP k=I, OpenBLAS, 2 threads". Other programs read the compact text of
// print_candidate, which has no names. Test: tests/report/candidate_words_test.cpp
#pragma once

#include <map>
#include <string>

#include "candidates/candidates.h"

namespace millrace {

// A config of the partition, in the program's names of indices.
std::string describe(const Graph& graph, const Partition& partition, const Config& config);

// The candidates of a program. Refers to both; they must outlive it.
class CandidateWords {
 public:
  CandidateWords() = default;  // knows no partition
  CandidateWords(const Graph& graph, const Candidates& candidates);

  // The description of a candidate's compact text; that text itself if the partition is not known.
  std::string of(const std::string& partition, const std::string& candidate) const;

 private:
  const Graph* graph_ = nullptr;
  const Candidates* candidates_ = nullptr;
  std::map<std::string, const Partition*> partitions_;
};

}  // namespace millrace
