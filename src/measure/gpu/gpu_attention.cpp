// Over 500 lines, because one class holds the tensors of the heads that are computed together, and both passes use
// them.
#include "measure/gpu/gpu_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/position.h"
#include "measure/attention_errors.h"
#include "measure/gpu/attention_row_tasks.h"
#include "measure/score_values.h"

namespace millrace {
namespace {

using oracle::Task;

class GpuHeads : public AttentionRowTasks {
 public:
  GpuHeads(const OracleContext& context, const Graph& graph, const DrawRules& rules, const Partition& partition,
           GpuReferenceData& data)
      : AttentionRowTasks(context, graph, partition, data),
        rules_(rules),
        scale_(factor_of(graph, attention_.scales, data.numbers)),
        type_(graph.tensor(attention_.tensors[Attention::q]).dtype) {}

  Result<Done> run() {
    if (Result<Done> done = scale_queries(); !done) return done;
    if (Result<Done> done = show_first_keys(); !done) return done;
    if (Result<Done> done = make_mask(); !done) return done;
    if (Result<Done> done = make_outputs(); !done) return done;
    choose_chunk();
    if (Result<Done> done = make_temporaries(); !done) return done;
    std::vector<int64_t> point(looped_.size(), 0);
    for (bool more = true; more;) {
      if (Result<Done> done = compute(point); !done) return done;
      more = false;
      for (size_t k = looped_.size(); k-- > 0 && !more;) {
        more = ++point[k] < attention_.batch[looped_[k]];
        if (!more) point[k] = 0;
      }
    }
    return context_.gpu.wait();  // before temporaries are freed
  }

 private:
  Result<Done> make_temporaries() {
    struct Wanted {
      Placed* to;
      oracle::Format format;
      Indices indices;
    };
    std::vector<Wanted> wanted = {
        {&weights_, oracle::kExact, {query_, key_}}, {&dropped_, oracle::kBounded, {query_, key_}},
        {&keys_, oracle::kExact, {inner_, key_}},    {&largest_, oracle::kExact, {query_}},
        {&total_, oracle::kExact, {query_}},         {&log_sum_, oracle::kExact, {query_}},
        {&largest_k_, oracle::kExact, {inner_}},     {&score_error_, oracle::kExact, {query_}},
        {&relative_, oracle::kExact, {query_}},      {&output_, oracle::kBounded, {query_, value_}},
        {&statistics_, oracle::kBounded, {query_}}};
    if (attention_.has_score_expression()) {
      wanted.push_back({&scores_, oracle::kBounded, {query_, key_}});
      wanted.push_back({&errors_, oracle::kExact, {query_, key_}});
      wanted.push_back({&d_logits_, oracle::kBounded, {query_, key_}});
      nodes_.resize(attention_.score.nodes.size());
      for (size_t k = 0; k < nodes_.size(); ++k) {
        if (attention_.score.nodes[k].kind == ScoreNode::Kind::apply)
          wanted.push_back({&nodes_[k], oracle::kBounded, {query_, key_}});
      }
    }
    if (attention_.backward) {
      const std::vector<Wanted> more = {
          {&gradients_, oracle::kExact, {query_, key_}}, {&d_scores_, oracle::kBounded, {query_, key_}},
          {&values_, oracle::kExact, {value_, key_}},    {&largest_v_, oracle::kExact, {value_}},
          {&inner_product_, oracle::kExact, {query_}},   {&gradient_error_, oracle::kExact, {query_}},
          {&inner_error_, oracle::kExact, {query_}},     {&output_error_, oracle::kExact, {query_, value_}},
          {&d_q_, oracle::kBounded, {query_, inner_}},   {&d_k_, oracle::kBounded, {key_, inner_}},
          {&d_v_, oracle::kBounded, {key_, value_}}};
      wanted.insert(wanted.end(), more.begin(), more.end());
    }
    for (const auto& [operand, to] : {std::pair(Attention::q, &q_), std::pair(Attention::k, &k_)}) {
      if (!attention_.rows[operand].empty()) wanted.push_back({to, oracle::kBounded, {row_index_of(operand), inner_}});
    }
    for (const Wanted& each : wanted) {
      Result<Placed> made = temporary(each.format, each.indices);
      if (!made) return made.error();
      *each.to = std::move(*made);
    }
    if (Result<Done> done = make_row_temporaries(); !done) return done;
    if (!attention_.has_score_expression()) return Done{};
    return in_order({[&] { return make_positions(query_); }, [&] { return make_positions(key_); }});
  }

