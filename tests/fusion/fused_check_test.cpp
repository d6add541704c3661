// The checks of tests/random/fused_check.h find errors in a fused graph: groups built by hand, valid and invalid.
#include "random/fused_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <utility>

#include "base/sanitized.h"
#include "fusion/fusion_text.h"
#include "random/generator.h"
#include "random/inputs.h"
#include "random/points.h"

namespace millrace::random_programs {
namespace {

// Operators of one group, and the names of the dimensions that form its row.
struct Together {
  std::vector<std::string> operators;
  std::set<std::string> row;
};

// A fused graph with these groups, and every other operator alone. Indices with the same name are one index.
class ByHand {
 public:
  ByHand(const TrainingGraph& training, const std::vector<Together>& groups) : training_(training) {
    std::set<OperatorId> placed;
    for (const Together& wanted : groups) {
      FusedOperator group;
      for (const std::string& name : wanted.operators) group.members.push_back(operator_called(training, name));
      std::sort(group.members.begin(), group.members.end());
      placed.insert(group.members.begin(), group.members.end());
      add(std::move(group), [&](const Operator& op, size_t index) {
        return wanted.row.contains(training_.graph.dims[op.space[index].at()].name);
      });
    }
    for (size_t k = 0; k < training.graph.operators.size(); ++k) {
      if (placed.contains(OperatorId(k))) continue;
      FusedOperator group;
      group.members.push_back(OperatorId(k));
      add(std::move(group), [](const Operator& op, size_t index) { return op.reduced[index]; });
    }
    std::sort(fused.groups.begin(), fused.groups.end(),
              [](const FusedOperator& a, const FusedOperator& b) { return a.members.back() < b.members.back(); });
    fused.words_after_by_mask.fill(fused.words_after);
  }

  FusedGraph fused;

 private:
  template <class InRow>
  void add(FusedOperator group, const InRow& in_row) {
    const Graph& graph = training_.graph;
    const Operator& first = graph.operators[group.members.front().at()];
    group.kind = first.kind == OperatorKind::contraction ? FusedKind::contraction : FusedKind::kernel;
    group.pass = first.pass;
    group.name = first.name;
    for (const OperatorId member : group.members) add_space(graph.operators[member.at()], group, in_row);
    add_tensors(group);
    fused.words_before += group.words_before;
    fused.words_after += group.words_after;
    fused.groups.push_back(std::move(group));
  }

  template <class InRow>
  void add_space(const Operator& op, FusedOperator& group, const InRow& in_row) {
    group.index_of.emplace_back();
    group.shift_of.emplace_back(op.space.size(), 0);
    std::set<int> taken;
    for (size_t k = 0; k < op.space.size(); ++k) {
      int index = 0;
      while (static_cast<size_t>(index) < group.space.size() &&
             (group.space[static_cast<size_t>(index)].dim != op.space[k] || taken.contains(index)))
        ++index;
      taken.insert(index);
      if (static_cast<size_t>(index) == group.space.size()) {
        const bool inner = in_row(op, k);
        group.space.push_back({op.space[k], !inner, inner ? Implementation::thread : Implementation::block});
      }
      FusedIndex& at = group.space[static_cast<size_t>(index)];
      if (op.reduced[k]) at.implementation = at.outer ? Implementation::grid_reduction : Implementation::warp_reduction;
      group.index_of.back().push_back(index);
    }
  }

  bool reads(OperatorId id, TensorId tensor) const {
    const std::vector<Access>& inputs = training_.graph.operators[id.at()].inputs;
    return std::any_of(inputs.begin(), inputs.end(), [&](const Access& input) { return input.tensor == tensor; });
  }

