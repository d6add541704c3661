// The page stays under its size limit: a whole report of the paper's BERT layer with a time for every candidate, and
// tables of any length.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "analysis/analyze.h"
#include "base/text.h"
#include "fusion/fuse.h"
#include "golden/golden.h"
#include "plan/random_plan.h"
#include "report/make_report.h"

namespace millrace {
namespace {

constexpr size_t kMostBytes = 5'000'000;

// Invented times, from that of the first candidate to twenty times that time; every eighth candidate is refused.
Exploration tried_everything(const Candidates& candidates) {
  Exploration made;
  for (const PartitionCandidates& entry : candidates.partitions) {
    made.configurations += entry.configurations;
    TriedPartition partition{entry.partition.name, {}};
    for (size_t k = 0; k < entry.candidates.size(); ++k) {
      TriedCandidate tried{print_candidate(candidates.domains, entry.partition, entry.candidates[k]), 0, "measured",
                           ""};
      if (k % 8 == 7) {
        tried.outcome = "wrong";
        tried.detail = "made up: element 12345 is 0.123456 and should be 0.654321 ± 1e-6, as is every eighth of these";
      } else {
        tried.seconds = 1e-3 * (1 + 19.0 * static_cast<double>((k * 7919) % 1000) / 1000);
      }
      made.known += 1;
      made.outcomes[tried.outcome] += 1;
      partition.tried.push_back(std::move(tried));
    }
    made.partitions.push_back(std::move(partition));
  }
  return made;
}

TEST(PageSize, BertLargeWithAllViolins) {
  PlanChoice choice;
  choice.most = 400;
  const MadePlan made = make_plan(text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/bert_encoder.py")), choice);
  const FusedGraph fused = fuse(made.training);
  const Result<Analysis> analysis = analyze(made.training, 1 << 20);
  ASSERT_TRUE(analysis);
  const Exploration exploration = tried_everything(made.candidates);
  const ReportArtefacts artefacts{made.training,     fused,       *analysis, made.candidates,
                                  made.measurements, exploration, made.plan, "a folder",
                                  "bert_encoder.py", "made up",   0,         false};
  const Document document = make_report(artefacts, measure_step(artefacts));
  const std::string html = document_html(document);
  RecordProperty("bytes", static_cast<int>(html.size()));
  EXPECT_LT(html.size(), kMostBytes);
  EXPECT_NE(html.find("picture_violins_contractions"), std::string::npos);
  EXPECT_NE(html.find("picture_violins_others"), std::string::npos);
  EXPECT_NE(html.find("table_refused"), std::string::npos);
  // The JSON has them all.
  const nlohmann::json json = nlohmann::json::parse(document_json(document));
  EXPECT_EQ(static_cast<double>(json.at("tables").at("refused").size()), exploration.outcomes.at("wrong"));
}

TEST(PageSize, LongTablesAreCutToFit) {
  Document document;
  Section section{"things", "Things", "All things.", {}};
  DataTable table{"long", "Many.", {{"name", "name", false}}, {}, false};
  for (int k = 0; k < 50'000; ++k) table.rows.push_back({Cell(concat("row ", k, std::string(500, '<')))});
  section.add(std::move(table));
  document.sections = {std::move(section)};
  const std::string html = document_html(document);
  EXPECT_LT(html.size(), kMostBytes);
  EXPECT_NE(html.find("row 99&lt;"), std::string::npos);
  EXPECT_NE(html.find("more: millrace report --csv DIR"), std::string::npos);
  EXPECT_NE(document_json(document).find("row 49999<"), std::string::npos);
}

TEST(PageSize, FoldedPicturesAreDroppedFirst) {
  Document document;
  Section section{"things", "Things", "All things.", {}};
  section.add(Picture{"one", "Shown.", "<svg><g/></svg>", false});
  section.add(Picture{"two", "Folded.", concat("<svg>", std::string(kMostBytes, ' '), "</svg>"), true});
  document.sections = {std::move(section)};
  const std::string html = document_html(document);
  EXPECT_LT(html.size(), kMostBytes);
  EXPECT_NE(html.find("picture_one"), std::string::npos);
  EXPECT_NE(html.find("millrace report --svg DIR writes it"), std::string::npos);
}

}  // namespace
}  // namespace millrace