  // The positions of queries or keys, as numbers.
  Result<Done> make_positions(size_t index) {
    std::vector<double> numbers(static_cast<size_t>(extents_[index]));
    std::iota(numbers.begin(), numbers.end(), 0.0);
    const auto bytes = static_cast<int64_t>(numbers.size() * sizeof(double));
    Result<GpuMemory> made = context_.memory(bytes);
    if (!made) return made.error();
    if (Result<Done> copied = context_.gpu.copy_in(made->data(), numbers.data(), bytes); !copied) return copied;
    temporaries_.push_back(std::move(*made));
    Walk walk{std::vector<int64_t>(extents_.size(), 0), 0};
    walk.strides[index] = 1;
    (index == query_ ? query_positions_ : key_positions_) = placed(temporaries_.back(), std::move(walk));
    return Done{};
  }

  // --- Inputs and outputs ---

  Result<Done> scale_queries() {
    const size_t position = position_in(partition_.reads, attention_.tensors[Attention::q]);
    Task made = make_flat_task(oracle::kScore, elements_of(graph_, partition_.reads[position]), 1, 1);
    place_values(data_.inputs[position], made.in[0]);
    place_values(data_.inputs[position], made.out[0]);
    const Result<double> size_of_q = size_of_elements(Attention::q, rules_);
    const Result<double> size_of_k = size_of_elements(Attention::k, rules_);
    if (!size_of_q) return size_of_q.error();
    if (!size_of_k) return size_of_k.error();
    const double product = *size_of_q * *size_of_k;
    const double slope = slope_of(graph_, attention_.score);
    made.number = std::ldexp(1, power_of_queries(scale_ * slope, attention_.inner, product));
    return context_.oracle.run(TaskKind::map, made, context_.memory);
  }

  // A drawn mask may hide all keys of a query, whose results would be NaN: the first key is visible.
  Result<Done> show_first_keys() {
    for (size_t k = 0; k < attention_.score.terms.size(); ++k) {
      const std::optional<double> visible = visible_value(graph_, attention_.score, k);
      const AttentionTensor& term = attention_.score.terms[k];
      if (!visible || term.axes.key < 0) continue;
      Indices others;
      for (size_t index = 0; index < query_; ++index) {
        if (term.axes.batch[index] >= 0) others.push_back(index);
      }
      if (term.axes.query >= 0) others.push_back(query_);
      const Placed to = term_values(term);
      if (Result<Done> done = task_over(TaskKind::map, oracle::kFill, others, {}, {}, {&to},
                                        [&](Task& made) { made.number = *visible; });
          !done)
        return done;
    }
    return Done{};
  }

  Placed mask() const {
    if (!attention_.mask.valid()) return one_number(1, extents_.size());
    const AttentionAxes& axes = attention_.mask_axes;
    return placed(*mask_, walk_of(attention_.mask, axes, query_, key_, axes.query, axes.key));
  }

  Result<Done> make_mask() {
    if (!attention_.mask.valid()) return Done{};
    const size_t position = position_in(partition_.reads, attention_.mask);
    if (position < partition_.reads.size()) {
      mask_ = &data_.inputs[position];
      return Done{};
    }
    Result<GpuMemory> drawn = draw_gpu_mask(context_, graph_, attention_.mask, data_.numbers.random);
    if (!drawn) return drawn.error();
    own_mask_ = std::move(*drawn);
    mask_ = &own_mask_;
    return Done{};
  }

  Result<Done> make_outputs() {
    data_.expected.clear();
    for (const TensorId tensor : partition_.writes) {
      ExpectedOnGpu& expected = data_.expected.emplace_back();
      const int64_t elements = elements_of(graph_, tensor);
      const OracleTensor start = tensor == attention_.mask
                                     ? OracleTensor::of_values(static_cast<double*>(mask_->data()))
                                     : OracleTensor::of_number(0);
      const Result<bool> taken = take_expected(context_, start, elements, graph_.tensor(tensor).dtype, 1, expected);
      if (!taken) return taken.error();
    }
    return Done{};
  }

