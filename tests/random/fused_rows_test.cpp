// The oracle of fused groups on graphs with affine accesses, built by hand: right groups give the values of the unfused
// graph, and a wrong shift or position is an error.
#include "random/fused_rows.h"

#include <gtest/gtest.h>

#include "autodiff/differentiate.h"
#include "autodiff/verify.h"
#include "fusion/fuse.h"
#include "ir/verify.h"
#include "random/fused_check.h"
#include "random/inputs.h"
#include "random/points.h"

namespace millrace::random_programs {
namespace {

using Extents = std::vector<int64_t>;

// A graph, and one group of all its operators: each index of a member is the group's index of the same number.
class OneGroup {
 public:
  explicit OneGroup(const Extents& space, size_t outer) {
    for (size_t k = 0; k < space.size(); ++k)
      group.space.push_back({dim(space[k]), k < outer, k < outer ? Implementation::block : Implementation::thread});
    training.graph.name = group.name = "f";
  }

  TensorId argument(const std::string& name, const Extents& shape) {
    const TensorId id = tensor(name, shape, TensorRole::argument);
    training.graph.arguments.push_back(id);
    return id;
  }

  // An operator over a space, with the output's shape and positions. Its shifts are zero unless given.
  TensorId add(OperatorKind kind, const std::string& name, const Extents& space, std::vector<Access> inputs,
               const Extents& shape, std::vector<Position> positions, std::vector<int64_t> shifts = {}) {
    Operator op;
    op.name = name;
    op.kind = kind;
    for (const int64_t extent : space) op.space.push_back(dim(extent));
    op.reduced.assign(space.size(), false);
    op.inputs = std::move(inputs);
    const TensorId id = tensor(name, shape, TensorRole::computed);
    op.outputs = {{id, std::move(positions)}};
    for (size_t k = 0; k < space.size() && kind == OperatorKind::sum; ++k)
      op.reduced[k] = !runs_along(op.outputs[0], k);
    for (size_t k = 0; k < op.inputs.size() && kind == OperatorKind::join; ++k)
      op.regions.push_back(where_inside(training.graph, op.inputs[k], space));
    group.members.emplace_back(training.graph.operators.size());
    group.index_of.emplace_back();
    for (size_t k = 0; k < space.size(); ++k) group.index_of.back().push_back(static_cast<int>(k));
    shifts.resize(space.size(), 0);
    group.shift_of.push_back(std::move(shifts));
    training.graph.operators.push_back(std::move(op));
    return id;
  }

  // The points where an input of a join is inside its tensor.
  static Region where_inside(const Graph& graph, const Access& input, const Extents& space) {
    Region region;
    for (const int64_t extent : space) region.push_back({extent, -1});
    Point point(space.size(), 0);
    do {
      if (!element_at(graph, input, point)) continue;
      for (size_t k = 0; k < point.size(); ++k) {
        region[k].first = std::min(region[k].first, point[k]);
        region[k].last = std::max(region[k].last, point[k]);
      }
    } while (next_point(space, point));
    return region;
  }

  // A map whose output has the operator's space as its shape.
  TensorId map(OperatorKind kind, const std::string& name, const Extents& space, std::vector<Access> inputs,
               std::vector<int64_t> shifts = {}) {
    return add(kind, name, space, std::move(inputs), space, in_order(space.size()), std::move(shifts));
  }

  // The last operator's output is the result.
  void finish() {
    Graph& graph = training.graph;
    graph.results = {{"y", graph.operators.back().outputs[0].tensor}};
    const Result<Done> valid = verify(graph);
    ASSERT_TRUE(valid) << to_string(valid.error());
    group.writes = {graph.results[0].tensor};
    inputs_ = draw_inputs(graph, 1);
    expected_ = values_at(graph, inputs_, 0);
    ASSERT_TRUE(interpret<double>(graph, expected_, inputs_.random));
  }

  // Runs the group row by row; "" if it gives the values of the unfused graph.
  std::string run() const {
    const Graph& graph = training.graph;
    Memory<double> memory{values_at(graph, inputs_, 0), std::vector<bool>(graph.tensors.size(), false)};
    if (const auto complaint = run_group(graph, group, inputs_.random, memory)) return *complaint;
    const size_t result = graph.results[0].tensor.at();
    return memory.values[result] == expected_[result] ? "" : "other values";
  }

