#include "select/verify.h"

#include <gtest/gtest.h>

#include <limits>

#include "select/random_measurements.h"
#include "select/select.h"

namespace millrace {
namespace {

std::string complaint(const Measurements& measurements, const Selection& selection) {
  const Result<Done> verified = verify(measurements, selection);
  return verified ? "accepted" : to_string(verified.error());
}

// x is given as "a", y is written as "a" and pinned to "b"; a second candidate of the partition costs more.
struct Small {
  Measurements measurements;
  Selection selection;
  Small() {
    measurements.tensors = {{"x", {"a", "b"}, 0}, {"y", {"a", "b"}, 1}};
    measurements.partitions = {{"p", false, {0}, {1}, {{"0", {1, 0}, 2}, {"1", {0, 1}, 9}}},
                               {"q", false, {0}, {1}, {{"0", {0, 1}, 20}}}};
    measurements.choice_points = {{{{0}, {1}}}};
    measurements.conversions = {{0, 0, 1, 1}, {0, 1, 0, 1}, {1, 0, 1, 3}};
    const Result<Selection> selected = select(measurements, SelectMethod::exact);
    if (selected) selection = *selected;
  }
};

TEST(VerifySelection, AcceptsValidSelections) {
  const Small small;
  EXPECT_EQ(complaint(small.measurements, small.selection), "accepted");
  EXPECT_EQ(small.selection.cost, 6);
  EXPECT_EQ(small.selection.conversions.size(), 2U);
}

TEST(VerifySelection, RejectsInvalidSelections) {
  const auto rejected = [](auto change, const std::string& why) {
    Small small;
    change(small.selection);
    const std::string text = complaint(small.measurements, small.selection);
    EXPECT_NE(text.find(why), std::string::npos) << why << "\n" << text;
  };
  rejected([](Selection& s) { s.alternatives.clear(); }, "one alternative per choice point");
  rejected([](Selection& s) { s.alternatives[0] = 2; }, "no such alternative");
  rejected([](Selection& s) { s.alternatives[0] = 1; }, "its partitions are not those");
  rejected([](Selection& s) { s.partitions.clear(); }, "its partitions are not those");
  rejected([](Selection& s) { s.partitions.push_back(s.partitions[0]); }, "its partitions are not those");
  rejected([](Selection& s) { s.partitions[0].partition = -1; }, "its partitions are not those");
  rejected([](Selection& s) { s.partitions[0].candidate = 2; }, "no such candidate");
  rejected([](Selection& s) { s.partitions[0].candidate = -1; }, "no such candidate");
  rejected([](Selection& s) { s.partitions[0].candidate = 1; }, "not converted to exactly");
  rejected([](Selection& s) { s.conversions.pop_back(); }, "not converted to exactly");
  rejected([](Selection& s) { s.conversions.push_back(s.conversions[0]); }, "same conversion twice");
  rejected([](Selection& s) { s.conversions[0].tensor = 7; }, "unknown tensor");
  rejected([](Selection& s) { s.conversions[0].seconds = 0; }, "not measured");
  rejected([](Selection& s) { s.conversions[0] = {0, 1, 0, 1}; }, "does not have");
  rejected([](Selection& s) { s.cost = 5; }, "cost");
  rejected([](Selection& s) { s.cost = std::numeric_limits<double>::quiet_NaN(); }, "cost");
  rejected([](Selection& s) { s.bound = 1; }, "its bound is");
  rejected([](Selection& s) { s.lower_bound = 1; }, "its lower bound");
  rejected([](Selection& s) { s.lower_bound = 7; }, "its lower bound");
  rejected([](Selection& s) { s.lower_bound = std::numeric_limits<double>::quiet_NaN(); }, "its lower bound");
  rejected([](Selection& s) { s.lower_bound = 5; }, "not as cheap as its lower bound");
}

// Any other candidate, alternative or conversion than the selected one no longer adds up or fits.
TEST(VerifySelection, RejectsMutationsOfRandomSelections) {
  int mutations = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Measurements measurements = random_measurements(seed);
    const Result<Selection> selected = select(measurements, SelectMethod::exact);
    if (!selected) continue;
    for (size_t k = 0; k < selected->partitions.size(); ++k) {
      const auto& candidates =
          measurements.partitions[static_cast<size_t>(selected->partitions[k].partition)].candidates;
      const MeasuredCandidate& own = candidates[static_cast<size_t>(selected->partitions[k].candidate)];
      for (size_t w = 0; w < candidates.size(); ++w) {
        if (candidates[w].seconds == own.seconds) continue;
        Selection changed = *selected;
        changed.partitions[k].candidate = static_cast<int>(w);
        EXPECT_FALSE(verify(measurements, changed)) << seed;
        ++mutations;
      }
    }
    for (size_t k = 0; k < selected->conversions.size(); ++k) {
      Selection changed = *selected;
      changed.cost -= changed.conversions[k].seconds;
      changed.conversions.erase(changed.conversions.begin() + static_cast<std::ptrdiff_t>(k));
      EXPECT_FALSE(verify(measurements, changed)) << seed;
      ++mutations;
    }
  }
  EXPECT_GT(mutations, 1000);
}

}  // namespace
}  // namespace millrace