  // Writes what was computed for the chunk to the expected values and tolerances.
  Result<Done> expect(Attention::Operand operand, const Indices& indices, const Placed& computed) const {
    return expect_columns(operand, indices, computed, 0, 1);
  }
  // The same for columns first, first + step, ….
  Result<Done> expect_columns(Attention::Operand operand, const Indices& indices, const Placed& computed, int64_t first,
                              int64_t step) const {
    const TensorId tensor = attention_.tensors[operand];
    const ExpectedOnGpu& expected = data_.expected[position_in(partition_.writes, tensor)];
    const Placed values = columns_at(at_point(placed(expected.values, walk_of(operand))), first, step);
    const Placed tolerances = columns_at(at_point(placed(expected.tolerances, walk_of(operand))), first, step);
    return task(TaskKind::map, oracle::kTolerance, indices, {}, {&computed}, {&values, &tolerances}, [&](Task& made) {
      const StorageError error = storage_error_of(graph_.tensor(tensor).dtype);
      made.scale = 1;
      made.numbers[0] = error.relative;
      made.numbers[1] = error.absolute;
    });
  }

  // Stores an input of backward, rounded to its type.
  Result<Done> give(Attention::Operand operand, const Indices& indices, const Placed& computed) const {
    const Placed to = at_point(input(operand));
    return map(oracle::kRound, indices, {&computed}, to,
               [&](Task& made) { round_to(graph_.tensor(attention_.tensors[operand]).dtype, made); });
  }

  // --- One chunk ---

  Result<Done> compute(const std::vector<int64_t>& point) {
    point_ = point;
    if (Result<Done> done = find_rows(Attention::q, q_); !done) return done;
    if (Result<Done> done = find_rows(Attention::k, k_); !done) return done;
    v_ = at_point(input(Attention::v));
    drawn_mask_ = at_point(mask());
    place_nodes();
    const AttentionErrors errors(attention_);
    if (Result<Done> done = find_weights(errors); !done) return done;
    if (Result<Done> done = find_output(errors); !done) return done;
    return attention_.backward ? find_gradients(errors) : Result<Done>(Done{});
  }

  // Expects the gradient of q or k, or what is stored instead.
  Result<Done> expect_rows(Attention::Operand operand, const Indices& indices, const Placed& gradient) {
    if (attention_.rows[operand].empty()) return expect(operand, indices, gradient);
    for (const RowPiece& piece : attention_.rows[operand].pieces) {
      const auto store = [&](const Placed& last) {
        return expect_columns(operand, indices, last, piece.first, piece.step);
      };
      if (Result<Done> done = with_piece(operand, piece, &gradient, store); !done) return done;
    }
    return Done{};
  }

  Result<Done> find_weights(const AttentionErrors& errors) const {
    const AttentionErrors::ScoreError error = errors.of_scores(scale_);
    return in_order({[&] {
                       return map(static_cast<int>(OperatorKind::copy), {inner_, key_}, {&k_}, keys_);
                     },
                     [&] {
                       return contract({query_, key_}, {inner_}, q_, keys_, weights_);
                     },
                     [&] { return fold(oracle::kLargestMagnitude, {inner_}, key_, {&k_}, largest_k_); },
                     [&] {
                       return fold(oracle::kMagnitude, {query_}, inner_, {&q_, &largest_k_}, score_error_);
                     },
                     [&] {
                       return linear({query_}, score_error_, error.per_magnitude, one_number(0, extents_.size()), 0, 0,
                                     score_error_);
                     },
                     [&] { return add_operand_errors(q_, largest_k_, scale_, score_error_); },
                     [&] { return find_logits(); },
                     [&] { return fold(oracle::kLargest, {query_}, key_, {&weights_}, largest_); },
                     [&] {
                       return fold(oracle::kShiftedExponential, {query_}, key_, {&weights_, &largest_}, total_);
                     },
                     [&] {
                       return map(oracle::kWeight, {query_, key_}, {&weights_, &largest_, &total_}, weights_);
                     },
                     [&] {
                       return map(oracle::kLogSum, {query_}, {&total_, &largest_}, log_sum_);
                     },
                     [&] { return find_logit_errors(); },
                     [&] { return linear({query_}, score_error_, 1, log_sum_, error.per_log_sum, 0, score_error_); }});
  }

