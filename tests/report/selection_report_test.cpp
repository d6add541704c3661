#include "report/selection_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millrace {
namespace {

struct Example {
  Measurements measurements;
  Selection selection;
  Example() {
    measurements.tensors = {{"x", {"bj", "jb"}, 0}, {"y", {"bj", "jb"}}, {"dx", {"bj"}, 0}};
    measurements.partitions = {{"Q", false, {0}, {1}, {{"gemm nt", {1, 0}, 10e-6}}},
                               {"Q stacked", false, {0}, {1}, {{"gemm nn", {1, 1}, 7.5e-6}}},
                               {"Q dX", true, {1}, {2}, {{"gemm tn", {1, 0}, 20e-6}}}};
    measurements.choice_points = {{{{0}, {1}}}, {{{2}}}};
    measurements.conversions = {{0, 0, 1, 2.5e-6}};
    selection.alternatives = {1, 0};
    selection.partitions = {{1, 0}, {2, 0}};
    selection.conversions = {{0, 0, 1, 2.5e-6}};
    selection.cost = 30e-6;
    selection.bound = 27.5e-6;
    selection.lower_bound = 30e-6;
    selection.proven = true;
  }
};

TEST(SelectionReport, Text) {
  const Example example;
  EXPECT_EQ(selection_text(example.measurements, example.selection, 100), R"(forward      candidate      time
  Q stacked  gemm nn     7.50 µs
      x jb → y jb

backward     candidate      time
  Q dX       gemm tn    20.00 µs
      y jb → dx bj

conversions  from  to     time
  x          bj    jb  2.50 µs

alternatives that differ from the default
  Q stacked
      instead of Q

in total                            time
  cost of a step                30.00 µs
  lower bound, layouts ignored  27.50 µs
  gap                             9.09 %

Optimal (proven): no selection of these measurements costs less.
)");
}

TEST(SelectionReport, SaysHowFarFromTheOptimum) {
  Example example;
  example.selection.proven = false;
  example.selection.lower_bound = 29e-6;
  const std::string text = selection_text(example.measurements, example.selection, 100);
  EXPECT_NE(text.find("Found in the time given: within 3.45 % of the optimum (proven)."), std::string::npos) << text;
  const auto json = nlohmann::json::parse(selection_json(example.measurements, example.selection));
  EXPECT_EQ(json["proven"], false);
  EXPECT_NEAR(json["proven_gap"].get<double>(), 30.0 / 29 - 1, 1e-12);
  EXPECT_EQ(json["lower_bound"], 29e-6);
  example.selection.method = SelectMethod::sssp;
  const std::string path = selection_text(example.measurements, example.selection, 100);
  EXPECT_NE(path.find("shortest path: within 3.45 % of the optimum (proven)."), std::string::npos) << path;
}

TEST(SelectionReport, Json) {
  const Example example;
  const auto json = nlohmann::json::parse(selection_json(example.measurements, example.selection));
  EXPECT_EQ(json["schema_version"], 2);
  EXPECT_EQ(json["method"], "exact");
  EXPECT_EQ(json["proven"], true);
  EXPECT_NEAR(json["gap"].get<double>(), 30 / 27.5 - 1, 1e-12);
  EXPECT_EQ(json["partitions"][0]["reads"][0], (nlohmann::json{{"tensor", "x"}, {"layout", "jb"}}));
  EXPECT_EQ(json["partitions"][1]["pass"], "backward");
  EXPECT_EQ(json["conversions"][0]["to"], "jb");
  EXPECT_EQ(json["alternatives"][0]["partitions"][0], "Q stacked");
}

}  // namespace
}  // namespace millrace
