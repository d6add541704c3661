#include "codegen/cpu/attention_score.h"

#include <algorithm>

#include "base/position.h"
#include "base/text.h"
#include "codegen/nest.h"
#include "codegen/score_text.h"

namespace millrace {

void CpuScoreFormulas::add_values(std::vector<KernelValue>& values) {
  for (const ScoreNode& node : score_.nodes) {
    numbers_.push_back(values.size());
    if (node.kind == ScoreNode::Kind::number) values.push_back({node.number, 0});
    if (takes_value(node)) values.push_back({TensorId(), node.value});
  }
  for (const AttentionTensor& term : score_.terms) {
    const std::vector<int64_t> all = strides_of(graph_, term.tensor, layouts_[position_of(term.tensor)]);
    const auto add = [&](int axis) {
      values.push_back({TensorId(), axis < 0 ? 0 : static_cast<double>(all[as_index(axis)])});
    };
    strides_.push_back(values.size());
    add(term.axes.query);
    add(term.axes.key);
    for (const int axis : term.axes.batch) add(axis);
  }
}

size_t CpuScoreFormulas::position_of(TensorId tensor) const { return position_in(partition_.reads, tensor); }

bool CpuScoreFormulas::has_number(size_t node) const {
  return score_.nodes[node].kind == ScoreNode::Kind::number || takes_value(score_.nodes[node]);
}

std::string CpuScoreFormulas::function(const std::string& name, const std::string& parameters, size_t result) const {
  const ScoreTexts texts{"x",
                         "g",
                         [](size_t node) { return concat("mr::splat<E>(c", node, ")"); },
                         [](size_t term) { return concat("t", term, ".at(query, key, lanes)"); },
                         "mr::splat<E>(F(query))",
                         "mr::number<E>(mr::positions<E>(key))",
                         "mr::position<E>(query) < mr::positions<E>(key)"};
  std::string text =
      concat("  MR_INLINE mr::VecF ", name, "(", parameters,
             ", long query, long key, long lanes) const {\n    using F = float;\n    using E = mr::VecF;\n");
  const std::vector<bool> needed = needed_for(score_, result);
  for (size_t k = 0; k < score_.nodes.size(); ++k) {
    if (needed[k]) text += concat("    const E v", k, " = ", score_text(score_.nodes[k], k, texts), ";\n");
  }
  const std::string value = concat("v", result);
  const bool raised = name == "logit" && raises_logits(graph_, score_);
  return concat(text, "    return ", raised ? concat("mr::raised_logit(", value, ")") : value, ";\n  }\n");
}

std::string CpuScoreFormulas::definition(const std::string& name) const {
  std::string text = concat("struct ", name, " {\n");
  for (size_t k = 0; k < score_.terms.size(); ++k)
    text +=
        concat("  mr::ScoreTerm<", codegen::storage_name(graph_.tensor(score_.terms[k].tensor).dtype), "> t", k, ";\n");
  for (size_t k = 0; k < score_.nodes.size(); ++k) {
    if (has_number(k)) text += concat("  float c", k, ";\n");
  }
  text += function("logit", "mr::VecF x", score_.logit);
  if (score_.d_score) text += function("d_score", "mr::VecF x, mr::VecF g", *score_.d_score);
  if (score_.d_term) text += function("d_term", "mr::VecF x, mr::VecF g", *score_.d_term);
  return text + "};\n";
}

std::string CpuScoreFormulas::members(const HeadOffset& head_offset) const {
  std::vector<std::string> members;
  for (size_t k = 0; k < score_.terms.size(); ++k) {
    const AttentionTensor& term = score_.terms[k];
    const std::string element = codegen::storage_name(graph_.tensor(term.tensor).dtype);
    members.push_back(concat("{static_cast<const ", element, "*>(args->tensors[", position_of(term.tensor), "]) + ",
                             head_offset(term.axes, strides_[k] + 2), ", value(", strides_[k], "), value(",
                             strides_[k] + 1, ")}"));
  }
  for (size_t k = 0; k < score_.nodes.size(); ++k) {
    if (has_number(k)) members.push_back(concat("float(args->values[", numbers_[k], "])"));
  }
  return concat("{", join(members, ", "), "}");
}

}  // namespace millrace