  // --- The expression of the scores ---

  // Multiplies products by a factor, and hides those outside the window.
  enum class Outside { stays, is_hidden };
  Result<Done> score(const Placed& from, double factor, Outside outside) const {
    return map(oracle::kScore, {query_, key_}, {&from}, weights_, [&](Task& made) {
      const KeyWindow window = attention_.keys_seen();
      made.number = factor;
      made.is_boolean = outside == Outside::is_hidden && !window.is_everything() ? 1 : 0;
      made.numbers[0] = static_cast<double>(window.first);
      made.numbers[1] = static_cast<double>(window.last);
    });
  }

  // Turns weights_ from products into logits.
  Result<Done> find_logits() const {
    if (!attention_.has_score_expression()) return score(weights_, scale_, Outside::is_hidden);
    return in_order({[&] { return score(weights_, scale_, Outside::stays); },
                     [&] {
                       return map(oracle::kWithError, {query_, key_}, {&weights_, &score_error_}, scores_);
                     },
                     [&] { return apply_nodes(Stage::logits); },
                     [&] { return score(node(attention_.score.logit), 1, Outside::is_hidden); }});
  }

  // The largest error of a row's logits, among those with a weight.
  Result<Done> find_logit_errors() const {
    if (!attention_.has_score_expression()) return Done{};
    return in_order(
        {[&] {
           return map(oracle::kErrorOfLogit, {query_, key_}, {&node(attention_.score.logit), &weights_}, errors_);
         },
         [&] { return fold(oracle::kLargest, {query_}, key_, {&errors_}, score_error_); }});
  }

  // Places numbers, and the terms at this point.
  void place_nodes() {
    for (size_t k = 0; k < nodes_.size(); ++k) {
      const ScoreNode& own = attention_.score.nodes[k];
      if (own.kind == ScoreNode::Kind::number)
        nodes_[k] = one_number(number_of_node(graph_, own, data_.numbers), extents_.size());
      if (own.kind == ScoreNode::Kind::term) nodes_[k] = at_point(term_values(attention_.score.terms[own.term]));
    }
  }

  const Placed& node(size_t k) const {
    switch (attention_.score.nodes[k].kind) {
      case ScoreNode::Kind::score: return scores_;
      case ScoreNode::Kind::gradient: return d_logits_;
      case ScoreNode::Kind::query: return query_positions_;
      case ScoreNode::Kind::key: return key_positions_;
      default: return nodes_[k];
    }
  }

  // Runs the operators that do not depend on the logits' gradients, or those that do.
  enum class Stage { logits, gradients };
  Result<Done> apply_nodes(Stage stage) const {
    constexpr double kRoundoff = 0x1p-24;  // of float32
    const std::vector<bool> late = depends_on(attention_.score, ScoreNode::Kind::gradient);
    for (size_t k = 0; k < nodes_.size(); ++k) {
      const ScoreNode& own = attention_.score.nodes[k];
      if (own.kind != ScoreNode::Kind::apply || late[k] != (stage == Stage::gradients)) continue;
      std::vector<const Placed*> inputs;
      for (const size_t input : own.inputs) inputs.push_back(&node(input));
      const auto change = [&](Task& made) {
        made.number = own.value;
        made.roundoff = kRoundoff;
      };
      if (Result<Done> done = map(static_cast<int>(own.op), {query_, key_}, inputs, nodes_[k], change); !done)
        return done;
    }
    return Done{};
  }