  void add_tensors(FusedOperator& group) {
    const Graph& graph = training_.graph;
    const std::vector<std::vector<OperatorId>> readers = readers_of(graph);
    std::set<TensorId> needed(training_.argument_gradients.begin(), training_.argument_gradients.end());
    for (const Output& result : graph.results) needed.insert(result.tensor);
    const auto inside = [&](OperatorId id) {
      return std::find(group.members.begin(), group.members.end(), id) != group.members.end();
    };
    std::set<TensorId> written;
    std::set<TensorId> read;
    for (const OperatorId member : group.members) {
      std::set<TensorId> touched;
      for (const Access& output : graph.operators[member.at()].outputs) {
        bool is_needed = needed.contains(output.tensor);
        for (const OperatorId reader : readers[output.tensor.at()]) is_needed = is_needed || !inside(reader);
        (is_needed ? group.writes : group.interim).push_back(output.tensor);
        if (is_needed) group.words_after += words_of(graph, output.tensor);
        written.insert(output.tensor);
        touched.insert(output.tensor);
      }
      for (const Access& input : graph.operators[member.at()].inputs) {
        touched.insert(input.tensor);
        if (!written.contains(input.tensor) && words_of(graph, input.tensor) > 0) read.insert(input.tensor);
      }
      for (const TensorId tensor : touched)
        group.words_before += written.contains(tensor) && !reads(member, tensor)
                                  ? words_of(graph, tensor)
                                  : random_programs::words_read(graph, {member}, tensor);
    }
    group.reads.assign(read.begin(), read.end());
    for (const TensorId tensor : read) group.words_after += random_programs::words_read(graph, group.members, tensor);
  }

  const TrainingGraph& training_;
};

std::string complaint_about(const TrainingGraph& training, const FusedGraph& fused) {
  const Inputs inputs = draw_inputs(training.graph, 1);
  Values<double> values = values_at(training.graph, inputs, 0);
  for (size_t r = 0; r < training.result_gradients.size(); ++r)
    values[training.result_gradients[r].at()] = inputs.result_gradients[r];
  const Result<Done> done = interpret<double>(training.graph, values, inputs.random);
  EXPECT_TRUE(done) << to_string(done.error());
  return check_fused(training, fused, values, inputs.random).value_or("");
}

std::string complaint_about(const TrainingGraph& training, const std::vector<Together>& groups) {
  return complaint_about(training, ByHand(training, groups).fused);
}

testing::AssertionResult says(const std::string& complaint, const std::string& part) {
  if (complaint.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "says '" << complaint << "', not '" << part << "'";
}

constexpr std::string_view kLayer = R"(
B = 3
I = 5
def f(x: float64[B, I], r: float64[B, I], c: float64[I], w: float64[I], v: float64[I]):
    biased = x + c
    dropped = dropout(biased, p=0.5)
    added = dropped + r
    y = layernorm(added, w, v)
    return y
)";

const std::vector<std::string>& forward_names() {
  static const std::vector<std::string> names = {"biased bias", "dropped dropout", "added residual", "y layernorm"};
  return names;
}

const std::vector<std::string>& backward_names() {
  static const std::vector<std::string> names = {"y layernorm dW", "y layernorm d_added", "dropped dropout d_biased",
                                                 "biased bias d_c"};
  return names;
}

TEST(FusedCheck, AcceptsSeparateOperators) {
  for (uint64_t seed = 1; seed <= tried_of(300); ++seed) {
    const TrainingGraph training = training_of(random_program(seed));
    EXPECT_EQ(complaint_about(training, std::vector<Together>{}), "") << "seed " << seed;
  }
}

TEST(FusedCheck, AcceptsARow) {
  const TrainingGraph training = training_of(kLayer);
  EXPECT_EQ(complaint_about(training, {{forward_names(), {"I"}}, {backward_names(), {"I"}}}), "");
}

TEST(FusedCheck, NoticesWhatIsUsedBeforeItIsComplete) {
  const TrainingGraph training = training_of(kLayer);
  EXPECT_TRUE(says(complaint_about(training, {{forward_names(), {"B"}}}), "used before all rows are done") ||
              says(complaint_about(training, {{forward_names(), {"B"}}}), "across rows"));
  const TrainingGraph sums = training_of(R"(
B = 3
I = 5
def f(x: float64[B, I], w: float64[B, I]):
    y = np.sum(x, axis=0)
    z = y * w
    return z
)");
  EXPECT_TRUE(says(complaint_about(sums, {{{"y sum", "z multiply"}, {"I"}}}), "used before all rows are done"));
  EXPECT_EQ(complaint_about(sums, {{{"y sum", "z multiply"}, {"B"}}}), "");
}

TEST(FusedCheck, NoticesWhatAnotherRowHas) {
  const TrainingGraph training = training_of(R"(
A = 4
def f(x: float64[A, A]):
    y = np.exp(x)
    z = np.einsum("ab->ba", y)
    return z
)");
  const std::string all = complaint_about(training, {{{"y exp", training.graph.operators[1].name}, {}}});
  EXPECT_TRUE(says(all, "at a point other than where it was written"));
}

TEST(FusedCheck, NoticesPartsOfReductions) {
  const TrainingGraph training = training_of(R"(
def f(x: float64[2, 3, 4]):
    y = np.exp(x)
    z = np.sum(y, axis=(0, 2))
    return z
)");
  EXPECT_TRUE(says(complaint_about(training, {{{"y exp", "z sum"}, {"4"}}}), "a part of a row"));
  EXPECT_EQ(complaint_about(training, {{{"y exp", "z sum"}, {"3"}}}), "");
}

TEST(FusedCheck, NoticesWrongLists) {
  const TrainingGraph training = training_of(kLayer);
  const FusedGraph right = ByHand(training, {{forward_names(), {"I"}}, {backward_names(), {"I"}}}).fused;
  ASSERT_EQ(complaint_about(training, right), "");
  const auto with = [&](const auto& change) {
    FusedGraph wrong = right;
    change(wrong);
    return complaint_about(training, wrong);
  };
  EXPECT_TRUE(says(with([](FusedGraph& g) { std::swap(g.groups[0], g.groups[1]); }), "after it is read"));
  EXPECT_TRUE(says(with([](FusedGraph& g) { g.groups.pop_back(); }), "is in no group"));
  EXPECT_TRUE(says(with([](FusedGraph& g) { g.groups.push_back(g.groups[0]); }), "is in two groups"));
  EXPECT_TRUE(says(with([](FusedGraph& g) { g.groups[0].reads.pop_back(); }), "reads lacks"));
  EXPECT_TRUE(says(with([](FusedGraph& g) { g.groups[0].writes.pop_back(); }), "writes lacks"));
  EXPECT_TRUE(says(with([](FusedGraph& g) { g.groups[0].interim.pop_back(); }), "interim lacks"));
  EXPECT_TRUE(says(with([](FusedGraph& g) { ++g.groups[0].words_before; }), "words unfused"));
  EXPECT_TRUE(says(with([](FusedGraph& g) { ++g.groups[0].words_after; }), "words, not"));
  EXPECT_TRUE(says(with([](FusedGraph& g) { g.groups[0].partial_words = 2; }), "partial words"));
  EXPECT_TRUE(says(with([](FusedGraph& g) { --g.words_after; }), "not the groups' sum"));
  EXPECT_TRUE(says(with([](FusedGraph& g) { g.groups[0].index_of[1][0] = -1; }), "none of the group's"));
  EXPECT_TRUE(says(with([](FusedGraph& g) { std::swap(g.groups[0].index_of[1][0], g.groups[0].index_of[1][1]); }),
                   "another extent"));
  EXPECT_TRUE(says(with([](FusedGraph& g) { g.groups[0].pass = Pass::backward; }), "the other pass"));
}

// Values of a wrong index, mask or sum.
TEST(FusedCheck, NoticesWrongValues) {
  const TrainingGraph training = training_of(kLayer);
  const FusedGraph fused = ByHand(training, {{forward_names(), {"I"}}}).fused;
  const Inputs inputs = draw_inputs(training.graph, 1);
  Values<double> values = values_at(training.graph, inputs, 0);
  values[training.result_gradients[0].at()] = inputs.result_gradients[0];
  ASSERT_TRUE(interpret<double>(training.graph, values, inputs.random));
  ASSERT_EQ(check_fused(training, fused, values, inputs.random), std::nullopt);
  RandomState other = inputs.random;
  ++other.step;
  EXPECT_NE(check_fused(training, fused, values, other), std::nullopt);
  double& element = values[training.graph.results[0].tensor.at()][7];
  element = std::nextafter(element, 2.0);
  EXPECT_TRUE(says(check_fused(training, fused, values, inputs.random).value_or(""), "element 7"));
}

}  // namespace
}  // namespace millrace::random_programs
