#include "ir/attention.h"

#include <algorithm>
#include <optional>
#include <set>

#include "ir/backward_match.h"
#include "ir/score_builder.h"

namespace millrace {
namespace {

// Matches the attention around one softmax.
class Matcher : public BackwardMatch {
 public:
  // `kept`: tensors that operators outside need too, which attentions therefore read.
  Matcher(const AttentionSurroundings& around, OperatorId softmax, const std::set<TensorId>& kept)
      : BackwardMatch(around, softmax), kept_(kept) {}

  // Why this is not an attention; nullptr if it is one: then pattern() has it.
  const char* run() {
    const char* reason = match_forward();
    if (reason == nullptr) reason = match_backward();
    if (reason == nullptr) reason = build_expressions();
    if (reason == nullptr) reason = check_readers();
    if (reason != nullptr) return reason;
    for (std::vector<OperatorId>* const operators : {&made_.forward, &made_.backward})
      std::sort(operators->begin(), operators->end());
    return nullptr;
  }

  // Tensors that the attention would compute itself, but others read too: match again with these kept.
  const std::set<TensorId>& needed_outside() const { return needed_outside_; }

 private:
  // --- The expression of the scores ---
  const char* build_expressions() {
    constexpr const char* kOtherTerm = "a term of its scores does not run along their indices";
    ScoreBuilder forward = builder();
    ScoreBuilder backward = builder();
    const auto read = [&](ScoreBuilder& by, const Access& access, OperatorId reader) {
      const std::optional<Roles> indices = indices_of(reader);
      return indices ? by.add(access, *indices) : std::nullopt;
    };
    for (ScoreBuilder* const by : {&forward, &backward}) {
      const std::optional<size_t> logit = read(*by, op(made_.softmax).inputs[0], made_.softmax);
      if (!logit) return kOtherTerm;
      by->expression().logit = *logit;
    }
    if (d_scores_.valid()) {
      const OperatorId reader = producers_[(made_.d_q.tensor.valid() ? made_.d_q : made_.d_k).tensor.at()];
      const std::vector<Access>& inputs = op(reader).inputs;
      backward.expression().d_score = read(backward, inputs[inputs[0].tensor == d_scores_ ? 0 : 1], reader);
      if (!backward.expression().d_score) return kOtherTerm;
    }
    if (d_term_.valid()) {
      backward.expression().d_term = read(backward, op(d_term_).inputs[0], d_term_);
      if (!backward.expression().d_term) return kOtherTerm;
    }
    std::set<OperatorId> applied = forward.applied();
    std::set<OperatorId> positions = forward.positions();
    applied.insert(backward.applied().begin(), backward.applied().end());
    positions.insert(backward.positions().begin(), backward.positions().end());
    take_operators(applied, positions);
    take_expressions(forward.expression(), backward.expression());
    return nullptr;
  }

  ScoreBuilder builder() const {
    ScoreBuilder made(graph_, producers_, made_.batch.size(), kept_);
    made.give(result_of(scores_), roles_.at(result_of(scores_)), ScoreNode::Kind::score);
    if (!d_path_.empty()) made.give(d_path_.front(), roles_.at(d_path_.front()), ScoreNode::Kind::gradient);
    for (const PathStep& step : path_) made.require(result_of(step.op));
    for (const TensorId gradient : d_path_) made.require(gradient);
    for (const auto& [copy, original] : recomputed_) made.add_copy(copy, original);
    return made;
  }

  // Adds the operators that compute terms and positions, unless others read their results.
  void take_operators(const std::set<OperatorId>& applied, const std::set<OperatorId>& positions) {
    std::set<OperatorId> taken;
    for (const OperatorId id : applied) {
      if (!is_own(id)) taken.insert(id);
    }
    for (const OperatorId id : taken) take_operator(id);
    for (const OperatorId id : taken) {
      if (is_read_outside(id)) needed_outside_.insert(result_of(id));
    }
    for (const OperatorId id : positions) {
      if (is_read_outside(id)) {
        made_.repeated.push_back(id);
      } else {
        take_operator(id);
      }
    }
  }

  bool is_read_outside(OperatorId id) const {
    const std::vector<OperatorId>& readers = readers_[result_of(id).at()];
    return leaves_[result_of(id).at()] ||
           std::any_of(readers.begin(), readers.end(), [&](OperatorId reader) { return !is_own(reader); });
  }

  void take_operator(OperatorId id) {
    (op(id).pass == Pass::forward ? made_.forward : made_.backward).push_back(id);
    inside_.insert(result_of(id));
  }

  void take_expressions(ScoreExpression& forward, ScoreExpression& backward) {
    const int64_t queries = graph_.extent(made_.query);
    const int64_t keys = graph_.extent(made_.key);
    made_.window = take_window(graph_, queries, keys, forward);
    take_window(graph_, queries, keys, backward);
    made_.score = std::move(forward);
    made_.gradients = std::move(backward);
  }

  // The intermediate tensors are never in memory, so no other operator may read them, nor the mask.
  const char* check_readers() {
    if (made_.mask.tensor.valid()) inside_.insert(made_.mask.tensor);
    std::vector<OperatorId> own = made_.forward;
    own.insert(own.end(), made_.backward.begin(), made_.backward.end());
    return read_by_others(own, {Pass::forward, Pass::backward});
  }

  const std::set<TensorId>& kept_;
  std::set<TensorId> needed_outside_;
};

void find_attention(const AttentionSurroundings& around, OperatorId softmax, FoundAttentions& found) {
  std::set<TensorId> kept;
  while (true) {
    Matcher matcher(around, softmax, kept);
    if (!matcher.is_close()) return;
    const char* const reason = matcher.run();
    if (!matcher.needed_outside().empty()) {
      kept.insert(matcher.needed_outside().begin(), matcher.needed_outside().end());
      continue;
    }
    if (reason != nullptr) {
      found.rejected.push_back({softmax, reason});
    } else {
      found.attentions.push_back(matcher.pattern());
    }
    return;
  }
}

}  // namespace

FoundAttentions find_attentions(const Graph& graph, const std::vector<bool>& leaves) {
  FoundAttentions found;
  const std::vector<OperatorId> producers = producers_of(graph);
  const std::vector<std::vector<OperatorId>> readers = readers_of(graph);
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    if (graph.operators[k].kind != OperatorKind::softmax || graph.operators[k].pass != Pass::forward) continue;
    find_attention({graph, leaves, producers, readers}, OperatorId(k), found);
  }
  return found;
}

}  // namespace millrace
