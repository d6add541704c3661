// Candidates as they are found are valid, and each violation is reported.
#include "candidates/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/sanitized.h"
#include "base/text.h"
#include "candidates/enumerate.h"
#include "candidates/stacked_program.h"
#include "fusion/fusion_text.h"
#include "fusion/predicates.h"
#include "fusion/row_statistics.h"
#include "random/generator.h"

namespace millrace {
namespace {

EnumerateOptions options_of(const char* device) {
  EnumerateOptions options;
  options.threads = 2;
  options.libraries = {GemmLibrary::openblas};
  if (std::string(device) == "gpu") {
    options.target = gpu_target();
    options.libraries = {GemmLibrary::cublaslt};
  }
  options.most = 50;
  return options;
}

std::string complaint_about(const TrainingGraph& training, const Candidates& candidates) {
  const Result<Done> done = verify(training, candidates);
  return done ? "" : to_string(done.error());
}

TEST(VerifyCandidates, OfModelsAreValid) {
  for (const char* const model : {"bert_encoder", "gpt2_block_unpacked"}) {
    const TrainingGraph training = training_of_model(model);
    for (const char* const device : {"cpu", "gpu"}) {
      const Result<Candidates> found = find_partitions(training, fuse(training), options_of(device));
      ASSERT_TRUE(found) << to_string(found.error());
      EXPECT_EQ(complaint_about(training, *found), "") << model << " on a " << device;
    }
  }
}

TEST(VerifyCandidates, OfFusedAttentionAreValid) {
  for (const char* const model : {"bert_encoder", "gpt2_block_unpacked"}) {
    const Recomputed made = add_row_statistics(save_predicates(training_of_model(model), true));
    const Result<Candidates> found = find_partitions(made.training, made.fused, options_of("gpu"));
    ASSERT_TRUE(found) << to_string(found.error());
    ASSERT_TRUE(std::any_of(found->partitions.begin(), found->partitions.end(), [](const PartitionCandidates& one) {
      return one.partition.kind == PartitionKind::attention;
    }));
    EXPECT_EQ(complaint_about(made.training, *found), "") << model;
  }
}

TEST(VerifyCandidates, OfRandomProgramsAreValid) {
  for (uint64_t seed = 0; seed < tried_of(30); ++seed) {
    const TrainingGraph training = training_of(random_programs::random_program(seed));
    for (const char* const device : {"cpu", "gpu"}) {
      const Result<Candidates> found = enumerate(training, fuse(training), options_of(device));
      ASSERT_TRUE(found) << to_string(found.error());
      EXPECT_EQ(complaint_about(training, *found), "") << "seed " << seed << " on a " << device;
    }
  }
}

class Violations : public testing::Test {
 protected:
  void SetUp() override {
    Result<Candidates> found = enumerate(training_, fuse(training_), options_of("gpu"));
    ASSERT_TRUE(found) << to_string(found.error());
    right_ = std::move(*found);
    ASSERT_EQ(complaint_about(training_, right_), "");
  }

  // Changes a valid copy, and expects a complaint that contains `text`.
  template <class Change>
  void expect(const std::string& text, Change change) {
    Candidates wrong = right_;
    change(wrong);
    const std::string complaint = complaint_about(training_, wrong);
    EXPECT_NE(complaint.find(text), std::string::npos) << "'" << complaint << "' lacks '" << text << "'";
    EXPECT_NE(complaint.find("invalid candidates: "), std::string::npos) << complaint;
  }

  size_t first(PartitionKind kind) const {
    for (size_t k = 0; k < right_.partitions.size(); ++k) {
      const PartitionCandidates& one = right_.partitions[k];
      if (one.partition.kind == kind && !one.partition.members.empty() && !one.candidates.empty()) return k;
    }
    ADD_FAILURE() << "no such partition";
    return 0;
  }

  // Gives the partitions of `numbers` the numbers 0, 1, …; drops all others.
  static void keep_only(Candidates& candidates, const std::vector<int>& numbers) {
    std::vector<PartitionCandidates> kept;
    for (const int number : numbers) kept.push_back(candidates.partitions[static_cast<size_t>(number)]);
    candidates.partitions = std::move(kept);
    for (ChoicePoint& choice_point : candidates.choice_points) {
      for (std::vector<int>& alternative : choice_point.alternatives) {
        for (int& number : alternative)
          number = static_cast<int>(std::find(numbers.begin(), numbers.end(), number) - numbers.begin());
      }
    }
  }

  // A choice point with a choice.
  static std::vector<std::vector<int>>& alternatives(Candidates& candidates) {
    return std::find_if(candidates.choice_points.begin(), candidates.choice_points.end(),
                        [](const ChoicePoint& one) { return one.alternatives.size() > 1; })
        ->alternatives;
  }

