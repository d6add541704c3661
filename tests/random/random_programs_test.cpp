// The generator is deterministic and covers the language; the checks detect wrong gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "autodiff/differentiate.h"
#include "base/sanitized.h"
#include "frontend/frontend.h"
#include "random/check.h"
#include "random/generator.h"
#include "random/value.h"
#include "reference/interpreter.h"

namespace millrace::random_programs {
namespace {

TEST(RandomPrograms, TheSameSeedGivesTheSameProgram) {
  std::set<std::string> texts;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const std::string text = random_program(seed);
    EXPECT_EQ(text, random_program(seed)) << "seed " << seed;
    texts.insert(text);
  }
  EXPECT_EQ(texts.size(), 200U);
}

TEST(RandomPrograms, SmallOnesAreValidAndSmall) {
  std::set<size_t> operators;
  size_t large = 0;
  const uint64_t count = tried_of(400);
  for (uint64_t seed = 1; seed <= count; ++seed) {
    const std::string text = random_program(seed, ProgramSize::small);
    EXPECT_EQ(text, random_program(seed, ProgramSize::small)) << "seed " << seed;
    const Result<Graph> graph = parse_program(text, {});
    ASSERT_TRUE(graph) << "seed " << seed << ": " << to_string(graph.error());
    operators.insert(graph->operators.size());
    if (graph->operators.size() > 20) ++large;
  }
  EXPECT_LE(large, count / 10);
  if (kSanitized) return;
  EXPECT_GE(operators.size(), 15U);
}

// A long run of 6,000 programs has each construct 200 times.
constexpr uint64_t kPrograms = 2000;
constexpr int kOccurrences = 200 * kPrograms / 6000;

// Strings that must occur.
std::vector<std::string> words() {
  return {// functions
          "np.exp(", "np.log(", "np.sqrt(", "np.tanh(", "np.abs(", "np.square(", "np.maximum(", "np.minimum(",
          "np.where(", "np.power(", "np.add(", "np.subtract(", "np.multiply(", "np.sum(", "np.mean(", "np.max(",
          "np.min(", "np.einsum(", "softmax(", "dropout(", "layernorm(", "rmsnorm(", "relu(", "gelu(", "gelu_tanh(",
          "silu(", "causal_mask(",
          // operators and comparisons
          " + ", " - ", " * ", " / ", " ** 2", " ** -1", "0.5 ** ", "= -", " < ", " <= ", " > ", " >= ", " == ", " != ",
          // indices and arguments of functions
          "[:, None", "[None, :", "[..., None", "np.newaxis", "axis=0", "axis=1", "axis=-1", "axis=-2", "axis=(",
          "keepdims=True", "keepdims=False", "p=0.5", "p=0)", "eps=",
          // sizes, parameters, results
          " = 1\n", " = 7\n", "float64[1", "dace.float64",
          // statements and methods
          " in range(", ", 0, -1):", " for n in (", " in enumerate((", ".append(", ".shape[-1] % 2",
          ").ndim > 1:", "else:", ".mean(0)", ".mean(axis=-1, keepdims=True)",
          // motifs of transformers
          "dropout(softmax(", "softmax(causal_mask(", "= 1 / np.sqrt("};
}

// Functions, methods and types that must occur, mostly those that transformers do not need.
std::vector<std::string> further_words() {
  return {"np.sin(", "np.cos(", "np.sign(", "np.log1p(", "np.expm1(", "np.exp2(", "np.log2(", "np.log10(",
          "np.reciprocal(", "np.clip(", "sigmoid(", "softplus(", "erf(", "np.var(", "np.std(", "np.linalg.norm(",
          "logsumexp(", "log_softmax(", "batchnorm(", "groupnorm(", "np.matmul(", " @ ", "np.dot(", "np.inner(",
          "np.vdot(", "np.outer(", "np.tensordot(", "np.zeros(", "np.ones(", "np.full(", "np.zeros_like(",
          "np.ones_like(", "np.full_like(", "np.arange(", "np.eye(", "np.tril(", "np.triu(", "np.prod(", "np.cumsum(",
          "conv1d(", "conv2d(", "depthwise(", "max_pool2d(", "avg_pool2d(", "stride=", "padding=",
          // comparisons and logic as functions
          "np.less(", "np.less_equal(", "np.greater(", "np.greater_equal(", "np.equal(", "np.not_equal(",
          "np.logical_and(", "np.logical_or(", "np.logical_not(",
          // functions and methods that move elements
          "np.reshape(", ".reshape(", "np.ravel(", ".ravel(", "np.transpose(", ".transpose(", ".T\n", "np.swapaxes(",
          ".swapaxes(", "np.moveaxis(", "np.expand_dims(", "np.squeeze(", ".squeeze(", "np.broadcast_to(", "np.repeat(",
          ".repeat(", "np.tile(", "np.flip(", "np.roll(", "sliding_window_view(", "np.pad(",
          "constant_values=", "mode=\"constant\"", "np.concatenate([", "np.stack([", "np.split(",
          // integers and booleans
          "np.pi", "optimize=True", ".astype(np.float64)", "int32[", "int64[", "bool_[", "np.take(",
          "np.take_along_axis(", "cross_entropy(", "np.where(~"};
}

// Patterns that must occur.
std::vector<std::string> patterns() {
  return {// einsum of one to four operands, with implicit output, an ellipsis, a diagonal, as a transpose
          R"(einsum\(.\w+->)", R"(einsum\(.\w+,\w+->)", R"(einsum\(.\w+,\w+,\w+->)", R"(einsum\(.\w+,\w+,\w+,\w+->)",
          R"(einsum\("[\w,]+")", R"(einsum\(.[\w,]*\.\.\.)", R"(einsum\(.\w*(\w)\w*\1\w*[,-])",
          R"(einsum\(.(\w)(\w)->\2\1.)",
          // slices with bounds, steps and negative ones; integers; in several axes
          R"(\w\[-?\d+\])", R"(\w\[\d+:)", R"(\w\[-\d+:)", R"([[ ]:\d)", R"(:-\d+[,\]])", R"(::[23])", R"(::-1)",
          R"(\[\.\.\., )",
          // halves swapped, as in a rotary embedding
          R"(concatenate\(\[-(\w+)\[\.\.\., \d+:\], \1\[)", R"(stack\(\[-(\w+)\[\.\.\., 1::2\])",
          // sizes, by-value scalars, helpers, several results and results that are expressions
          R"(\n\w+ = \w+ = \d)", R"(\n\w+ = \w+ \* \d)", R"(\w: float64[,)])", R"(\n\ndef (f|layer)\d)",
          R"(= (f|layer)\d\(.*=)", R"(\n    \w+, \w+ = )", R"(\n    \w+, \(\w+, \w+\) = )", R"(return \w+\n)",
          R"(return \w+, )", R"(return .*\()",
          // a projection with a bias, a gated product
          R"(einsum\([^()]*\) \+ \w+\[)", R"(silu\(.*\) \* )"};
}

int occurrences(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

int occurrences(const std::string& text, const std::regex& pattern) {
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), pattern), {}));
}

