// The caller's contiguous groups: what is refused, and that stacked products need no copies.
#include "candidates/pins.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "candidates/enumerate.h"
#include "candidates/stacked_program.h"
#include "fusion/fusion_text.h"

namespace millrace {
namespace {

using Layouts = std::vector<std::pair<std::string, std::string>>;

Candidates partitions_of(const TrainingGraph& training, const Layouts& layouts, bool gpu) {
  EnumerateOptions options;
  options.layouts = layouts;
  if (gpu) options.target = gpu_target();
  Result<Candidates> found = find_partitions(training, fuse(training), options);
  EXPECT_TRUE(found) << to_string(found.error());
  return found ? std::move(*found) : Candidates();
}

std::string names_of(const TrainingGraph& training, const std::vector<TensorId>& tensors) {
  std::vector<std::string> names;
  for (const TensorId tensor : tensors) names.push_back(training.graph.tensor(tensor).name);
  return join(names, " ");
}

// --- What is refused ---

TEST(StackPins, ErrorsNameThePinAndTheRemedy) {
  const TrainingGraph training = training_of(
      "A = 2\nB = 4\n\n\ndef f(x: float32[A, B], y: float32[A, B], z: float64[A, B], s: float32):\n"
      "    u = x * y * s\n    w = z * 2\n    return u, w\n");
  const auto refused = [&](const Layouts& layouts) {
    const Result<Pinned> pinned = pin_layouts(training, layouts);
    return pinned ? "accepted" : to_string(pinned.error());
  };
  const auto expect = [&](const Layouts& layouts, const std::string& message, const std::string& remedy) {
    const std::string text = refused(layouts);
    EXPECT_NE(text.find(message), std::string::npos) << text;
    EXPECT_NE(text.find(remedy), std::string::npos) << text;
  };
  EXPECT_EQ(refused({{"x+y", "stacked"}, {"d_y+d_x", "stacked"}, {"x", "BA"}, {"y", "BA"}}), "accepted");
  expect({{"x+yy", "stacked"}}, "--layout x+yy=stacked: no argument or result 'yy'", "did you mean y?");
  expect({{"x+nothing", "stacked"}}, "no argument or result 'nothing'", "there are x, d_x, y");
  expect({{"x++y", "stacked"}}, "no argument or result ''", "there are");
  expect({{"x+s", "stacked"}}, "s is a scalar", "scalars have no layout");
  expect({{"x+y+x", "stacked"}}, "x is named twice", "each tensor once");
  expect({{"x+y", "stacked"}, {"y+x", "stacked"}}, "--layout y+x=stacked: y is in another stack", "as one");
  expect({{"x+z", "stacked"}}, "x is float32 and z is float64", "have one type");
  expect({{"x+d_y", "stacked"}}, "x and d_y are not of one kind", "gradients with gradients");
  expect({{"x+u", "stacked"}}, "x and u are not of one kind", "results with results");
  expect({{"x", "stacked"}}, "one tensor is not a stack", "as in x+k=stacked");
  expect({{"x+y", "BA"}}, "several tensors have no layout in common", "write x+y=stacked");
  // Whichever comes first.
  expect({{"x+y", "stacked"}, {"y", "any"}}, "y=any leaves the layout open", "leave out y=any");
  expect({{"y", "any"}, {"x+y", "stacked"}}, "y=any leaves the layout open", "leave out y=any");
}

TEST(StackPins, MisalignedGroupsAreRejectedWithAReason) {
  const TrainingGraph training = training_of(
      "A = 3\nB = 4\n\n\ndef f(x: float32[A], y: float32[A], u: float32[B], v: float32[A]):\n"
      "    return x * y, u * 2, v * 3\n");
  const Result<Pinned> pinned = pin_layouts(training, {{"x+y", "stacked"}, {"u+v", "stacked"}});
  ASSERT_TRUE(pinned);
  ASSERT_EQ(pinned->contiguous_groups.size(), 1U) << "the last one's size does not matter";
  EXPECT_EQ(names_of(training, pinned->contiguous_groups[0]), "u v");
  ASSERT_EQ(pinned->rejected.size(), 1U);
  EXPECT_EQ(pinned->rejected[0].reason,
            "x + y stacked by the caller: x takes 12 bytes, and y after it is not aligned to 16");
  const Candidates found = partitions_of(training, {{"x+y", "stacked"}}, false);
  EXPECT_EQ(found.callers_contiguous_groups, 0U);
  EXPECT_TRUE(std::any_of(found.rejected.begin(), found.rejected.end(), [](const Rejected& rejected) {
    return rejected.reason.find("stacked by the caller") != std::string::npos;
  }));
}

// --- Results ---

// The stacked operands of all partitions, packed or adjacent.
struct Stacks {
  size_t packed = 0;
  size_t adjacent = 0;
  size_t vectors = 0;  // of the adjacent ones
};

Stacks stacks_in(const TrainingGraph& training, const Candidates& found, size_t size) {
  Stacks stacks;
  for (const PartitionCandidates& entry : found.partitions) {
    for (size_t operand = 0; operand < kOperands; ++operand) {
      const std::vector<TensorId>& stack = entry.partition.product.operand(operand);
      if (stack.size() != size) continue;
      ++(entry.partition.product.packed[operand] ? stacks.packed : stacks.adjacent);
      stacks.vectors += operand == kVectorOperand && !entry.partition.product.packed[operand] ? 1 : 0;
      // Always in the order of the arguments: q, k, v.
      std::vector<std::string> last;
      for (const TensorId tensor : stack) last.push_back(training.graph.tensor(tensor).name);
      for (size_t k = 0; k < last.size(); ++k) EXPECT_NE(last[k].find("qkv"[k]), std::string::npos) << join(last, " ");
    }
  }
  return stacks;
}

TEST(StackPins, ProductsOfStackedTensorsCopyNothing) {
  const TrainingGraph training = training_of(kProjections);
  for (const bool gpu : {false, true}) {
    const Stacks without = stacks_in(training, partitions_of(training, {}, gpu), 3);
    EXPECT_GT(without.packed, 2U) << "the weights twice, and their gradients";
    EXPECT_EQ(without.vectors, 0U);
    const Stacks with = stacks_in(training, partitions_of(training, stacked_projections(), gpu), 3);
    EXPECT_EQ(with.packed, 0U);
    EXPECT_EQ(with.adjacent, without.adjacent + without.packed);
    EXPECT_EQ(with.vectors, gpu ? 2U : 0U) << "the biases, and their gradients";
  }
}

TEST(StackPins, OfTheEncoderToo) {
  const TrainingGraph training = training_of_model("bert_encoder", {"tiny"});
  for (const bool gpu : {false, true})
    EXPECT_EQ(stacks_in(training, partitions_of(training, stacked_projections(), gpu), 3).packed, 0U);
}

TEST(StackPins, StacksFollowTheCallersOrderWhateverItIs) {
  const TrainingGraph training = training_of(kProjections);
  const Candidates found = partitions_of(training, {{"wv+wq+wk", "stacked"}}, false);
  bool forward = false;
  for (const PartitionCandidates& entry : found.partitions) {
    const std::vector<TensorId>& stack = entry.partition.product.tensors[1];
    if (stack.size() != 3 || names_of(training, stack) != "wv wq wk") continue;
    EXPECT_FALSE(entry.partition.product.packed[1]);
    forward = forward || entry.partition.pass == Pass::forward;
  }
  EXPECT_TRUE(forward);
  // Neighbours are adjacent, and the two ends of a stack are not.
  for (const PartitionCandidates& entry : found.partitions) {
    for (const size_t operand : {size_t{0}, size_t{1}}) {
      const std::string names = names_of(training, entry.partition.product.tensors[operand]);
      if (names != "wv wq" && names != "wq wk" && names != "wv wk") continue;
      EXPECT_EQ(entry.partition.product.packed[operand], names == "wv wk") << names;
    }
  }
}

TEST(StackPins, TextsTellAdjacentFromPacked) {
  const TrainingGraph training = training_of(kProjections);
  const Candidates with = partitions_of(training, stacked_projections(), true);
  const Candidates without = partitions_of(training, {}, true);
  size_t differ = 0;
  for (const PartitionCandidates& one : with.partitions) {
    const auto other =
        std::find_if(without.partitions.begin(), without.partitions.end(),
                     [&](const PartitionCandidates& entry) { return entry.partition.name == one.partition.name; });
    ASSERT_NE(other, without.partitions.end()) << one.partition.name;
    const bool same_text =
        print_partition(training.graph, one.partition) == print_partition(training.graph, other->partition);
    EXPECT_EQ(same_text, one.partition.product.packed == other->partition.product.packed) << one.partition.name;
    differ += same_text ? 0 : 1;
  }
  EXPECT_GT(differ, 3U);
}

}  // namespace
}  // namespace millrace
