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

// x is given as "a", y is written as "a" and pinned to "b"; a second way of the part costs more.
struct Small {
  Measurements measurements;
  Selection selection;
  Small() {
    measurements.tensors = {{"x", {"a", "b"}, 0}, {"y", {"a", "b"}, 1}};
    measurements.parts = {{"p", false, {0}, {1}, {{"0", {1, 0}, 2}, {"1", {0, 1}, 9}}},
                          {"q", false, {0}, {1}, {{"0", {0, 1}, 20}}}};
    measurements.sites = {{{{0}, {1}}}};
    measurements.conversions = {{0, 0, 1, 1}, {0, 1, 0, 1}, {1, 0, 1, 3}};
    const Result<Selection> selected = select(measurements, SelectMethod::exact);
    if (selected) selection = *selected;
  }
};

TEST(VerifySelection, AcceptsWhatIsRight) {
  const Small small;
  EXPECT_EQ(complaint(small.measurements, small.selection), "accepted");
  EXPECT_EQ(small.selection.cost, 6);
  EXPECT_EQ(small.selection.conversions.size(), 2U);
}

TEST(VerifySelection, RejectsWhatIsWrong) {
  const auto rejected = [](auto change, const std::string& why) {
    Small small;
    change(small.selection);
    const std::string text = complaint(small.measurements, small.selection);
    EXPECT_NE(text.find(why), std::string::npos) << why << "\n" << text;
  };
  rejected([](Selection& s) { s.alternatives.clear(); }, "one alternative a site");
  rejected([](Selection& s) { s.alternatives[0] = 2; }, "no such alternative");
  rejected([](Selection& s) { s.alternatives[0] = 1; }, "its parts are not those");
  rejected([](Selection& s) { s.parts.clear(); }, "its parts are not those");
  rejected([](Selection& s) { s.parts.push_back(s.parts[0]); }, "its parts are not those");
  rejected([](Selection& s) { s.parts[0].part = -1; }, "its parts are not those");
  rejected([](Selection& s) { s.parts[0].way = 2; }, "no such way");
  rejected([](Selection& s) { s.parts[0].way = -1; }, "no such way");
  rejected([](Selection& s) { s.parts[0].way = 1; }, "not converted to just");
  rejected([](Selection& s) { s.conversions.pop_back(); }, "not converted to just");
  rejected([](Selection& s) { s.conversions.push_back(s.conversions[0]); }, "converted twice alike");
  rejected([](Selection& s) { s.conversions[0].tensor = 7; }, "not there");
  rejected([](Selection& s) { s.conversions[0].seconds = 0; }, "not measured");
  rejected([](Selection& s) { s.conversions[0] = {0, 1, 0, 1}; }, "does not lie in");
  rejected([](Selection& s) { s.cost = 5; }, "cost");
  rejected([](Selection& s) { s.cost = std::numeric_limits<double>::quiet_NaN(); }, "cost");
  rejected([](Selection& s) { s.bound = 1; }, "its bound is");
}

// Any other way, alternative or conversion than the selected one no longer adds up or fits.
TEST(VerifySelection, RejectsMutationsOfRandomSelections) {
  int mutations = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Measurements measurements = random_measurements(seed);
    const Result<Selection> selected = select(measurements, SelectMethod::exact);
    if (!selected) continue;
    for (size_t k = 0; k < selected->parts.size(); ++k) {
      const auto& ways = measurements.parts[static_cast<size_t>(selected->parts[k].part)].ways;
      const MeasuredWay& own = ways[static_cast<size_t>(selected->parts[k].way)];
      for (size_t w = 0; w < ways.size(); ++w) {
        if (ways[w].seconds == own.seconds) continue;
        Selection changed = *selected;
        changed.parts[k].way = static_cast<int>(w);
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