  // Computes d_scores_ from the gradients of the logits, scaled and rounded; and the gradient of a term.
  Result<Done> find_expression_gradients() const {
    return in_order({[&] { return apply_nodes(Stage::gradients); },
                     [&] {
                       if (!attention_.score.d_score) return Result<Done>(Done{});
                       return map(oracle::kScaledGradient, {query_, key_}, {&node(*attention_.score.d_score)},
                                  d_scores_, [&](Task& made) {
                                    const StorageError error = storage_error_of(type_);
                                    made.number = scale_;
                                    made.numbers[0] = error.relative;
                                    made.numbers[1] = error.absolute;
                                    made.numbers[2] = error.absolute;
                                  });
                     },
                     [&] { return attention_.d_term.valid() ? expect_term_gradient() : Result<Done>(Done{}); }});
  }

  Result<Done> expect_term_gradient() const {
    Indices kept;
    Indices summed;
    for (const size_t k : chunk_) (lacks_term(k) ? summed : kept).push_back(k);
    kept.insert(kept.end(), {query_, key_});
    const AttentionAxes& axes = attention_.d_term_axes;
    const Walk walk = walk_of(attention_.d_term, axes, query_, key_, axes.query, axes.key);
    const ExpectedOnGpu& expected = data_.expected[position_in(partition_.writes, attention_.d_term)];
    const Placed values = at_point(placed(expected.values, walk));
    const Placed tolerances = at_point(placed(expected.tolerances, walk));
    Result<GpuMemory> sums = context_.memory(points_of(extents_, kept) * kBytesOfNumber);
    if (!sums) return sums.error();
    Placed total = placed(*sums, row_major(extents_, kept));
    total.tensor.format = oracle::kBounded;
    const Placed& own = node(*attention_.score.d_term);
    const auto stored = [&](Task& made) {
      const StorageError error = storage_error_of(graph_.tensor(attention_.d_term).dtype);
      made.scale = 1;
      made.numbers[0] = error.relative;
      made.numbers[1] = error.absolute;
    };
    Result<Done> done = task_over(TaskKind::fold, oracle::kValue, kept, summed, {&own}, {&total},
                                  [](Task& made) { made.roundoff = 0x1p-24; });
    if (done) done = task_over(TaskKind::map, oracle::kTolerance, kept, {}, {&total}, {&values, &tolerances}, stored);
    if (done) done = context_.gpu.wait();  // before the sums are freed
    return done;
  }

  // A weight after the dropout, with the relative error in relative_.
  Result<Done> drop() const {
    return map(oracle::kDropped, {query_, key_}, {&weights_, &drawn_mask_, &relative_}, dropped_, [&](Task& made) {
      const StorageError error = storage_error_of(type_);
      made.numbers[0] = error.relative;
      made.numbers[1] = error.absolute;
      made.numbers[2] = error.absolute;
    });
  }

  Result<Done> find_output(const AttentionErrors& errors) {
    const double constant = errors.of_exponential() + errors.of_sum();
    return in_order({[&] { return linear({query_}, score_error_, 2, log_sum_, 0, 2 * constant, relative_); },
                     [&] { return drop(); },
                     [&] {
                       return contract({query_, value_}, {key_}, dropped_, v_, output_);
                     },
                     [&] {
                       return attention_.backward ? give(Attention::o, {query_, value_}, output_)
                                                  : expect(Attention::o, {query_, value_}, output_);
                     },
                     [&] { return linear({query_}, score_error_, 1, log_sum_, 0, constant, relative_); },
                     [&] {
                       return map(oracle::kWithError, {query_}, {&log_sum_, &relative_}, statistics_);
                     },
                     [&] {
                       return attention_.backward ? give(Attention::log_sums, {query_}, statistics_)
                                                  : expect(Attention::log_sums, {query_}, statistics_);
                     }});
  }

