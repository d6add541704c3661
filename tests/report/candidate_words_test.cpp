#include "report/candidate_words.h"

#include <gtest/gtest.h>

#include "plan/small_plan.h"

namespace millrace {
namespace {

// A product y[B, O] = x[B, I] w[O, I] as a nest and as a product.
struct Described {
  Graph graph;
  Partition partition;

  Described() {
    for (const char* const name : {"B", "O", "in"}) graph.dims.push_back({name, 4});
    partition.kind = PartitionKind::contraction;
    for (size_t k = 0; k < graph.dims.size(); ++k) {
      partition.space.push_back({DimId(k), 4, true});
      ProductIndex index;
      index.dim = DimId(k);
      partition.product.indices.push_back(index);
    }
    partition.product.indices.emplace_back();  // counts stacked tensors
  }
};

TEST(CandidateWords, ProductsNameTheirIndicesAndTheLibrary) {
  const Described made;
  GemmConfig config{GemmLibrary::openblas, {0}, {1}, {2}, false, 2, true, {}};
  EXPECT_EQ(describe(made.graph, made.partition, config), "GEMM m=B n=O k=in, OpenBLAS, 2 threads");
  config.m = {0, 1};
  config.n = {};
  config.threads = 1;
  config.threads_over_loops = true;
  config.library = GemmLibrary::onednn;
  EXPECT_EQ(describe(made.graph, made.partition, config), "GEMM m=BO n=1 k=in, oneDNN, 1 thread over the batch");
  config.library = GemmLibrary::mkl;
  EXPECT_EQ(describe(made.graph, made.partition, config), "GEMM m=BO n=1 k=in, MKL, 1 thread over the batch");
  config.n = {3, 2};
  config.library = GemmLibrary::cublaslt;
  EXPECT_EQ(describe(made.graph, made.partition, config),
            "GEMM m=BO n=stack·in k=in, cuBLASLt, tensor cores, its own choice of algorithm");
}

TEST(CandidateWords, KernelsNameTheirLoops) {
  const Described made;
  KernelConfig config;
  config.loops = {1, 0};
  config.vector = 0;
  config.threads = 2;
  EXPECT_EQ(describe(made.graph, made.partition, config), "loops OB, vector B, 2 threads");
  config.rows = true;
  config.loops = {1, 2};
  config.vector = 2;
  config.gpu = GpuShape{4, 32, 256, 0, 0};
  EXPECT_EQ(describe(made.graph, made.partition, config),
            "loops O·in, row by row, vector in, 4 elements a thread, 32 threads a row, 256 a block");
}

TEST(CandidateWords, AnAttentionNamesItsTiles) {
  EXPECT_EQ(describe({}, {}, AttentionConfig{4, 2, 64, 2, true, false, false}),
            "fused attention, 4 warps of 32 rows, tiles of 64 columns, 2 stages, wgmma");
}

TEST(CandidateWords, EveryLaunchOfAPlanHasWords) {
  const MadePlan& made = small_plan();
  const CandidateWords words(made.training.graph, made.candidates);
  for (const PlanLaunch& launch : made.plan.launches) {
    if (launch.partition.empty()) continue;
    const std::string text = words.of(launch.partition, launch.candidate);
    EXPECT_TRUE(text.starts_with("GEMM ") || text.starts_with("loops ")) << text;
  }
  EXPECT_EQ(CandidateWords().of("softmax", "01; flat"), "01; flat");
  EXPECT_EQ(words.of("nothing of this name", "01; flat"), "01; flat");
}

}  // namespace
}  // namespace millrace
