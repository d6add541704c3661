// The output of `millrace analyze` and `fuse` for the models must equal the files in this folder.
#include "golden/golden.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "millrace/millrace.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::string file;  // in tests/golden/
  AnalyzeOptions options;
  bool fuses = false;

  Result<std::string> text() const {
    if (!fuses) return analyze_program(options);
    FuseOptions fuse;
    fuse.program = options.program;
    fuse.format = options.format;
    return fuse_program(fuse);
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const fs::directory_entry& entry : fs::directory_iterator(concat(MILLRACE_SOURCE_DIR, "/models"))) {
    if (entry.path().extension() != ".py") continue;
    const std::string model = entry.path().stem().string();
    AnalyzeOptions options;
    options.program.path = entry.path().string();
    if (model == "bert_encoder") all.push_back({"bert_encoder_paper_table.txt", options});
    all.push_back({model + "_fused.txt", options, true});
    if (model == "gpt2_block") {
      all.push_back({"gpt2_block_fused_json.txt", options, true});
      all.back().options.format = Format::json;
    }
    options.program.sizes = {"tiny"};
    all.push_back({model + "_table.txt", options});
    options.format = Format::graph;
    all.push_back({model + "_graph.txt", options});
  }
  return all;
}

TEST(Golden, OutputForModelsEqualsTheirFiles) {
  const std::vector<Case> all = cases();
  ASSERT_GE(all.size(), 59U)
      << "19 models, a graph, a table and the groups each, the paper's table, and groups as JSON";
  for (const Case& one : all) {
    const Result<std::string> text = one.text();
    ASSERT_TRUE(text) << to_string(text.error());
    EXPECT_TRUE(matches_file(*text, "golden/" + one.file, "Golden"));
  }
}

TEST(Golden, EveryFileBelongsToAModel) {
  std::set<std::string> known;
  for (const Case& one : cases()) known.insert(one.file);
  for (const fs::directory_entry& entry : fs::directory_iterator(concat(MILLRACE_SOURCE_DIR, "/tests/golden"))) {
    if (entry.path().extension() != ".txt") continue;
    EXPECT_TRUE(known.contains(entry.path().filename().string())) << entry.path() << " is left over";
  }
}

TEST(Golden, ADifferenceIsShownWithTheLinesAroundIt) {
  EXPECT_EQ(difference("a\nb\nc\nd\ne\nf\ng", "a\nb\nc\nX\ne\nf\ng\nh"), " b\n c\n-d\n+X\n e\n f\n g\n+h\n");
  EXPECT_EQ(difference("1\n2\n3\n4\n5\n6\n7", "0\n2\n3\n4\n5\n6\n8"), "-1\n+0\n 2\n 3\n@@\n 5\n 6\n-7\n+8\n");
  EXPECT_EQ(difference("same", "same"), "");
}

TEST(Golden, AMissingFileIsADifference) {
  if (std::getenv("MILLRACE_UPDATE_GOLDEN") != nullptr) GTEST_SKIP() << "it would be made";
  EXPECT_FALSE(matches_file("text", "golden/absent.txt", "Golden"));
}

}  // namespace
}  // namespace millrace
