#include "ir/score_expression.h"

#include <map>

namespace millrace {
namespace {

// Copies the nodes that are needed, each after those that it reads.
class Copier {
 public:
  Copier(const ScoreExpression& from, const std::vector<size_t>& to) : from_(from), to_(to) {}

  ScoreExpression run() {
    made_.logit = copy(from_.logit);
    if (from_.d_score) made_.d_score = copy(*from_.d_score);
    if (from_.d_term) made_.d_term = copy(*from_.d_term);
    return is_trivial() ? ScoreExpression() : std::move(made_);
  }

 private:
  bool is_trivial() const {
    const auto is = [&](size_t node, ScoreNode::Kind kind) { return made_.nodes[node].kind == kind; };
    return is(made_.logit, ScoreNode::Kind::score) && !made_.d_term &&
           (!made_.d_score || is(*made_.d_score, ScoreNode::Kind::gradient));
  }

  size_t copy(size_t node) {
    while (to_[node] != node) node = to_[node];
    if (const auto found = copies_.find(node); found != copies_.end()) return found->second;
    ScoreNode own = from_.nodes[node];
    for (size_t& input : own.inputs) input = copy(input);
    if (own.kind == ScoreNode::Kind::term) own.term = copy_term(own.term);
    made_.nodes.push_back(std::move(own));
    return copies_[node] = made_.nodes.size() - 1;
  }

  size_t copy_term(size_t term) {
    const auto [found, fresh] = terms_.try_emplace(term, made_.terms.size());
    if (fresh) made_.terms.push_back(from_.terms[term]);
    return found->second;
  }

  const ScoreExpression& from_;
  const std::vector<size_t>& to_;
  ScoreExpression made_;
  std::map<size_t, size_t> copies_;
  std::map<size_t, size_t> terms_;
};

}  // namespace

std::vector<bool> depends_on(const ScoreExpression& expression, ScoreNode::Kind kind) {
  std::vector<bool> depends;
  for (const ScoreNode& node : expression.nodes) {
    bool own = node.kind == kind;
    for (const size_t input : node.inputs) own = own || depends[input];
    depends.push_back(own);
  }
  return depends;
}

ScoreExpression replaced(const ScoreExpression& expression, const std::vector<size_t>& to) {
  return expression.nodes.empty() ? expression : Copier(expression, to).run();
}

}  // namespace millrace