  Result<Done> find_gradients(const AttentionErrors& errors) {
    const Placed d_o = at_point(input(Attention::d_o));
    const Placed none = one_number(0, extents_.size());
    const StorageError stored = storage_error_of(graph_.tensor(attention_.tensors[Attention::o]).dtype);
    const AttentionErrors::WeightError weight = errors.of_weights();
    return in_order(
        {[&] {
           return map(static_cast<int>(OperatorKind::copy), {value_, key_}, {&v_}, values_);
         },
         [&] {
           return contract({query_, key_}, {value_}, d_o, values_, gradients_);
         },
         [&] {
           return map(static_cast<int>(OperatorKind::multiply), {query_, key_}, {&gradients_, &drawn_mask_},
                      gradients_);
         },
         [&] {
           return fold(oracle::kProduct, {query_}, key_, {&weights_, &gradients_}, inner_product_);
         },
         [&] { return fold(oracle::kLargestMagnitude, {value_}, key_, {&v_}, largest_v_); },
         [&] {
           return fold(oracle::kMagnitude, {query_}, value_, {&d_o, &largest_v_}, gradient_error_);
         },
         [&] { return linear({query_}, gradient_error_, errors.of_values(), none, 0, 0, gradient_error_); },
         [&] {
           return linear({query_, value_}, none, 0, output_, stored.relative + errors.of_values(), stored.absolute,
                         output_error_);
         },
         [&] {
           return fold(oracle::kMagnitude, {query_}, value_, {&d_o, &output_error_}, inner_error_);
         },
         [&] { return linear({query_}, score_error_, 1, log_sum_, weight.per_log_sum, weight.constant, relative_); },
         [&] { return drop(); },
         [&] { return find_score_gradients(attention_.has_score_expression() ? d_logits_ : d_scores_); },
         [&] { return attention_.has_score_expression() ? find_expression_gradients() : Result<Done>(Done{}); },
         [&] { return expect_gradients(); }});
  }

  // The gradients that are needed.
  Result<Done> expect_gradients() {
    const auto find = [&](Attention::Operand operand, const Indices& indices, const Indices& over, const Placed& left,
                          const Placed& right, const Placed& to) -> Result<Done> {
      if (!attention_.has(operand)) return Done{};
      return in_order({[&] { return contract(indices, over, left, right, to); },
                       [&] { return expect_rows(operand, indices, to); }});
    };
    return in_order({[&] {
                       return find(Attention::d_q, {query_, inner_}, {key_}, d_scores_, k_, d_q_);
                     },
                     [&] {
                       return find(Attention::d_k, {key_, inner_}, queries_of_group(), d_scores_, q_, d_k_);
                     },
                     [&] {
                       return find(Attention::d_v, {key_, value_}, queries_of_group(), dropped_,
                                   at_point(input(Attention::d_o)), d_v_);
                     }});
  }

  // The gradients of the scores: scaled and rounded, unless an expression is between them and the products.
  Result<Done> find_score_gradients(const Placed& to) const {
    return map(oracle::kGradientOfScore, {query_, key_},
               {&weights_, &gradients_, &inner_product_, &drawn_mask_, &gradient_error_, &inner_error_, &relative_}, to,
               [&](Task& made) {
                 const bool last = !attention_.has_score_expression();
                 const StorageError error = last ? storage_error_of(type_) : StorageError();
                 made.number = last ? scale_ : 1;
                 made.numbers[0] = error.relative;
                 made.numbers[1] = error.absolute;
                 made.numbers[2] = error.absolute;
                 made.numbers[3] = AttentionErrors::of_steps();
               });
  }

  const DrawRules& rules_;
  double scale_;
  DType type_;  // of the operands
  const GpuMemory* mask_ = nullptr;
  GpuMemory own_mask_;
  Placed q_, k_, v_, drawn_mask_;
  Placed keys_, values_;               // transposed, so that neighbouring threads read neighbouring elements
  Placed weights_, dropped_, output_;  // the scores, then the softmax; after the dropout; the result
  Placed largest_, total_, log_sum_;   // of a row
  Placed largest_k_, largest_v_;       // magnitudes
  Placed score_error_, relative_;      // of a row: bounds of the error of a score and of a weight
  Placed statistics_;                  // log_sum_ with its error
  Placed gradients_, inner_product_, d_scores_;
  Placed gradient_error_, output_error_, inner_error_;
  Placed scores_, errors_, d_logits_;  // with an expression: scaled scores, errors of the logits, their gradients
  Placed query_positions_, key_positions_;
  std::vector<Placed> nodes_;  // of the expression
  Placed d_q_, d_k_, d_v_;
};

}  // namespace

Result<Done> complete_gpu_attention(const OracleContext& context, const Graph& graph, const DrawRules& rules,
                                    const Partition& partition, GpuReferenceData& data) {
  return GpuHeads(context, graph, rules, partition, data).run();
}

}  // namespace millrace
