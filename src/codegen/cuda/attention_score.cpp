#include "codegen/cuda/attention_score.h"

#include <algorithm>
#include <cmath>

#include "base/position.h"
#include "base/text.h"
#include "codegen/nest.h"
#include "codegen/score_text.h"

namespace millrace {
namespace {

constexpr int64_t kOctet = 8;  // neighbouring keys of a thread

using Kind = ScoreNode::Kind;

}  // namespace

ScoreFormulas::ScoreFormulas(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                             std::string integer)
    : graph_(graph),
      partition_(partition),
      score_(partition.attention.score),
      layouts_(layouts),
      integer_(std::move(integer)) {}

void ScoreFormulas::add_values(std::vector<KernelValue>& values) {
  for (const ScoreNode& node : score_.nodes) {
    numbers_.push_back(values.size());
    if (node.kind == Kind::number) values.push_back({node.number, 0});
    if (takes_value(node)) values.push_back({TensorId(), node.value});
  }
  for (const AttentionTensor& term : score_.terms) {
    strides_.push_back(values.size());
    for (const int64_t stride : strides_of_term(term)) values.push_back({TensorId(), encode_integer(stride)});
  }
}

size_t ScoreFormulas::position_of(TensorId tensor) const { return position_in(partition_.reads, tensor); }

// Elements from query to query, from key to key, and along each batch index; 0 without an axis.
std::vector<int64_t> ScoreFormulas::strides_of_term(const AttentionTensor& term) const {
  const std::vector<int64_t> all = strides_of(graph_, term.tensor, layouts_[position_of(term.tensor)]);
  const auto stride = [&](int axis) { return axis < 0 ? 0 : all[as_index(axis)]; };
  std::vector<int64_t> made = {stride(term.axes.query), stride(term.axes.key)};
  for (const int axis : term.axes.batch) made.push_back(stride(axis));
  return made;
}

int64_t ScoreFormulas::alignment(const AttentionTensor& term, const std::vector<int64_t>& strides) const {
  constexpr int64_t kMost = 16;
  if (term.axes.key < 0 || strides[as_index(term.axes.key)] != 1 || partition_.attention.keys % kOctet != 0) return 0;
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    const bool one = graph_.extent(graph_.tensor(term.tensor).dims[axis]) == 1;
    if (static_cast<int>(axis) != term.axes.key && !one && strides[axis] % kOctet != 0) return 0;
  }
  return std::min(kMost, kOctet * bytes_of(graph_.tensor(term.tensor).dtype));
}

std::string ScoreFormulas::term_type(const AttentionTensor& term) const {
  return concat("mr::ScoreTerm<", codegen::storage_name(graph_.tensor(term.tensor).dtype), ", ", integer_, ", ",
                term.axes.query >= 0 ? "true" : "false", ", ", term.axes.key >= 0 ? "true" : "false", ", ",
                alignment(term, strides_of(graph_, term.tensor, layouts_[position_of(term.tensor)])), ">");
}

std::string ScoreFormulas::function(const std::string& name, const std::string& parameters, size_t result) const {
  std::string text = concat("  template <class P>\n  MR_DEVICE float ", name, "(", parameters,
                            ", const Terms<P>& terms, int l, int query, int key) const {\n    using F = float;\n    "
                            "using E = F;\n");
  const ScoreTexts texts{"x * scale",
                         "g",
                         [](size_t node) { return concat("c", node); },
                         [](size_t term) { return concat("terms.t", term, ".get(l)"); },
                         "static_cast<F>(query)",
                         "static_cast<F>(key)",
                         "key > query"};
  const std::vector<bool> needed = needed_for(score_, result);
  for (size_t k = 0; k < score_.nodes.size(); ++k) {
    if (needed[k]) text += concat("    const F v", k, " = ", score_text(score_.nodes[k], k, texts), ";\n");
  }
  const std::string value = concat("v", result);
  return concat(text, "    return ",
                name == "logit" && raises_logits(graph_, score_) ? concat("mr::raised_logit(", value, ")") : value,
                ";\n  }\n");
}

// Whether a logit may be -inf.
bool ScoreFormulas::hides_scores() const {
  return std::any_of(score_.nodes.begin(), score_.nodes.end(), [&](const ScoreNode& node) {
    if (node.kind == Kind::apply) return node.op == OperatorKind::causal_mask || node.op == OperatorKind::log;
    if (node.kind == Kind::term) return is_floating(graph_.tensor(score_.terms[node.term].tensor).dtype);
    return node.kind == Kind::number &&
           (graph_.tensor(node.number).role == TensorRole::scalar || std::isinf(graph_.tensor(node.number).value));
  });
}

std::string ScoreFormulas::definition() const {
  std::string text = concat(
      "struct MILLRACE_KERNEL_score {\n  static constexpr bool kPlain = false;\n  static constexpr bool kHides = ",
      hides_scores() ? 1 : 0, ";\n");
  std::string members;
  std::string loads;
  for (size_t k = 0; k < score_.terms.size(); ++k) {
    text += concat("  using T", k, " = ", term_type(score_.terms[k]), ";\n  T", k, " t", k, ";\n");
    members += concat("    mr::TermValues<T", k, ", P> t", k, ";\n");
    loads += concat("    to.t", k, ".template load<S>(t", k, ", places);\n");
  }
  for (size_t k = 0; k < score_.nodes.size(); ++k) {
    if (score_.nodes[k].kind == Kind::number || takes_value(score_.nodes[k])) text += concat("  float c", k, ";\n");
  }
  text += concat("  float scale;\n  template <class P>\n  struct Terms {\n", members,
                 "  };\n  template <class S, class P>\n  MR_DEVICE void load(Terms<P>& to, const P& places) const {\n",
                 loads, "  }\n", function("logit", "float x", score_.logit));
  if (score_.d_score) text += function("d_score", "float x, float g", *score_.d_score);
  if (score_.d_term) text += function("d_term", "float x, float g", *score_.d_term);
  return text + "};\n";
}

std::string ScoreFormulas::initializer(const HeadOffset& offset_of) const {
  std::vector<std::string> members;
  for (size_t k = 0; k < score_.terms.size(); ++k) {
    const AttentionTensor& term = score_.terms[k];
    const auto stride = [&](size_t number) {
      return concat("mr::decode_integer(args.values[", strides_[k] + number, "])");
    };
    const std::string element = codegen::storage_name(graph_.tensor(term.tensor).dtype);
    members.push_back(concat("{static_cast<const ", element, "*>(args.tensors[", position_of(term.tensor), "]) + (",
                             offset_of(term.axes, [&](size_t index) { return stride(2 + index); }), "), S::I(",
                             stride(0), "), S::I(", stride(1), ")}"));
  }
  for (size_t k = 0; k < score_.nodes.size(); ++k) {
    if (score_.nodes[k].kind == Kind::number || takes_value(score_.nodes[k]))
      members.push_back(concat("static_cast<float>(args.values[", numbers_[k], "])"));
  }
  members.emplace_back("static_cast<float>(scale)");
  return concat("const MILLRACE_KERNEL_score score{", join(members, ", "), "};");
}

}  // namespace millrace