  TrainingGraph training_ = training_of(kProjections);
  Candidates right_;
};

TEST_F(Violations, OfDomains) {
  const size_t argument = training_.graph.arguments.front().at();
  expect("there is not one domain per tensor", [](Candidates& c) { c.domains.pop_back(); });
  expect(" has no layouts", [&](Candidates& c) { c.domains[argument].layouts.clear(); });
  expect(" is pinned to a layout outside", [&](Candidates& c) { c.domains[argument].pinned = 1000; });
  expect(" may be converted to a layout outside", [&](Candidates& c) { c.domains[argument].otherwise = {1000}; });
  expect("too many contiguous groups", [](Candidates& c) { c.callers_contiguous_groups = 1000; });
  expect(" is in contiguous groups twice", [&](Candidates& c) {
    c.contiguous_groups.push_back({TensorId(argument)});
    c.contiguous_groups.push_back({TensorId(argument)});
  });
}

TEST_F(Violations, OfPartitions) {
  const size_t kernel = first(PartitionKind::kernel);
  expect("two partitions are named ",
         [](Candidates& c) { c.partitions[1].partition.name = c.partitions[0].partition.name; });
  expect(" carries out no operator", [](Candidates& c) { c.partitions[0].partition.operators.clear(); });
  expect(" one index map per member", [&](Candidates& c) { c.partitions[kernel].partition.index_of.pop_back(); });
}

TEST_F(Violations, OfCandidates) {
  const size_t kernel = first(PartitionKind::kernel);
  const size_t product = first(PartitionKind::contraction);
  const auto one = [](size_t partition, const auto& change) {
    return [partition, change](Candidates& c) { change(c.partitions[partition].candidates.back()); };
  };
  expect("does not have one layout per tensor", one(kernel, [](Candidate& c) { c.layouts.pop_back(); }));
  expect(" in a layout outside its domain", one(kernel, [](Candidate& c) { c.layouts.front() = 1000; }));
  expect(" in a layout outside its domain", one(product, [](Candidate& c) { c.layouts.back() = -1; }));
  expect("has no valid estimate", one(kernel, [](Candidate& c) { c.estimate = -1; }));
  expect("does not loop over each index once",
         one(kernel, [](Candidate& c) { std::get<KernelConfig>(c.config).loops.pop_back(); }));
  expect("has a vector along no index",
         one(kernel, [](Candidate& c) { std::get<KernelConfig>(c.config).vector = 99; }));
  expect("has an index twice in m, n and k", one(product, [](Candidate& c) {
           auto& gemm = std::get<GemmConfig>(c.config);
           gemm.m = gemm.k;
           gemm.k.push_back(99);
         }));
  expect("is a product, but its partition is not a contraction",
         one(kernel, [](Candidate& c) { c.config = GemmConfig(); }));
  expect("is an attention config, but its partition is not an attention",
         one(kernel, [](Candidate& c) { c.config = AttentionConfig(); }));
}

TEST_F(Violations, OfPinnedLayouts) {
  for (const bool written : {false, true}) {
    expect("in a layout other than the pinned one", [&](Candidates& c) {
      for (PartitionCandidates& one : c.partitions) {
        const size_t position = written ? one.partition.reads.size() : 0;
        const std::vector<TensorId> tensors = tensors_of(one.partition);
        TensorDomain& domain = c.domains[tensors[position].at()];
        if (one.candidates.empty() || domain.layouts.size() < 2) continue;
        domain.otherwise.clear();
        domain.pinned = one.candidates.back().layouts[position] == 0 ? 1 : 0;
        return;
      }
    });
  }
}

TEST_F(Violations, OfChoicePoints) {
  expect(" has no alternative", [](Candidates& c) { c.choice_points[0].alternatives.clear(); });
  expect(" has a partition twice", [](Candidates& c) {
    std::vector<int>& alternative = c.choice_points[0].alternatives[0];
    alternative.push_back(alternative[0]);
  });
  expect("or one that does not exist", [](Candidates& c) { c.choice_points[0].alternatives[0].push_back(1000); });
  expect(" is in two choice points", [](Candidates& c) { c.choice_points.push_back(c.choice_points[0]); });
  expect(" has operators of two choice points", [](Candidates& c) {
    Partition both;
    both.name = "both";
    for (const ChoicePoint& choice_point : {c.choice_points.front(), c.choice_points.back()})
      both.operators.push_back(
          c.partitions[static_cast<size_t>(choice_point.alternatives[0][0])].partition.operators.front());
    c.partitions.push_back({both, 0, {}, {}});
  });
}

TEST_F(Violations, OfOperators) {
  expect(" twice", [](Candidates& c) {
    std::vector<std::vector<int>>& all = alternatives(c);
    std::vector<int> both = all[0];
    for (const int number : all[1]) {
      if (std::find(both.begin(), both.end(), number) == both.end()) both.push_back(number);
    }
    all.push_back(both);
  });
  expect(" carry out different operators", [](Candidates& c) {
    std::vector<std::vector<int>>& all = alternatives(c);
    all.push_back(all[0]);
    all.back().pop_back();
  });
  expect("no partition carries out ", [](Candidates& c) {
    std::vector<int> dropped;
    for (const std::vector<int>& alternative : c.choice_points.back().alternatives)
      dropped.insert(dropped.end(), alternative.begin(), alternative.end());
    c.choice_points.pop_back();
    std::vector<int> kept;
    for (int number = 0; number < static_cast<int>(c.partitions.size()); ++number) {
      if (std::find(dropped.begin(), dropped.end(), number) == dropped.end()) kept.push_back(number);
    }
    keep_only(c, kept);
  });
}

TEST_F(Violations, OfOrder) {
  expect(" before it is written", [](Candidates& c) {
    std::vector<int> reversed;
    for (int number = static_cast<int>(c.partitions.size()); number > 0; --number) reversed.push_back(number - 1);
    keep_only(c, reversed);
  });
  expect(" before it is written", [&](Candidates& c) {
    for (PartitionCandidates& one : c.partitions) {
      std::vector<TensorId>& reads = one.partition.reads;
      if (one.partition.pass != Pass::forward) continue;
      for (PartitionCandidates& other : c.partitions) {
        if (other.partition.pass != Pass::backward || other.partition.writes.empty()) continue;
        one.candidates.clear();
        reads.push_back(other.partition.writes.front());
        return;
      }
    }
  });
  expect("does not write the result ", [&](Candidates& c) {
    const TensorId result = training_.graph.results.front().tensor;
    for (PartitionCandidates& one : c.partitions) {
      if (std::erase(one.partition.writes, result) > 0) one.candidates.clear();
    }
  });
}

}  // namespace
}  // namespace millrace
