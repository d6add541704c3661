#include "codegen/cuda/attention_score.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "codegen/nest.h"
#include "codegen/recipe.h"

namespace millrace {
namespace {

constexpr int64_t kOctet = 8;          // neighbouring keys of a thread
constexpr double kLowest = -131072.0;  // raised_logit of prelude/cuda_attention_score.h

using Kind = ScoreNode::Kind;

// Whether the operator's recipe takes Operator::value as a number of the kernel.
bool takes_value(const ScoreNode& node) {
  return node.kind == Kind::apply && (node.op == OperatorKind::power || node.op == OperatorKind::power_dx);
}

Operator operator_of(const ScoreNode& node) {
  Operator op;
  op.kind = node.op;
  op.value = node.value;
  op.inputs.resize(node.inputs.size());
  return op;
}

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
    for (const int64_t stride : strides_of_term(term))
      values.push_back({TensorId(), 0x1p52 + static_cast<double>(stride)});
  }
}

size_t ScoreFormulas::position_of(TensorId tensor) const {
  return static_cast<size_t>(std::find(partition_.reads.begin(), partition_.reads.end(), tensor) -
                             partition_.reads.begin());
}

// Elements from query to query, from key to key, and along each batch index; 0 without an axis.
std::vector<int64_t> ScoreFormulas::strides_of_term(const AttentionTensor& term) const {
  const std::vector<int64_t> all = strides_of(graph_, term.tensor, layouts_[position_of(term.tensor)]);
  const auto stride = [&](int axis) { return axis < 0 ? 0 : all[static_cast<size_t>(axis)]; };
  std::vector<int64_t> made = {stride(term.axes.query), stride(term.axes.key)};
  for (const int axis : term.axes.batch) made.push_back(stride(axis));
  return made;
}

int64_t ScoreFormulas::alignment(const AttentionTensor& term, const std::vector<int64_t>& strides) const {
  constexpr int64_t kMost = 16;
  if (term.axes.key < 0 || strides[static_cast<size_t>(term.axes.key)] != 1 || partition_.attention.keys % kOctet != 0)
    return 0;
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

std::string ScoreFormulas::formula(const ScoreNode& node, size_t number) const {
  switch (node.kind) {
    case Kind::score: return "x * scale";
    case Kind::gradient: return "g";
    case Kind::number: return concat("c", number);
    case Kind::term: return concat("terms.t", node.term, ".get(l)");
    case Kind::query: return "static_cast<F>(query)";
    case Kind::key: return "static_cast<F>(key)";
    case Kind::apply: break;
  }
  std::string text = recipe_of(operator_of(node)).front().expression;
  for (size_t input = 0; input < node.inputs.size(); ++input)
    codegen::replace_all(text, concat("$", input), concat("v", node.inputs[input]));
  codegen::replace_all(text, "VALUE", concat("c", number));
  codegen::replace_all(text, "CONDITION", "key > query");
  return text;
}

std::vector<bool> ScoreFormulas::needed_for(size_t result) const {
  std::vector<bool> needed(score_.nodes.size(), false);
  needed[result] = true;
  for (size_t k = score_.nodes.size(); k-- > 0;) {
    for (const size_t input : score_.nodes[k].inputs) needed[input] = needed[input] || needed[k];
  }
  return needed;
}

std::string ScoreFormulas::function(const std::string& name, const std::string& parameters, size_t result) const {
  std::string text = concat("  template <class P>\n  MR_DEVICE float ", name, "(", parameters,
                            ", const Terms<P>& terms, int l, int query, int key) const {\n    using F = float;\n    "
                            "using E = F;\n");
  const std::vector<bool> needed = needed_for(result);
  for (size_t k = 0; k < score_.nodes.size(); ++k) {
    if (needed[k]) text += concat("    const F v", k, " = ", formula(score_.nodes[k], k), ";\n");
  }
  const std::string value = concat("v", result);
  return concat(text, "    return ",
                name == "logit" && raises_logits() ? concat("mr::raised_logit(", value, ")") : value, ";\n  }\n");
}

// Whether a logit may be so low that kernels must raise it: by a number, or by a tensor that is not trained.
bool ScoreFormulas::raises_logits() const {
  const bool by_number = std::any_of(score_.nodes.begin(), score_.nodes.end(), [&](const ScoreNode& node) {
    if (node.kind != Kind::number) return false;
    const Tensor& tensor = graph_.tensor(node.number);
    return tensor.role == TensorRole::scalar || (tensor.value < kLowest && !std::isinf(tensor.value));
  });
  return by_number || std::any_of(score_.terms.begin(), score_.terms.end(), [&](const AttentionTensor& term) {
           const Tensor& tensor = graph_.tensor(term.tensor);
           return is_floating(tensor.dtype) && tensor.fixed;
         });
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
