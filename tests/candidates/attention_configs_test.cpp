// Layouts of fused attention, and how warps share its work.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "candidates/enumerate.h"
#include "candidates/row_partitions.h"
#include "fusion/fusion_text.h"
#include "fusion/predicates.h"
#include "fusion/row_statistics.h"

namespace millrace {
namespace {

struct EnumeratedAttentions {
  TrainingGraph training;
  Candidates candidates;
  std::vector<PartitionCandidates> attentions;  // forward's, then backward's, that compute no rows
};

EnumerateOptions without_libraries() {
  EnumerateOptions options;
  options.target = gpu_target();
  return options;
}

EnumeratedAttentions enumerated_attentions(const std::string& model, const std::vector<std::string>& sizes,
                                           const EnumerateOptions& options = without_libraries(),
                                           const std::string& dtype = "") {
  ProgramOptions program = with_sizes(sizes);
  if (!dtype.empty()) program.dtype = dtype_named(dtype);
  const std::string text = text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/", model, ".py"));
  const Recomputed made = add_row_statistics(save_predicates(training_of(text, program), true));
  EnumeratedAttentions found{made.training, {}, {}};
  Result<Candidates> partitions = find_partitions(made.training, made.fused, options);
  EXPECT_TRUE(partitions) << to_string(partitions.error());
  found.candidates = std::move(*partitions);
  for (const PartitionCandidates& entry : found.candidates.partitions) {
    if (entry.partition.kind != PartitionKind::attention || computes_rows(entry.partition)) continue;
    found.attentions.push_back(entry);
    find_configs(made.training.graph, found.candidates.domains, options, found.attentions.back());
  }
  EXPECT_EQ(found.attentions.size(), 2U);
  return found;
}

const std::vector<std::string> kSmall = {"tiny", "P=16", "W=16", "J=24"};

std::vector<std::string> reasons_of(const PartitionCandidates& entry) {
  std::vector<std::string> reasons;
  for (const Rejected& rejected : entry.rejected) reasons.push_back(rejected.reason);
  return reasons;
}

// The layout of one of its tensors, by the names of axes.
std::string layout_text(const EnumeratedAttentions& made, const PartitionCandidates& entry, const Candidate& candidate,
                        Attention::Operand operand) {
  const TensorId tensor = entry.partition.attention.tensors[operand];
  const std::vector<TensorId> tensors = tensors_of(entry.partition);
  const auto place = static_cast<size_t>(std::find(tensors.begin(), tensors.end(), tensor) - tensors.begin());
  return print_layout(made.training.graph, tensor,
                      layouts_of(made.candidates.domains, entry.partition, candidate)[place]);
}

TEST(AttentionConfigs, OperandsHaveOneOrder) {
  const EnumeratedAttentions made = enumerated_attentions("bert_encoder", kSmall);
  for (const PartitionCandidates& entry : made.attentions) {
    ASSERT_FALSE(entry.candidates.empty()) << entry.partition.name;
    std::set<std::string> given;
    for (const Candidate& candidate : entry.candidates) {
      const std::string q = layout_text(made, entry, candidate, Attention::q);
      given.insert(q);
      std::string k = layout_text(made, entry, candidate, Attention::k);
      std::replace(k.begin(), k.end(), 'K', 'J');
      EXPECT_EQ(q, k);
      EXPECT_TRUE(q.ends_with("P") || q.ends_with("J")) << q;
      if (!entry.partition.attention.backward) continue;
      EXPECT_EQ(layout_text(made, entry, candidate, Attention::o), layout_text(made, entry, candidate, Attention::d_o));
      EXPECT_EQ(layout_text(made, entry, candidate, Attention::log_sums), "HBJ");
    }
    EXPECT_EQ(given.size(), 12U) << entry.partition.name;  // one of two axes innermost, the others in any order
  }
}

TEST(AttentionConfigs, ContiguousRowsAreMultiplesOfEight) {
  const EnumeratedAttentions made = enumerated_attentions("bert_encoder", {"tiny", "P=16", "W=16", "J=20"});
  for (const PartitionCandidates& entry : made.attentions) {
    ASSERT_FALSE(entry.candidates.empty()) << entry.partition.name;
    for (const Candidate& candidate : entry.candidates)
      EXPECT_TRUE(layout_text(made, entry, candidate, Attention::q).ends_with("P"));
  }
}

TEST(AttentionConfigs, AreReadBackAndAreCandidates) {
  EnumerateOptions options = without_libraries();
  options.every_shape = true;
  const EnumeratedAttentions made = enumerated_attentions("bert_encoder", {"tiny", "P=64", "W=64", "J=64"}, options);
  for (const PartitionCandidates& entry : made.attentions) {
    std::set<std::string> texts;
    for (size_t k = 0; k < entry.candidates.size(); ++k) {
      const Candidate& candidate = entry.candidates[k];
      const std::string text = print_candidate(made.candidates.domains, entry.partition, candidate);
      EXPECT_TRUE(texts.insert(text).second) << text << " twice";
      const std::optional<Candidate> again = parse_candidate(made.candidates.domains, entry.partition, text);
      ASSERT_TRUE(again) << text;
      EXPECT_EQ(again->layouts, candidate.layouts);
      EXPECT_EQ(again->config, candidate.config);
      if (k % (1 + entry.candidates.size() / 20) != 0) continue;
      EXPECT_TRUE(is_candidate(made.training.graph, made.candidates.domains, entry.partition, *again)) << text;
    }
    Candidate other = entry.candidates.front();
    std::get<AttentionConfig>(other.config).warps = 3;
    EXPECT_FALSE(is_candidate(made.training.graph, made.candidates.domains, entry.partition, other));
  }
  const PartitionCandidates& forward = made.attentions.front();
  const std::string text = print_candidate(made.candidates.domains, forward.partition, forward.candidates.front());
  for (const std::string& wrong : {text + " more 1", text.substr(0, text.size() - 1) + "-1",
                                   text.substr(0, text.size() - 2), text.substr(0, text.find(';')) + "; attention"})
    EXPECT_FALSE(parse_candidate(made.candidates.domains, forward.partition, wrong)) << wrong;
  size_t others = 0;
  for (const PartitionCandidates& entry : made.candidates.partitions) {
    if (entry.partition.kind == PartitionKind::attention ||
        tensors_of(entry.partition).size() != tensors_of(forward.partition).size())
      continue;
    ++others;
    EXPECT_FALSE(parse_candidate(made.candidates.domains, entry.partition, text))
        << entry.partition.name << " is no attention";
  }
  EXPECT_GT(others, 0U);
}

TEST(AttentionConfigs, UnsupportedShapesAreRejected) {
  const auto reason = [](const std::vector<std::string>& sizes, const std::string& dtype) {
    const EnumeratedAttentions made = enumerated_attentions("bert_encoder", sizes, without_libraries(), dtype);
    for (const PartitionCandidates& entry : made.attentions) EXPECT_TRUE(entry.candidates.empty());
    return join(reasons_of(made.attentions.front()), "; ");
  };
  EXPECT_EQ(reason({"tiny"}, ""), "an attention over 4 columns: multiples of 8 up to 256 fit the tensor cores");
  EXPECT_EQ(reason(kSmall, "float32"), "an attention in float32: tensor cores take float16 and bfloat16");
}

// Masks may be stored as bits if a warp's keys are a word of bits, and it visits all keys.
TEST(AttentionConfigs, MasksMayBeStoredAsBits) {
  const auto storages = [](const std::string& model, const std::vector<std::string>& sizes) {
    std::set<std::string> found;
    const EnumeratedAttentions made = enumerated_attentions(model, sizes);
    for (const PartitionCandidates& entry : made.attentions) {
      const std::vector<TensorId> tensors = tensors_of(entry.partition);
      const auto mask = static_cast<size_t>(std::find(tensors.begin(), tensors.end(), entry.partition.attention.mask) -
                                            tensors.begin());
      for (const Candidate& candidate : entry.candidates)
        found.insert(print_layout(made.training.graph, entry.partition.attention.mask,
                                  layouts_of(made.candidates.domains, entry.partition, candidate)[mask]));
    }
    return found;
  };
  using Storages = std::set<std::string>;
  EXPECT_EQ(storages("bert_encoder", {"tiny", "P=16", "W=16", "J=32"}), (Storages{"bits", "regenerated"}));
  EXPECT_EQ(storages("bert_encoder", kSmall), Storages{"regenerated"});
  EXPECT_EQ(storages("gpt2_block_unpacked", {"tiny", "P=16", "J=32"}), (Storages{"bits", "regenerated"})) << "causal";
}

// wgmma is offered with lines of 64 elements, on GPUs that have it; if scores are masked, only with rows in shared
// memory.
TEST(AttentionConfigs, Wgmma) {
  using Kinds = std::set<std::string>;
  const auto kinds = [](const std::string& model, const std::vector<std::string>& sizes, bool has_them) {
    EnumerateOptions options = without_libraries();
    options.target.gpu->wgmma = has_them;
    Kinds found;
    for (const PartitionCandidates& entry : enumerated_attentions(model, sizes, options).attentions) {
      EXPECT_FALSE(std::get<AttentionConfig>(entry.candidates.front().config).wgmma)
          << "taken where nothing is measured";
      for (const Candidate& candidate : entry.candidates) {
        const auto& config = std::get<AttentionConfig>(candidate.config);
        EXPECT_TRUE(config.wgmma || !config.rows_in_smem);
        if (config.wgmma) found.insert(config.rows_in_smem ? "shared" : "pieces");
      }
    }
    return found;
  };
  EXPECT_EQ(kinds("bert_encoder", {"tiny", "P=64", "W=64", "J=64"}, true), (Kinds{"pieces", "shared"}));
  EXPECT_EQ(kinds("bert_encoder", {"tiny", "P=64", "W=128", "J=192"}, true), (Kinds{"pieces", "shared"}));
  EXPECT_EQ(kinds("bert_encoder", {"tiny", "P=64", "W=64", "J=64"}, false), Kinds());
  EXPECT_EQ(kinds("bert_encoder", {"tiny", "P=64", "W=80", "J=64"}, true), Kinds());
  EXPECT_EQ(kinds("bert_encoder", {"tiny", "P=64", "W=64", "J=72"}, true), Kinds{"shared"});
  EXPECT_EQ(kinds("gpt2_block_unpacked", {"tiny", "P=64", "J=64"}, true), Kinds{"shared"}) << "causal";
}

// Specialized configs as text: with more than one warpgroup of queries, where wgmma fits. Three warpgroups need narrow
// accumulators in backward; heads are split only where a group has several.
TEST(AttentionConfigs, Specialized) {
  using Texts = std::set<std::string>;
  const auto texts = [](const std::string& model, const std::vector<std::string>& sizes, size_t pass, bool has_wgmma) {
    EnumerateOptions options = without_libraries();
    options.every_shape = true;
    options.target.gpu->wgmma = has_wgmma;
    const EnumeratedAttentions made = enumerated_attentions(model, sizes, options);
    const PartitionCandidates& entry = made.attentions[pass];
    Texts found;
    for (const Candidate& candidate : entry.candidates) {
      const auto& config = std::get<AttentionConfig>(candidate.config);
      if (!config.specialized) continue;
      EXPECT_TRUE(config.wgmma && config.rows_in_smem && !config.single_kernel && config.row_tiles == 1);
      const std::string text = print_candidate(made.candidates.domains, entry.partition, candidate);
      const std::optional<Candidate> again = parse_candidate(made.candidates.domains, entry.partition, text);
      EXPECT_TRUE(again && again->config == candidate.config) << text;
      found.insert(concat(config.warps, " ", config.tile_columns, " ", config.stages,
                          config.head_splits > 1 ? concat(" split ", config.head_splits) : ""));
    }
    return found;
  };
  const std::vector<std::string> narrow = {"tiny", "P=64", "W=64", "J=128"};
  EXPECT_EQ(texts("bert_encoder", narrow, 0, true), (Texts{"12 64 3", "8 128 2", "8 128 3", "8 64 3"}));
  EXPECT_EQ(texts("bert_encoder", narrow, 1, true), (Texts{"12 64 3", "8 64 2", "8 64 3", "8 64 4"}));
  EXPECT_EQ(texts("bert_encoder", {"tiny", "P=128", "W=128", "J=128"}, 1, true), (Texts{"8 64 2", "8 64 3", "8 64 4"}));
  EXPECT_EQ(texts("bert_encoder", {"tiny", "P=64", "W=64", "J=64"}, 1, true), Texts());
  EXPECT_EQ(texts("bert_encoder", narrow, 1, false), Texts());
  const std::vector<std::string> grouped = {"tiny", "P=64", "R=4", "J=128"};
  EXPECT_EQ(texts("llama_block_without_rope", grouped, 0, true),
            (Texts{"12 128 2", "12 64 3", "8 128 2", "8 128 3", "8 64 3"}));
  EXPECT_EQ(texts("llama_block_without_rope", grouped, 1, true),
            (Texts{"12 64 3", "8 64 2", "8 64 3", "8 64 3 split 2", "8 64 3 split 4", "8 64 4"}));
}

// Backward can be one kernel if a block owns all keys, and less than twice as many rows.
TEST(AttentionConfigs, BackwardInOneKernel) {
  const auto rows_of_whole = [](const std::string& keys) {
    EnumerateOptions options = without_libraries();
    options.every_shape = true;
    std::set<int> rows;
    for (const PartitionCandidates& entry :
         enumerated_attentions("bert_encoder", {"tiny", "P=64", "W=64", keys}, options).attentions) {
      for (const Candidate& candidate : entry.candidates) {
        const auto& config = std::get<AttentionConfig>(candidate.config);
        EXPECT_TRUE(!config.single_kernel || config.wgmma == config.rows_in_smem);
        if (config.single_kernel) rows.insert(static_cast<int>(rows_of_block(config)));
      }
    }
    return rows;
  };
  EXPECT_EQ(rows_of_whole("J=32"), std::set<int>());
  EXPECT_EQ(rows_of_whole("J=64"), std::set<int>{64});
  EXPECT_EQ(rows_of_whole("J=72"), std::set<int>{128});
  EXPECT_EQ(rows_of_whole("J=128"), (std::set<int>{128}));
  EXPECT_EQ(rows_of_whole("J=136"), std::set<int>());
}

TEST(AttentionConfigs, TilesFitTheGpu) {
  EnumerateOptions options = without_libraries();
  options.every_shape = true;
  options.target.gpu->shared_bytes = 48 * 1024;
  const EnumeratedAttentions made = enumerated_attentions("bert_encoder", kSmall, options);
  for (const PartitionCandidates& entry : made.attentions) {
    EXPECT_FALSE(entry.candidates.empty()) << entry.partition.name;
    for (const Candidate& candidate : entry.candidates)
      EXPECT_LE(attention_shared_bytes(entry.partition.attention, std::get<AttentionConfig>(candidate.config)),
                48 * 1024);
  }
  options.target.gpu->shared_bytes = 1024;
  const EnumeratedAttentions none = enumerated_attentions("bert_encoder", kSmall, options);
  for (const PartitionCandidates& entry : none.attentions) {
    EXPECT_TRUE(entry.candidates.empty());
    const std::vector<std::string> reasons = reasons_of(entry);
    EXPECT_EQ(std::count(reasons.begin(), reasons.end(), "tiles that do not fit a multiprocessor's shared memory"), 1);
  }
}

// --- Computed rows ---

std::vector<PartitionCandidates> with_computed_rows(const std::string& text,
                                                    const EnumerateOptions& options = without_libraries()) {
  const Recomputed made = add_row_statistics(save_predicates(training_of(text), true));
  Result<Candidates> found = find_partitions(made.training, made.fused, options);
  EXPECT_TRUE(found) << to_string(found.error());
  std::vector<PartitionCandidates> rows = rows_of(made);
  for (PartitionCandidates& each : rows) {
    find_configs(made.training.graph, found->domains, options, each);
    const std::vector<TensorId> tensors = tensors_of(each.partition);
    for (const Candidate& candidate : each.candidates) {
      for (size_t k = 0; k < tensors.size(); ++k)
        EXPECT_TRUE(found->domains[tensors[k].at()].allows(candidate.layouts[k])) << each.partition.name << " " << k;
    }
  }
  return rows;
}

// The caller's layout of angles is read as it is.
TEST(AttentionConfigs, ComputeRowsFromTensorsInTheLayoutOfTheCaller) {
  const std::string text = text_with(row_family().front().program, {24, 24, 16, 16}, "float16");
  for (const Target& target : {cpu_target(), gpu_target()}) {
    EnumerateOptions options;
    options.target = target;
    options.layouts = {{"c", "PJ"}};
    for (const PartitionCandidates& each : with_computed_rows(text, options))
      EXPECT_FALSE(each.candidates.empty()) << each.partition.name;
  }
}

TEST(AttentionConfigs, ThatCannotComputeRowsHaveTheirReason) {
  const auto has = [](const PartitionCandidates& one, const std::string& reason) {
    const std::vector<std::string> all = reasons_of(one);
    return std::find(all.begin(), all.end(), reason) != all.end();
  };
  const AttentionProgram swapped = row_family().front().program;
  const std::vector<PartitionCandidates> wide = with_computed_rows(text_with(swapped, {128, 128, 64, 64}, "float16"));
  ASSERT_EQ(wide.size(), 2U);
  for (const PartitionCandidates& each : wide) {
    bool wgmma = false;
    for (const Candidate& candidate : each.candidates) {
      const auto& config = std::get<AttentionConfig>(candidate.config);
      EXPECT_FALSE(why_not_with_rows(each.partition.attention, config));
      EXPECT_FALSE(config.specialized || config.single_kernel);
      EXPECT_EQ(config.wgmma, config.rows_in_smem);
      wgmma = wgmma || config.wgmma;
    }
    EXPECT_TRUE(wgmma) << each.partition.name;
    EXPECT_TRUE(has(each, "computed rows: specialized warps copy tiles and have no registers to compute them"));
  }
  EXPECT_TRUE(has(wide.back(), "computed rows: in one kernel, the columns of a gradient's row are in several warps"));
  const std::vector<PartitionCandidates> few_values =
      with_computed_rows(text_with(swapped, {128, 128, 64, 8}, "float16"));
  for (const PartitionCandidates& each : few_values) {
    EXPECT_FALSE(each.candidates.empty()) << each.partition.name;
    EXPECT_TRUE(has(each, "computed rows that do not fit a warp's share of the stages"));
  }
  const std::string odd = "np.concatenate([q[..., :3] * 2, q[..., 3:]], axis=-1)";
  const AttentionProgram pieces = attention_of_rows("", "", lines(odd, "k")).program;
  for (const PartitionCandidates& each : with_computed_rows(text_with(pieces, {64, 64, 16, 16}, "float16"))) {
    EXPECT_TRUE(each.candidates.empty()) << each.partition.name;
    EXPECT_TRUE(has(each, "computed rows: pieces that begin or end at an odd column"));
  }
}

}  // namespace
}  // namespace millrace
