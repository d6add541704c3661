// For the models: fused and unfused give the same values, the groups do not depend on the order of operators, and
// nothing that could fuse stays separate.
#include <gtest/gtest.h>

#include <set>

#include "base/sanitized.h"
#include "fusion/fusion_text.h"
#include "ir/verify.h"
#include "random/fused_check.h"
#include "random/generator.h"
#include "random/random.h"

namespace millrace {
namespace {

TEST(FuseModels, FusedAndUnfusedGiveTheSame) {
  for (const std::string& model : models()) {
    for (const char* size : {"tiny", "odd"}) {
      const TrainingGraph training = training_of_model(model, {size});
      EXPECT_EQ(random_programs::check_fusion(training, 1), std::nullopt) << model << " " << size;
    }
  }
}

// At tiny sizes, the partial sums of a reduction across the grid keep it out of the group. These sizes have so many
// short rows that it is inside: the gradient of a normalization's weights, whose order of summation differs, fuses with
// the gradient of the normalization.
TEST(FuseModels, ReductionsAcrossTheGridGiveTheSame) {
  struct Case {
    std::string model;
    std::vector<std::string> sizes;
    std::string across;
    std::string inside;
  };
  const std::vector<Case> cases = {
      {"bert_encoder", {"P=2", "W=2", "H=1", "B=16", "J=48", "U=4"}, "attn_norm layernorm dW", "d_attn_norm sum"},
      {"gpt2_block_unpacked", {"P=2", "H=1", "B=16", "J=48", "U=4"}, "mlp_norm layernorm dW", "d_attn_residual sum"},
      {"llama_block_without_rope",
       {"P=2", "G=1", "R=1", "B=16", "J=48", "U=4"},
       "mlp_norm rmsnorm dW",
       "d_attn_residual sum"},
  };
  for (const auto& [model, sizes, across, inside] : cases) {
    const TrainingGraph training = training_of_model(model, sizes);
    const FusedGraph fused = fuse(training);
    EXPECT_TRUE(together(training, fused, across, inside)) << model;
    const std::vector<FusedIndex>& space = group_with(training, fused, across).space;
    EXPECT_TRUE(std::any_of(space.begin(), space.end(), [](const FusedIndex& index) {
      return index.outer && index.implementation == Implementation::grid_reduction;
    })) << model;
    EXPECT_EQ(random_programs::check_fusion(training, 1), std::nullopt) << model;
    if (kSanitized) break;  // each takes the reference many seconds
  }
}

// Structure and words only: the interpreter would take hours.
TEST(FuseModels, StructureIsValidAtFullSizes) {
  for (const std::string& model : models()) {
    for (const char* size : {"base", "large"}) {
      const TrainingGraph training = training_of_model(model, {size});
      EXPECT_EQ(random_programs::check_structure(training, fuse(training)), std::nullopt) << model << " " << size;
    }
  }
}

// The same training graph with its operators in another valid order: drawn one by one from those whose inputs exist.
TrainingGraph reordered(const TrainingGraph& training, uint64_t seed) {
  random_programs::Random random(seed);
  const Graph& graph = training.graph;
  const std::vector<OperatorId> producers = producers_of(graph);
  std::vector<OperatorId> order;
  std::vector<bool> done(graph.operators.size(), false);
  for (const Pass pass : {Pass::forward, Pass::backward}) {  // a training graph has forward first
    while (true) {
      std::vector<OperatorId> ready;
      for (size_t k = 0; k < graph.operators.size(); ++k) {
        const Operator& op = graph.operators[k];
        const bool can_run = std::all_of(op.inputs.begin(), op.inputs.end(), [&](const Access& input) {
          const OperatorId producer = producers[input.tensor.at()];
          return !producer.valid() || done[producer.at()];
        });
        if (op.pass == pass && !done[k] && can_run) ready.emplace_back(k);
      }
      if (ready.empty()) break;
      order.push_back(random.pick(ready));
      done[order.back().at()] = true;
    }
  }
  TrainingGraph result = training;
  std::vector<OperatorId> now(order.size());
  for (size_t k = 0; k < order.size(); ++k) {
    result.graph.operators[k] = graph.operators[order[k].at()];
    now[order[k].at()] = OperatorId(k);
  }
  for (Kept& kept : result.kept) {
    for (OperatorId& reader : kept.readers) reader = now[reader.at()];
    std::sort(kept.readers.begin(), kept.readers.end());
  }
  return result;
}

// Sets of operator names, which do not depend on any order.
using Partition = std::set<std::set<std::string>>;

Partition partition_of(const TrainingGraph& training, const FusedGraph& fused) {
  Partition partition;
  for (const FusedOperator& group : fused.groups) {
    const std::vector<std::string> names = member_names(training, group);
    partition.emplace(names.begin(), names.end());
  }
  return partition;
}

Partition stackings_of(const TrainingGraph& training, const FusedGraph& fused) {
  Partition partition;
  for (const Stacking& stacking : fused.stackings) {
    std::set<std::string> names;
    for (const OperatorId id : stacking.contractions) names.insert(training.graph.operators[id.at()].name);
    partition.insert(names);
  }
  return partition;
}

std::string shown(const Partition& partition, const Partition& other) {
  std::string text;
  for (const std::set<std::string>& group : partition) {
    if (!other.contains(group)) text += "  " + join(group, ", ") + "\n";
  }
  return text;
}

void expect_same_groups(const TrainingGraph& training, const std::string& what) {
  const FusedGraph fused = fuse(training);
  const Partition expected = partition_of(training, fused);
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const TrainingGraph other = reordered(training, seed);
    ASSERT_EQ(other.graph.operators.size(), training.graph.operators.size());
    const Result<Done> valid = verify(other);
    ASSERT_TRUE(valid) << what << ": " << to_string(valid.error());
    const FusedGraph again = fuse(other);
    const Partition found = partition_of(other, again);
    ASSERT_TRUE(found == expected) << what << ", order " << seed << "\nas written\n"
                                   << shown(expected, found) << "reordered\n"
                                   << shown(found, expected);
    ASSERT_EQ(again.words_after, fused.words_after) << what << ", order " << seed;
    ASSERT_TRUE(stackings_of(other, again) == stackings_of(training, fused)) << what << ", order " << seed;
    ASSERT_EQ(again.epilogues.size(), fused.epilogues.size()) << what << ", order " << seed;
  }
}

TEST(FuseOrder, DoesNotMatterInModels) {
  for (const std::string& model : models()) {
    for (const char* size : {"tiny", "odd", "large"}) expect_same_groups(training_of_model(model, {size}), model);
  }
}

TEST(FuseOrder, DoesNotMatterInRandomPrograms) {
  for (uint64_t seed = 1; seed <= tried_of(200); ++seed)
    expect_same_groups(training_of(random_programs::random_program(seed)), concat("random_programs --one ", seed));
}

// Neighbours that stay separate have a reason, and it is never "compatible".
void expect_nothing_left(const TrainingGraph& training, const std::string& what) {
  const FusedGraph fused = fuse(training);
  std::vector<size_t> group_of(training.graph.operators.size());
  for (size_t g = 0; g < fused.groups.size(); ++g) {
    for (const OperatorId member : fused.groups[g].members) group_of[member.at()] = g;
  }
  std::set<std::pair<OperatorId, OperatorId>> explained_pairs;
  for (const PairExplanation& pair : explain(training, fused)) {
    const std::string names = concat(what, ": ", training.graph.operators[pair.first.at()].name, " | ",
                                     training.graph.operators[pair.second.at()].name);
    EXPECT_EQ(pair.fused, group_of[pair.first.at()] == group_of[pair.second.at()]) << names;
    EXPECT_NE(pair.reason, "") << names;
    EXPECT_NE(pair.reason, "compatible") << names;
    explained_pairs.insert(std::minmax(pair.first, pair.second));
  }
  // Every pair of an operator that is not a contraction and a producer of its inputs is explained.
  const std::vector<OperatorId> producers = producers_of(training.graph);
  for (size_t k = 0; k < training.graph.operators.size(); ++k) {
    if (training.graph.operators[k].kind == OperatorKind::contraction) continue;
    for (const Access& input : training.graph.operators[k].inputs) {
      const OperatorId producer = producers[input.tensor.at()];
      if (!producer.valid()) continue;
      EXPECT_TRUE(explained_pairs.contains(std::minmax(producer, OperatorId(k))))
          << what << ": " << training.graph.operators[k].name;
    }
  }
}

TEST(FuseMaximality, NothingIsLeftInModels) {
  for (const std::string& model : models()) {
    for (const char* size : {"tiny", "odd", "large"})
      expect_nothing_left(training_of_model(model, {size}), concat(model, " ", size));
  }
}

TEST(FuseMaximality, NothingIsLeftInRandomPrograms) {
  for (uint64_t seed = 1; seed <= tried_of(200); ++seed)
    expect_nothing_left(training_of(random_programs::random_program(seed)), concat("random_programs --one ", seed));
}

// Whether a group that depends on `from` leads to `to`: merged, the two would depend on themselves.
bool another_group_is_between(const std::vector<std::set<size_t>>& successors, size_t from, size_t to) {
  std::vector<size_t> open;
  for (const size_t next : successors[from]) {
    if (next != to) open.push_back(next);
  }
  std::set<size_t> seen(open.begin(), open.end());
  while (!open.empty()) {
    const size_t group = open.back();
    open.pop_back();
    for (const size_t next : successors[group]) {
      if (next == to) return true;
      if (seen.insert(next).second) open.push_back(next);
    }
  }
  return false;
}

// Checked on the graph alone, without explain: operators of a pass that access one tensor are in one group, unless
// another group, such as a contraction, is on a path between their groups.
TEST(FuseMaximality, NeighboursInModelsFuseUnlessAGroupIsBetween) {
  for (const std::string& model : models()) {
    const TrainingGraph training = training_of_model(model);
    const Graph& graph = training.graph;
    const FusedGraph fused = fuse(training);
    std::vector<size_t> group_of(graph.operators.size());
    for (size_t g = 0; g < fused.groups.size(); ++g) {
      for (const OperatorId member : fused.groups[g].members) group_of[member.at()] = g;
    }
    const std::vector<OperatorId> producers = producers_of(graph);
    const std::vector<std::vector<OperatorId>> readers = readers_of(graph);
    std::vector<std::set<size_t>> successors(fused.groups.size());
    for (size_t t = 0; t < graph.tensors.size(); ++t) {
      for (const OperatorId reader : readers[t]) {
        if (producers[t].valid() && group_of[reader.at()] != group_of[producers[t].at()])
          successors[group_of[producers[t].at()]].insert(group_of[reader.at()]);
      }
    }
    for (size_t t = 0; t < graph.tensors.size(); ++t) {
      if (words_of(graph, TensorId(t)) == 0) continue;
      std::vector<OperatorId> touching = readers[t];
      if (producers[t].valid()) touching.push_back(producers[t]);
      for (const OperatorId a : touching) {
        for (const OperatorId b : touching) {
          const Operator& first = graph.operators[a.at()];
          const Operator& second = graph.operators[b.at()];
          const size_t group_a = group_of[a.at()];
          const size_t group_b = group_of[b.at()];
          if (group_a >= group_b || first.pass != second.pass || first.kind == OperatorKind::contraction ||
              second.kind == OperatorKind::contraction)
            continue;
          EXPECT_TRUE(another_group_is_between(successors, group_a, group_b))
              << model << ": " << first.name << " | " << second.name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace
