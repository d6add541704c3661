// One slice of a campaign: checks seeds in order until its time is over. Counts and failures are printed as JSON, which
// tests/campaigns/campaign.py reads. Test: tests/python/campaigns_test.py
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace millrace::campaigns {

class Report {
 public:
  void count(const std::string& what, uint64_t number = 1) { counts_[what] += number; }
  // An example of something that needs an explanation but is no failure.
  void note(uint64_t seed, const std::string& what) { notes_.push_back({seed, what}); }
  void fail(uint64_t seed, const std::string& what) { failures_.push_back({seed, what}); }

  bool failed() const { return !failures_.empty(); }
  std::string json(uint64_t next_seed) const;

 private:
  struct Remark {
    uint64_t seed = 0;
    std::string what;
  };
  static std::vector<std::map<std::string, std::string>> listed(const std::vector<Remark>& remarks);

  std::map<std::string, uint64_t> counts_;
  std::vector<Remark> notes_;
  std::vector<Remark> failures_;
};

// Checks everything that one seed stands for.
using Check = std::function<void(uint64_t seed, Report& report)>;

// One for each campaign; what many seeds share is made when it is made, or when a seed needs it.
Check random_programs();
Check planned_programs();
Check cpu_mutants();
Check cuda_mutants();
Check altered_plans();
Check altered_databases();
Check masks();

}  // namespace millrace::campaigns
