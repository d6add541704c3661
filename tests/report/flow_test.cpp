#include "report/html/flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/report_sample.h"

namespace millrace {
namespace {

size_t pieces(const Flow& flow) {
  return static_cast<size_t>(
      std::count_if(flow.nodes.begin(), flow.nodes.end(), [](const FlowNode& node) { return node.piece != nullptr; }));
}

TEST(Flow, HasEveryLaunchOfAPassAndOneLinePerRead) {
  const ReportSample sample;
  const ReportArtefacts artefacts = sample.artefacts();
  const StepMetrics metrics = measure_step(artefacts);
  size_t launches = 0;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const Flow flow = flow_of(artefacts, metrics, FlowOf::launches, pass);
    launches += pieces(flow);
    for (const FlowEdge& edge : flow.edges) {
      ASSERT_LT(edge.to, flow.nodes.size());
      const std::vector<size_t>& reads = flow.nodes[edge.to].reads;
      const bool leaves = flow.nodes[edge.to].piece == nullptr;
      EXPECT_TRUE(leaves || std::find(reads.begin(), reads.end(), edge.tensor) != reads.end());
    }
  }
  EXPECT_EQ(launches, artefacts.plan.launches.size());
}

TEST(Flow, BeforeHasEveryOperator) {
  const ReportSample sample;
  const ReportArtefacts artefacts = sample.artefacts();
  const StepMetrics metrics = measure_step(artefacts);
  const Flow forward = flow_of(artefacts, metrics, FlowOf::operators, Pass::forward);
  EXPECT_GE(pieces(forward), 3U) << "product, bias, maximum";
}

TEST(Flow, DetailsHaveFactsLayoutsAndSources) {
  const ReportSample sample;
  ReportArtefacts artefacts = sample.artefacts();
  artefacts.sources.assign(artefacts.plan.launches.size(), "void kernel() {}");
  const StepMetrics metrics = measure_step(artefacts);
  const Flow flow = flow_of(artefacts, metrics, FlowOf::launches, Pass::forward);
  const nlohmann::json details = nlohmann::json::parse(flow_details(artefacts, metrics, flow));
  ASSERT_EQ(details.at("nodes").size(), flow.nodes.size());
  ASSERT_EQ(details.at("tensors").size(), flow.tensors.size());
  EXPECT_EQ(details.at("nodes")[0].at("source"), "void kernel() {}");
  EXPECT_NE(details.at("nodes")[0].dump().find("limited by"), std::string::npos);
  EXPECT_NE(details.at("tensors")[0].dump().find("layout, outermost first"), std::string::npos);
  EXPECT_NE(details.at("tensors").dump().find("B=4, I=6"), std::string::npos);
}

}  // namespace
}  // namespace millrace
