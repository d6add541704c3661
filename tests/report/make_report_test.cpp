#include "report/make_report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "report/report_sample.h"

namespace millrace {
namespace {

const DataTable* table_of(const Document& document, const std::string& id) {
  for (const Section& section : document.sections) {
    for (const Block& block : section.blocks) {
      if (block.table && block.table->id == id) return &*block.table;
    }
  }
  return nullptr;
}

bool has_column(const DataTable& table, const std::string& key) {
  return std::any_of(table.columns.begin(), table.columns.end(),
                     [&](const Column& column) { return column.key == key; });
}

TEST(MakeReport, EveryPictureHasALegend) {
  const ReportSample sample;
  const ReportArtefacts artefacts = sample.artefacts();
  const Document document = make_report(artefacts, measure_step(artefacts));
  size_t pictures = 0;
  for (const Section& section : document.sections) {
    for (const Block& block : section.blocks) {
      if (!block.picture) continue;
      ++pictures;
      EXPECT_FALSE(block.picture->legend.empty()) << block.picture->id;
    }
  }
  EXPECT_GE(pictures, 8U);
}

TEST(MakeReport, CountedBytesAndTimesInTheStepAreShownWhereTheyWereTaken) {
  const ReportSample sample;
  ReportArtefacts artefacts = sample.artefacts();
  const Document without = make_report(artefacts, measure_step(artefacts));
  EXPECT_FALSE(has_column(*table_of(without, "launches"), "counted_bytes"));
  artefacts.counted_bytes.assign(artefacts.plan.launches.size(), 4096);
  artefacts.bench_seconds.assign(artefacts.plan.launches.size(), 1e-3);
  const Document with = make_report(artefacts, measure_step(artefacts));
  EXPECT_TRUE(has_column(*table_of(with, "launches"), "counted_bytes"));
  EXPECT_TRUE(has_column(*table_of(with, "launches"), "bench_seconds"));
  EXPECT_NE(document_html(with).find("picture_predicted_launches"), std::string::npos);
}

TEST(MakeReport, SaysWhyTheStepBeforeIsSlow) {
  ReportSample sample;
  sample.plan().default_cost = 40;
  ReportArtefacts artefacts = sample.artefacts();
  artefacts.step_seconds = 1;
  const auto remark = [&] { return make_report(artefacts, measure_step(artefacts)).facts.front().remark; };
  EXPECT_EQ(remark().find("generated loop"), std::string::npos) << remark();
  artefacts.loops_before = 2;
  EXPECT_NE(remark().find("40.00 times as fast; 2 contractions of the step before are generated loops, because no "
                          "library computes them in the program's layouts"),
            std::string::npos)
      << remark();
}

TEST(MakeComparison, DifferencesComeFirstAndTheRestIsApart) {
  ReportSample a;
  ReportSample b;
  b.plan().launches[0].candidate += "!";
  b.plan().launches[0].predicted_seconds += 1;
  const ReportArtefacts artefacts = a.artefacts();
  const CandidateWords words(artefacts.training.graph, artefacts.candidates);
  const Document document = make_comparison({"a", a.plan(), 2, words}, {"b", b.plan(), 3});
  const DataTable& differing = *table_of(document, "compared_launches");
  EXPECT_TRUE(has_column(differing, "a_implementation"));
  EXPECT_EQ(differing.rows[0][5].text, words.of(a.plan().launches[0].partition, a.plan().launches[0].candidate));
  EXPECT_NE(differing.rows[0][5].text, a.plan().launches[0].candidate) << "in words";
  EXPECT_EQ(document.facts[0].key, "measured_step_seconds");
  EXPECT_EQ(document.sections[0].id, "differences");
  EXPECT_EQ(table_of(document, "compared_launches")->rows.size(), 1U);
  EXPECT_EQ(table_of(document, "same_launches")->rows.size(), a.plan().launches.size() - 1);
  EXPECT_TRUE(document.next.empty()) << document.next.front().text;
}

TEST(MakeComparison, SaysWhichTimesAreEstimates) {
  ReportSample a;
  ReportSample b;
  a.plan().launches[0].candidate += "!";
  a.plan().launches[0].estimated = true;
  const Document document = make_comparison({"a", a.plan(), 2}, {"b", b.plan(), 3});
  ASSERT_EQ(document.next.size(), 1U);
  EXPECT_NE(document.next[0].text.find(concat("1 of the ", a.plan().launches.size(), " launches of A")),
            std::string::npos);
  const DataTable& differing = *table_of(document, "compared_launches");
  EXPECT_EQ(differing.rows[0][1].text.front(), '~');
  EXPECT_NE(differing.rows[0][2].text.front(), '~');
  EXPECT_TRUE(std::none_of(document.facts.begin(), document.facts.end(),
                           [](const Fact& fact) { return fact.key == "bound_seconds"; }));
}

TEST(MakeComparison, WarnsWhenThePlansAreNotComparable) {
  ReportSample a;
  ReportSample b;
  b.plan().program.text += "# changed\n";
  Document document = make_comparison({"a", a.plan(), 2}, {"b", b.plan(), 3});
  ASSERT_FALSE(document.next.empty());
  EXPECT_NE(document.next[0].text.find("Warning: these are plans of different programs"), std::string::npos);
  b.plan().program = a.plan().program;
  b.plan().program.sizes = {"B=8"};
  document = make_comparison({"a", a.plan(), 0}, {"b", b.plan(), 3});
  EXPECT_NE(document.next[0].text.find("different sizes"), std::string::npos);
  EXPECT_NE(document.next.back().text.find("millrace bench PLAN --json > PLAN/times.json"), std::string::npos);
}

}  // namespace
}  // namespace millrace