TEST(RandomPrograms, CoverTheLanguage) {
  std::vector<std::regex> expressions;
  for (const std::string& pattern : patterns()) expressions.emplace_back(pattern);
  std::map<std::string, int> counts;
  std::set<size_t> operators;
  for (uint64_t seed = 1; seed <= tried_of(kPrograms); ++seed) {
    const std::string text = random_program(seed);
    for (const auto& list : {words(), further_words()}) {
      for (const std::string& word : list) counts[word] += occurrences(text, word);
    }
    for (size_t i = 0; i < expressions.size(); ++i) {
      int& count = counts[patterns()[i]];
      if (count < kOccurrences) count += occurrences(text, expressions[i]);  // searching is slow, so only until enough
    }
    const Result<Graph> graph = parse_program(text, {});
    ASSERT_TRUE(graph) << "random_programs --one " << seed << "   # " << to_string(graph.error());
    operators.insert(graph->operators.size());
  }
  if (kSanitized) return;  // too few to count
  for (const auto& [part, count] : counts) EXPECT_GE(count, kOccurrences) << part;
  for (size_t count = 1; count <= 38; ++count) EXPECT_TRUE(operators.contains(count)) << count << " operators";
  EXPECT_GE(*operators.begin(), 1U);
  // More than the largest budget: slices that are read apart are computed apart, each with the maps before it.
  EXPECT_LE(*operators.rbegin(), 100U);
}

// The graph with the output of one operator multiplied by `factor` before its readers.
TrainingGraph with_scaled_output(const TrainingGraph& training, size_t position, double factor) {
  TrainingGraph mutant = training;
  Graph& graph = mutant.graph;
  const TensorId original = graph.operators[position].outputs[0].tensor;
  const TensorId constant(graph.tensors.size());
  graph.tensors.push_back({"factor", DType::float64, {}, TensorRole::constant, factor});
  const TensorId scaled(graph.tensors.size());
  graph.tensors.push_back({"scaled", DType::float64, graph.tensor(original).dims, TensorRole::computed, 0});
  const auto redirect = [&](TensorId& id) { id = id == original ? scaled : id; };
  for (Operator& op : graph.operators) {
    for (Access& input : op.inputs) redirect(input.tensor);
  }
  for (TensorId& gradient : mutant.argument_gradients) redirect(gradient);
  Operator scale;
  scale.kind = OperatorKind::multiply;
  scale.pass = Pass::backward;
  scale.space = graph.tensor(original).dims;
  scale.reduced.resize(scale.space.size(), false);
  const std::vector<Position> axes = in_order(scale.space.size());
  scale.inputs = {{original, axes}, {constant, {}}};
  scale.outputs = {{scaled, axes}};
  graph.operators.insert(graph.operators.begin() + static_cast<std::ptrdiff_t>(position) + 1, scale);
  return mutant;
}

