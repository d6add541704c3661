#include "random/motifs.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "random/einsums.h"
#include "random/elementwise.h"
#include "random/reductions.h"

namespace millrace::random_programs {
namespace {

// x's axis `from` contracted with a new weight and replaced by the axis `to`, in place.
Value projected_axis(Body& body, const Value& x, size_t from, const Axis& to) {
  const std::vector<int> labels = labels_of(x);
  const int contracted = labels[from];
  const int added = static_cast<int>(labels.size());
  std::vector<int> output = labels;
  output[from] = added;
  const bool transposed = body.random.chance(50);
  const Shape shape = transposed ? Shape{to, x.shape[from]} : Shape{x.shape[from], to};
  const std::vector<int> weight_labels =
      transposed ? std::vector<int>{added, contracted} : std::vector<int>{contracted, added};
  const Term weight{body.parameter(shape), weight_labels};
  if (body.random.chance(50)) return einsum(body, {weight, {x, labels}}, output);
  return einsum(body, {{x, labels}, weight}, output);
}

// Labels of attention's indices; batch indices follow.
constexpr int kEmbedding = 0, kQuery = 1, kKey = 2, kHead = 3, kProjection = 4, kBatch = 5;

// source · weight → source's axes without the embedding, heads, projection: in any order.
Term project(Body& body, const Value& source, const std::vector<int>& labels, const Axis& head,
             const Axis& projection) {
  Random& random = body.random;
  const auto embedding = std::find(labels.begin(), labels.end(), kEmbedding) - labels.begin();
  std::vector<int> weight_labels = {kEmbedding, kHead, kProjection};
  std::vector<Axis> axes = {source.shape[static_cast<size_t>(embedding)], head, projection};
  std::vector<size_t> order = {0, 1, 2};
  random.shuffle(order);
  Shape shape;
  std::vector<int> ordered;
  for (const size_t i : order) {
    shape.push_back(axes[i]);
    ordered.push_back(weight_labels[i]);
  }
  std::vector<int> output = {kHead, kProjection};
  for (const int label : labels) {
    if (label != kEmbedding) output.push_back(label);
  }
  random.shuffle(output);
  const Value weight = body.parameter(shape);
  Value result = einsum(body, {{weight, ordered}, {source, labels}}, output);
  if (random.chance(40)) result = biased(body, result);
  return {body.settle(tame(body, result)), output};
}

// Scales by a number, by the root of the projection's size, or by a scalar.
Value attention_scaled(Body& body, const Value& scores, const Axis& projection) {
  Random& random = body.random;
  body.spend(1);
  std::string scale;
  switch (random.below(5)) {
    case 0: scale = "0.125"; break;
    case 1: scale = body.scalar().text; break;
    case 2:
    case 3: {
      scale = body.new_name();
      body.statement(concat(scale, " = 1 / np.sqrt(", projection.size.empty() ? "1" : projection.size, ")"));
      break;
    }
    default: return scaled(body, scores);
  }
  const bool in_front = random.chance(60);
  if (in_front)
    return {concat(scale, " * ", operand(scores, Binding::sign)), Binding::product, scores.shape, scores.bound, false};
  return {concat(operand(scores, Binding::product), " * ", scale), Binding::product, scores.shape, scores.bound, false};
}

}  // namespace

Value attention(Body& body, const Value& x) {
  Random& random = body.random;
  std::vector<int> labels;
  for (size_t i = 2; i < x.shape.size(); ++i) labels.push_back(kBatch + static_cast<int>(i) - 2);
  labels.push_back(kEmbedding);
  labels.push_back(kQuery);
  random.shuffle(labels);

  // Keys and values come from x itself, or from another tensor with its own length.
  Value memory = x;
  std::vector<int> memory_labels = labels;
  std::replace(memory_labels.begin(), memory_labels.end(), kQuery, kKey);
  const auto extent_at = [](const Value& value, const std::vector<int>& axes, int label) {
    return value.shape[static_cast<size_t>(std::find(axes.begin(), axes.end(), label) - axes.begin())].extent;
  };
  const int64_t query = extent_at(x, labels, kQuery);
  const int64_t embedding = extent_at(x, labels, kEmbedding);
  const int64_t batch = elements(x.shape) / query / embedding;
  if (batch * query * query > kMostElements || random.chance(40)) {
    Shape shape = x.shape;
    const auto axis = std::find(labels.begin(), labels.end(), kQuery) - labels.begin();
    shape[static_cast<size_t>(axis)] =
        body.size(std::min(kMostElements / (batch * embedding), kMostElements / (batch * query)));
    memory = body.parameter(shape);
  }
  const int64_t key = extent_at(memory, memory_labels, kKey);

  // No einsum may have too many points, and no tensor too many elements.
  const int64_t longest = std::max(query, key);
  int64_t most = std::min({kMostPoints / (batch * query * key), kMostPoints / (batch * longest * embedding),
                           kMostElements / (batch * longest), kMostElements / embedding});
  const Axis head = body.size(std::min(most, kMostElements / (batch * query * key)));
  most /= head.extent;
  const Axis projection = body.size(most);
  const Axis value_projection = random.chance(70) ? projection : body.size(most);

  const Term queries = project(body, x, labels, head, projection);
  const Term keys = project(body, memory, memory_labels, head, projection);
  const Term values = project(body, memory, memory_labels, head, value_projection);

  std::vector<int> score_labels = {kHead};
  for (const int label : labels) {
    if (label >= kBatch) score_labels.push_back(label);
  }
  random.shuffle(score_labels);
  score_labels.push_back(kQuery);
  score_labels.push_back(kKey);
  const bool causal = random.chance(50);
  if (!causal && random.chance(50)) random.shuffle(score_labels);

  const bool keys_first = random.chance(50);
  Value scores = keys_first ? einsum(body, {keys, queries}, score_labels) : einsum(body, {queries, keys}, score_labels);
  if (random.chance(85)) scores = attention_scaled(body, scores, projection);
  scores = body.settle(tame(body, scores));
  if (causal) {
    body.spend(1);
    scores = {concat("causal_mask(", scores.text, ")"), Binding::atom, scores.shape, scores.bound, false};
    if (random.chance(40)) {
      // Under a name that nothing else uses: only the softmax may see infinities.
      const std::string name = body.new_name();
      body.statement(name + " = " + scores.text);
      scores.text = name;
    }
  }
  const auto axis = std::find(score_labels.begin(), score_labels.end(), kKey) - score_labels.begin();
  Value weights = softmax_along(body, scores, static_cast<size_t>(axis));
  if (random.chance(85)) weights = dropped(body, body.settle(weights));
  weights = body.settle(weights);

  std::vector<int> context_labels = values.labels;
  std::replace(context_labels.begin(), context_labels.end(), kKey, kQuery);
  random.shuffle(context_labels);
  const Value context = body.settle(einsum(body, {values, {weights, score_labels}}, context_labels));
  if (random.chance(25)) return context;

  // Back to the shape of x.
  const Axis embedded =
      x.shape[static_cast<size_t>(std::find(labels.begin(), labels.end(), kEmbedding) - labels.begin())];
  const Value weight = body.parameter({value_projection, head, embedded});
  Value out = einsum(body, {{weight, {kProjection, kHead, kEmbedding}}, {context, context_labels}}, labels);
  if (random.chance(40)) out = biased(body, out);
  out = tame(body, body.settle(out));
  return random.chance(50) ? sum_of(body, out, x) : out;
}

Value feed_forward(Body& body, const Value& x) {
  Random& random = body.random;
  const auto rank = static_cast<int64_t>(x.shape.size());
  const auto axis = static_cast<size_t>(random.chance(60) ? rank - 1 : random.below(rank));
  const Axis narrow = x.shape[axis];
  const int64_t count = elements(x.shape);
  const Axis wide = body.size(std::min(kMostPoints / count, kMostElements * narrow.extent / count));
  Value hidden = projected_axis(body, x, axis, wide);
  if (random.chance(70)) hidden = biased(body, hidden);
  hidden = activation(body, body.settle(tame(body, hidden)));
  if (random.chance(50)) hidden = dropped(body, body.settle(hidden));
  Value out = projected_axis(body, body.settle(hidden), axis, narrow);
  if (random.chance(70)) out = biased(body, out);
  out = tame(body, body.settle(out));
  return random.chance(50) ? sum_of(body, x, out) : out;
}

Value swiglu(Body& body, const Value& x) {
  Random& random = body.random;
  const size_t axis = x.shape.size() - 1;
  const Axis narrow = x.shape[axis];
  const int64_t count = elements(x.shape);
  const Axis wide = body.size(std::min(kMostPoints / count, kMostElements * narrow.extent / count));
  Value gate = body.settle(projected_axis(body, x, axis, wide));
  gate = {concat("silu(", gate.text, ")"), Binding::atom, gate.shape, gate.bound, false};
  body.spend(1);
  const Value up = body.settle(projected_axis(body, x, axis, wide));
  const Value hidden = body.settle(tame(body, product_of(body, gate, up)));
  const Value out = tame(body, projected_axis(body, hidden, axis, narrow));
  return random.chance(30) ? sum_of(body, x, out) : out;
}

}  // namespace millrace::random_programs