  // Fuses the graph and checks structure and values; the groups' words.
  std::vector<int64_t> fused_words() const {
    const FusedGraph fused = fuse(training);
    EXPECT_EQ(check_fused(training, fused, expected_, inputs_.random), std::nullopt);
    std::vector<int64_t> words;
    for (const FusedOperator& each : fused.groups) words.push_back(each.words_after);
    return words;
  }

  // The structure of the fused graph after a change to its first group.
  template <class Change>
  std::string structure_with(const Change& change) const {
    FusedGraph fused = fuse(training);
    change(fused.groups[0]);
    return check_structure(training, fused).value_or("");
  }

  TrainingGraph training;
  FusedOperator group;

 private:
  DimId dim(int64_t extent) {
    training.graph.dims.push_back({"d" + std::to_string(training.graph.dims.size()), extent});
    return DimId(training.graph.dims.size() - 1);
  }

  TensorId tensor(const std::string& name, const Extents& shape, TensorRole role) {
    Tensor added{name, DType::float64, {}, role};
    for (const int64_t extent : shape) added.dims.push_back(dim(extent));
    training.graph.tensors.push_back(added);
    return TensorId(training.graph.tensors.size() - 1);
  }

  Inputs inputs_;
  Values<double> expected_;
};

Position plus(int index, int64_t offset) { return {{{index, 1}}, offset}; }

testing::AssertionResult complains(const std::string& complaint, const std::string& part) {
  if (complaint.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "says '" << complaint << "', not '" << part << "'";
}

const char* const kElsewhere = "at a point other than where it was written";

// w · concatenate(exp(a), -b), along an inner or an outer index.
OneGroup concatenation(size_t outer) {
  OneGroup made({3, 9}, outer);
  const TensorId a = made.argument("a", {3, 4});
  const TensorId b = made.argument("b", {3, 5});
  const TensorId w = made.argument("w", {9});
  const TensorId left = made.map(OperatorKind::exp, "left", {3, 4}, {{a, {0, 1}}});
  const TensorId right = made.map(OperatorKind::negate, "right", {3, 5}, {{b, {0, 1}}}, {0, 4});
  const TensorId joined = made.map(OperatorKind::join, "joined", {3, 9}, {{left, {0, 1}}, {right, {0, plus(1, -4)}}});
  made.map(OperatorKind::multiply, "y", {3, 9}, {{joined, {0, 1}}, {w, {1}}});
  made.finish();
  return made;
}

TEST(FusedRows, RunsAConcatenation) {
  for (const size_t outer : {0U, 1U, 2U}) {
    OneGroup made = concatenation(outer);
    EXPECT_EQ(made.run(), "") << outer;
    EXPECT_EQ(made.fused_words(), std::vector<int64_t>{3 * 4 + 3 * 5 + 9 + 3 * 9});
  }
}

TEST(FusedRows, NoticesAWrongShift) {
  for (const size_t outer : {0U, 1U, 2U}) {
    for (const int64_t shift : {0, 3, 5}) {
      OneGroup made = concatenation(outer);
      made.group.shift_of[1][1] = shift;
      EXPECT_TRUE(complains(made.run(), kElsewhere)) << outer << " " << shift;
    }
    OneGroup made = concatenation(outer);
    made.group.shift_of[3][1] = 1;
    EXPECT_TRUE(complains(made.run(), kElsewhere)) << outer;
  }
}

// No row computes these elements and nobody reads them, so only the last check notices.
TEST(FusedRows, NoticesElementsThatNoRowWrites) {
  OneGroup made({3, 9}, 2);
  const TensorId a = made.argument("a", {3, 4});
  made.map(OperatorKind::exp, "y", {3, 4}, {{a, {0, 1}}}, {0, 5});
  made.finish();
  EXPECT_EQ(made.run(), "");
  made.group.shift_of[0][1] = 6;
  EXPECT_TRUE(complains(made.run(), "no row writes one of the elements of y"));
}

TEST(FusedRows, StructureAllowsPartsOfAnIndex) {
  const OneGroup made = concatenation(1);
  EXPECT_EQ(made.structure_with([](FusedOperator&) {}), "");
  EXPECT_TRUE(complains(made.structure_with([](FusedOperator& g) { g.shift_of[1][1] = 5; }), "leaves the group's"));
  EXPECT_TRUE(complains(made.structure_with([](FusedOperator& g) { g.shift_of[0][1] = -1; }), "leaves the group's"));
  EXPECT_TRUE(
      complains(made.structure_with([](FusedOperator& g) { g.shift_of[0].pop_back(); }), "one shift per index"));
  EXPECT_TRUE(
      complains(made.structure_with([](FusedOperator& g) { g.shift_of.pop_back(); }), "shifts for each member"));
  EXPECT_TRUE(complains(made.structure_with([](FusedOperator& g) { --g.words_after; }), "words, not"));
}

// -exp(x)[:, 2 + step · k]: a member that starts at position 2.
OneGroup slice(int64_t step, size_t outer) {
  OneGroup made({3, 8}, outer);
  const TensorId x = made.argument("x", {3, 8});
  const TensorId whole = made.map(OperatorKind::exp, "whole", {3, 8}, {{x, {0, 1}}});
  made.map(OperatorKind::negate, "y", {3, 3}, {{whole, {0, Position({{1, step}}, 2)}}}, {0, 2});
  made.finish();
  return made;
}

TEST(FusedRows, RunsASlice) {
  for (const size_t outer : {1U, 2U}) {
    OneGroup made = slice(1, outer);
    EXPECT_EQ(made.run(), "");
    EXPECT_EQ(made.fused_words(), std::vector<int64_t>{3 * 8 + 3 * 3});
    made.group.shift_of[1][1] = 1;
    EXPECT_TRUE(complains(made.run(), kElsewhere));
    EXPECT_TRUE(complains(slice(2, outer).run(), kElsewhere));
  }
}

// Words of slices of an argument: those that are touched, and overlapping slices count twice.
TEST(FusedRows, CountsTheWordsOfSlices) {
  OneGroup made({9}, 1);
  const TensorId x = made.argument("x", {20});
  const TensorId left = made.map(OperatorKind::exp, "left", {3}, {{x, {0}}});
  const TensorId right = made.map(OperatorKind::negate, "right", {6}, {{x, {0}}}, {3});
  const TensorId joined = made.map(OperatorKind::join, "joined", {9}, {{left, {0}}, {right, {plus(0, -3)}}});
  made.map(OperatorKind::multiply, "y", {9}, {{joined, {0}}, {x, {Position({{0, -2}}, 19)}}});
  made.finish();
  EXPECT_EQ(made.run(), "");
  EXPECT_EQ(words_read(made.training.graph, {OperatorId(0)}, x), 3);
  EXPECT_EQ(words_read(made.training.graph, {OperatorId(0), OperatorId(1)}, x), 9);
  EXPECT_EQ(words_read(made.training.graph, made.group.members, x), 18);
  EXPECT_EQ(made.fused_words(), std::vector<int64_t>{18 + 9});
}

// -exp(x).reshape(6), with a second reader of the merged axis.
OneGroup merged(const Position& read) {
  OneGroup made({2, 3}, 1);
  const Position digits({{0, 3}, {1, 1}}, 0);
  const TensorId x = made.argument("x", {2, 3});
  const TensorId flat = made.add(OperatorKind::exp, "flat", {2, 3}, {{x, {0, 1}}}, {6}, {digits});
  made.add(OperatorKind::negate, "y", {2, 3}, {{flat, {read}}}, {6}, {digits});
  made.finish();
  return made;
}

TEST(FusedRows, RunsAMergedAxis) {
  OneGroup made = merged(Position({{0, 3}, {1, 1}}, 0));
  EXPECT_EQ(made.run(), "");
  EXPECT_EQ(made.fused_words(), std::vector<int64_t>{6 + 6});
  const OneGroup other_digits = merged(Position({{0, 1}, {1, 2}}, 0));
  EXPECT_TRUE(complains(other_digits.run(), kElsewhere));
  EXPECT_EQ(other_digits.fused_words().size(), 2);
}

// Rotary embedding: x · cos + concatenate(-x[1], x[0]) · sin, where x has axes (time, 2, half). `shift` says at which
// of the two halves the negation runs.
OneGroup rotary(size_t outer, int64_t shift) {
  OneGroup made({4, 2, 3}, outer);
  const TensorId x = made.argument("x", {4, 2, 3});
  const TensorId cos = made.argument("cos", {4, 3});
  const TensorId sin = made.argument("sin", {4, 3});
  const TensorId second = made.map(OperatorKind::negate, "second", {4, 1, 3}, {{x, {0, plus(1, 1), 2}}}, {0, shift, 0});
  const TensorId swapped =
      made.map(OperatorKind::join, "swapped", {4, 2, 3}, {{second, {0, 1, 2}}, {x, {0, plus(1, -1), 2}}});
  const TensorId left = made.map(OperatorKind::multiply, "left", {4, 2, 3}, {{x, {0, 1, 2}}, {cos, {0, 2}}});
  const TensorId right = made.map(OperatorKind::multiply, "right", {4, 2, 3}, {{swapped, {0, 1, 2}}, {sin, {0, 2}}});
  made.map(OperatorKind::add, "y", {4, 2, 3}, {{left, {0, 1, 2}}, {right, {0, 1, 2}}});
  made.finish();
  return made;
}

TEST(FusedRows, RunsRotaryEmbedding) {
  for (const size_t outer : {0U, 1U, 2U, 3U}) {
    EXPECT_EQ(rotary(outer, 0).run(), "") << outer;
    EXPECT_TRUE(complains(rotary(outer, 1).run(), kElsewhere)) << outer;
  }
  // x, the angles and the result: the halves of x are words of x.
  EXPECT_EQ(rotary(1, 0).fused_words(), std::vector<int64_t>{24 + 12 + 12 + 24});
}

// A number per row of a slice: exp(x[:, 2:6]), divided by its sum.
TEST(FusedRows, PassesASumOfARow) {
  for (const size_t outer : {1U, 2U}) {
    OneGroup made({3, 4}, outer);
    const TensorId x = made.argument("x", {3, 7});
    const TensorId part = made.map(OperatorKind::exp, "part", {3, 4}, {{x, {0, plus(1, 2)}}});
    const TensorId sum = made.add(OperatorKind::sum, "sum", {3, 4}, {{part, {0, 1}}}, {3}, {0});
    made.map(OperatorKind::divide, "y", {3, 4}, {{part, {0, 1}}, {sum, {0}}});
    made.finish();
    EXPECT_EQ(made.run(), outer == 1 ? "" : "y reads sum, which no row has");
    EXPECT_EQ(made.fused_words(), std::vector<int64_t>{3 * 4 + 3 * 4});
  }
}

// A flip with padding, and a sum over windows of it, which reads what other points write.
OneGroup windows() {
  OneGroup made({8, 3}, 1);
  const TensorId x = made.argument("x", {4});
  const TensorId padded = made.map(OperatorKind::join, "padded", {8}, {{x, {Position({{0, -1}}, 5)}}});
  made.training.graph.operators.back().value = 7;
  made.add(OperatorKind::sum, "y", {6, 3}, {{padded, {Position({{0, 1}, {1, 1}}, 0)}}}, {6}, {0});
  made.finish();
  return made;
}

TEST(FusedRows, RunsPaddingAndWindows) {
  EXPECT_TRUE(complains(windows().run(), kElsewhere));
  EXPECT_EQ(windows().fused_words(), (std::vector<int64_t>{4 + 8, 8 + 6}));
}

// The gradients as fusion groups them: pads of slices, slices of concatenations.
TEST(FusedRows, ChecksGradients) {
  const Position digits({{0, 3}, {1, 1}}, 0);
  for (const OneGroup& made : {concatenation(1), slice(1, 1), slice(2, 1), merged(digits), rotary(1, 0)}) {
    const TrainingGraph training = differentiate(made.training.graph);
    const Result<Done> valid = verify(training);
    ASSERT_TRUE(valid) << to_string(valid.error());
    EXPECT_EQ(check_fusion(training, 1), std::nullopt) << made.training.graph.operators[0].name;
  }
}

// Overlapping windows add up.
TEST(FusedRows, ChecksGradientsOfWindows) {
  EXPECT_EQ(check_fusion(differentiate(windows().training.graph), 1), std::nullopt);
}

// The gradient reads d[v - j + 2, j], which the verifier rejects as a diagonal of a part: one of the two must change.
TEST(FusedRows, VerifierAcceptsGradientsOfWindows) {
  const Result<Done> valid = verify(differentiate(windows().training.graph));
  EXPECT_TRUE(valid) << to_string(valid.error());
}

}  // namespace
}  // namespace millrace::random_programs