TEST(RandomPrograms, ChecksNoticeAGradientThatIsOffByAThousandth) {
  std::map<OperatorKind, std::pair<int, int>> mutants;  // all and caught
  for (uint64_t seed = 1; seed <= tried_of(100); ++seed) {
    const Result<Graph> forward = parse_program(random_program(seed), {});
    ASSERT_TRUE(forward);
    const TrainingGraph training = differentiate(*forward);
    ASSERT_FALSE(check_training(*forward, training, seed).complaint) << "random_programs --one " << seed;
    for (size_t k = 0; k < training.graph.operators.size(); ++k) {
      const Operator& op = training.graph.operators[k];
      const DType written = training.graph.tensor(op.outputs[0].tensor).dtype;
      // Booleans and positions are only compared: a thousandth more changes no comparison.
      const bool is_compared = written == DType::boolean || op.kind == OperatorKind::index;
      if (op.pass != Pass::backward || is_compared) continue;
      auto& [all, caught] = mutants[op.kind];
      ++all;
      if (check_training(*forward, with_scaled_output(training, k, 1.001), seed).complaint) ++caught;
    }
  }
  if (kSanitized) return;  // too few to count
  // Mutants that are not caught scale a gradient that is zero, for example of a softmax along an axis of extent one.
  int all_kinds = 0;
  int caught_kinds = 0;
  for (const auto& [kind, counts] : mutants) {
    const auto [all, caught] = counts;
    if (all > 3) {  // the gradients of fewer may all be zero
      EXPECT_GT(caught, 0) << "of " << all << " mutants of " << info_of(kind).name;
    }
    all_kinds += all;
    caught_kinds += caught;
  }
  EXPECT_GT(all_kinds, 1000);
  EXPECT_GE(caught_kinds, all_kinds * 3 / 4) << caught_kinds << " of " << all_kinds;
}

struct Mutation {
  std::string program;
  OperatorKind kind;  // the backward operator to corrupt
  OperatorKind other;
};

TEST(RandomPrograms, ChecksNoticeAWrongOperator) {
  const std::vector<Mutation> mutations = {
      {"relu(x)", OperatorKind::relu_dx, OperatorKind::add},
      {"np.tanh(x)", OperatorKind::tanh_dx, OperatorKind::multiply},
      {"gelu(x)", OperatorKind::gelu_dx, OperatorKind::gelu_tanh_dx},
      {"silu(x)", OperatorKind::silu_dx, OperatorKind::gelu_dx},
      {"erf(x)", OperatorKind::erf_dx, OperatorKind::gelu_dx},
      {"sigmoid(x)", OperatorKind::sigmoid_dx, OperatorKind::tanh_dx},
      {"softplus(x)", OperatorKind::sigmoid, OperatorKind::tanh},
      {"np.sin(x)", OperatorKind::cos, OperatorKind::sin},
      {"logsumexp(x)", OperatorKind::subtract, OperatorKind::add},
      {"y - x", OperatorKind::negate, OperatorKind::copy},
      {"softmax(x)", OperatorKind::softmax_dx, OperatorKind::multiply},
      {"dropout(x, p=0.5)", OperatorKind::dropout_dx, OperatorKind::add},
      {"np.einsum('ij,kj->ik', x, y)", OperatorKind::contraction, OperatorKind::sum},
  };
  for (const Mutation& mutation : mutations) {
    const std::string text =
        "B = 5\n\n\ndef program(x: float64[B, B], y: float64[B, B]):\n    return " + mutation.program;
    const Result<Graph> forward = parse_program(text + "\n", {});
    ASSERT_TRUE(forward) << to_string(forward.error());
    TrainingGraph training = differentiate(*forward);
    EXPECT_FALSE(check_training(*forward, training, 1).complaint) << mutation.program;
    const auto corrupt = std::find_if(training.graph.operators.begin(), training.graph.operators.end(),
                                      [&](auto& op) { return op.pass == Pass::backward && op.kind == mutation.kind; });
    ASSERT_NE(corrupt, training.graph.operators.end()) << mutation.program;
    corrupt->kind = mutation.other;
    EXPECT_TRUE(check_training(*forward, training, 1).complaint) << mutation.program;
  }
}

TEST(RandomPrograms, MessagesNameWhatIsWrong) {
  const Verdict verdict = check_program("def program(x: float64[B]):\n    return x\n", 1);
  ASSERT_TRUE(verdict.complaint);
  EXPECT_NE(verdict.complaint->find("program.py:1:"), std::string::npos) << *verdict.complaint;
}

// A bias of its shape can be added to it.
TEST(RandomPrograms, AValueBeyondTheLimitBroadcastsWithItsOwnShape) {
  const Shape large = {{"N", kMostElements + 1}};
  EXPECT_TRUE(broadcast(large, large));
  EXPECT_TRUE(broadcast(large, {{"", 1}}));
  EXPECT_FALSE(broadcast(large, {{"M", 2}, {"", 1}}));
}

}  // namespace
}  // namespace millrace::random_programs
