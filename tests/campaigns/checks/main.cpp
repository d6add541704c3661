// campaign_checks CAMPAIGN SEED SECONDS [MOST]: checks seeds from SEED on for about SECONDS, at most MOST of them and
// at least one. Prints each seed before it is checked, so that a crash has one, and the outcome at the end.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "campaigns/checks/slice.h"

namespace millrace::campaigns {

std::vector<std::map<std::string, std::string>> Report::listed(const std::vector<Remark>& remarks) {
  std::vector<std::map<std::string, std::string>> list;
  for (const Remark& remark : remarks) list.push_back({{"seed", std::to_string(remark.seed)}, {"what", remark.what}});
  return list;
}

std::string Report::json(uint64_t next_seed) const {
  const nlohmann::ordered_json json = {
      {"next_seed", next_seed}, {"counts", counts_}, {"notes", listed(notes_)}, {"failures", listed(failures_)}};
  return json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

namespace {

const std::map<std::string, Check (*)()>& all() {
  static const std::map<std::string, Check (*)()> known = {
      {"random_programs", random_programs},    {"planned_programs", planned_programs}, {"cpu_mutants", cpu_mutants},
      {"cuda_mutants", cuda_mutants},          {"altered_plans", altered_plans},       {"masks", masks},
      {"altered_databases", altered_databases}};
  return known;
}

// What the tests' helpers report to GoogleTest.
std::string complaints() {
  const testing::TestResult& result = testing::UnitTest::GetInstance()->ad_hoc_test_result();
  std::string all;
  for (int k = 0; k < result.total_part_count(); ++k) all += result.GetTestPartResult(k).message();
  return all;
}

int run(const Check& check, uint64_t seed, double seconds, uint64_t most) {
  Report report;
  const double end = now() + seconds;
  const uint64_t last = seed + most;
  do {
    std::cout << "seed " << seed << std::endl;
    check(seed, report);
    if (const std::string wrong = complaints(); !wrong.empty()) report.fail(seed, wrong);
    ++seed;
  } while (!report.failed() && seed < last && now() < end);
  std::cout << report.json(seed) << std::endl;
  return 0;
}

}  // namespace
}  // namespace millrace::campaigns

int main(int argc, char** argv) {
  using namespace millrace::campaigns;
  testing::InitGoogleTest(&argc, argv);
  const auto found = argc < 4 ? all().end() : all().find(argv[1]);
  if (found == all().end()) {
    std::cerr << "usage: campaign_checks CAMPAIGN SEED SECONDS [MOST]\ncampaigns:";
    for (const auto& [name, check] : all()) std::cerr << " " << name;
    std::cerr << "\n";
    return 2;
  }
  const uint64_t most = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 1'000'000'000;
  return run(found->second(), std::strtoull(argv[2], nullptr, 10), std::atof(argv[3]), most);
}
