#include "measure/gpu/gpu_attention.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "measure/attention_errors.h"
#include "measure/gpu/gpu_values.h"

namespace millrace {
namespace {

using oracle::Task;

// An operand of a task: how it is stored, and how it moves along the attention's indices.
struct Placed {
  OracleTensor tensor;  // owns no memory
  Walk walk;
};

Placed one_number(double value, size_t indices) {
  return {OracleTensor::of_number(value), {std::vector<int64_t>(indices, 0), 0}};
}

class GpuHeads {
 public:
  GpuHeads(const OracleContext& context, const Graph& graph, const DrawRules& rules, const Partition& partition,
           GpuReferenceData& data)
      : context_(context),
        graph_(graph),
        rules_(rules),
        partition_(partition),
        attention_(partition.attention),
        data_(data),
        scale_(factor_of(graph, attention_.scales, data.numbers)),
        extents_(attention_.batch) {
    query_ = extents_.size();
    key_ = query_ + 1;
    inner_ = query_ + 2;
    value_ = query_ + 3;
    extents_.insert(extents_.end(), {attention_.queries, attention_.keys, attention_.inner, attention_.values});
    type_ = graph.tensor(attention_.tensors[Attention::q]).dtype;
  }

  Result<Done> run() {
    if (Result<Done> done = scale_queries(); !done) return done;
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
  static constexpr int64_t kShareOfMemory = 16;
  static constexpr int64_t kBytesPerScore = 2 * sizeof(double) + 2 * kBytesOfNumber;

  using Indices = std::vector<size_t>;

  // All heads of a group together, since the gradients of their keys are one sum; and as many other trailing batch
  // indices as fit.
  void choose_chunk() {
    const int64_t most = std::max<int64_t>(context_.gpu.info().memory_bytes / kShareOfMemory, 1);
    int64_t points = attention_.queries * attention_.keys * attention_.heads_per_group();
    for (size_t k = attention_.batch.size(); k-- > 0;) {
      const bool is_group = attention_.is_group(k);
      const bool fits = looped_.empty() && points * attention_.batch[k] * kBytesPerScore <= most;
      if (!is_group && fits) points *= attention_.batch[k];
      (is_group || fits ? chunk_ : looped_).push_back(k);
    }
    std::sort(chunk_.begin(), chunk_.end());
    std::sort(looped_.begin(), looped_.end());
  }

  // The chunk's batch indices and these. What runs along keys and not along queries lacks the indices of groups.
  Indices with_batch(const Indices& indices) const {
    const auto has = [&](size_t index) { return std::find(indices.begin(), indices.end(), index) != indices.end(); };
    const bool of_keys = has(key_) && !has(query_);
    Indices all;
    for (const size_t k : chunk_) {
      if (!of_keys || !attention_.is_group(k)) all.push_back(k);
    }
    all.insert(all.end(), indices.begin(), indices.end());
    return all;
  }

  // The queries of all heads of a group.
  Indices queries_of_group() const {
    Indices all;
    for (size_t k = 0; k < attention_.batch.size(); ++k) {
      if (attention_.is_group(k)) all.push_back(k);
    }
    all.push_back(query_);
    return all;
  }

  // --- Operands ---

  Walk walk_of(TensorId tensor, const AttentionAxes& axes, size_t row, size_t column, int row_axis,
               int column_axis) const {
    const std::vector<int64_t> strides = strides_of(graph_, tensor, written_layout(graph_, tensor));
    Walk walk{std::vector<int64_t>(extents_.size(), 0), 0};
    const auto set = [&](size_t index, int axis) {
      if (axis >= 0) walk.strides[index] = strides[static_cast<size_t>(axis)];
    };
    for (size_t k = 0; k < axes.batch.size(); ++k) set(k, axes.batch[k]);
    set(row, row_axis);
    set(column, column_axis);
    return walk;
  }

  Walk walk_of(Attention::Operand operand) const {
    const AttentionAxes& axes = attention_.axes[operand];
    const bool inner =
        operand == Attention::q || operand == Attention::k || operand == Attention::d_q || operand == Attention::d_k;
    return walk_of(attention_.tensors[operand], axes, axes.query >= 0 ? query_ : key_, inner ? inner_ : value_,
                   axes.row(), axes.column);
  }

  template <class List>
  static size_t position_in(const List& list, TensorId tensor) {
    return static_cast<size_t>(std::find(list.begin(), list.end(), tensor) - list.begin());
  }

  static Placed placed(const GpuMemory& values, Walk walk) {
    return {OracleTensor::of_values(static_cast<double*>(values.data())), std::move(walk)};
  }
  Placed input(Attention::Operand operand) const {
    return placed(data_.inputs[position_in(partition_.reads, attention_.tensors[operand])], walk_of(operand));
  }
  Placed mask() const {
    if (!attention_.mask.valid()) return one_number(1, extents_.size());
    const AttentionAxes& axes = attention_.mask_axes;
    return placed(*mask_, walk_of(attention_.mask, axes, query_, key_, axes.query, axes.key));
  }

  // A temporary along the chunk and these indices.
  Result<Placed> temporary(oracle::Format format, const Indices& indices) {
    const Indices all = with_batch(indices);
    const int64_t bytes = format == oracle::kBounded ? kBytesOfNumber : static_cast<int64_t>(sizeof(double));
    Result<GpuMemory> made = context_.memory(points_of(extents_, all) * bytes);
    if (!made) return made.error();
    temporaries_.push_back(std::move(*made));
    Placed placed_there = placed(temporaries_.back(), row_major(extents_, all));
    placed_there.tensor.format = format;
    return placed_there;
  }

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
    for (const Wanted& each : wanted) {
      Result<Placed> made = temporary(each.format, each.indices);
      if (!made) return made.error();
      *each.to = std::move(*made);
    }
    return Done{};
  }

  // --- Tasks ---

  using Change = std::function<void(Task&)>;

  Result<Done> task(StepKind kind, int formula, const Indices& outer, const Indices& inner,
                    const std::vector<const Placed*>& inputs, const std::vector<const Placed*>& outputs,
                    const Change& change = {}) const {
    std::vector<Walk> read;
    std::vector<Walk> written;
    for (const Placed* each : inputs) read.push_back(each->walk);
    for (const Placed* each : outputs) written.push_back(each->walk);
    Task made = make_task(formula, extents_, with_batch(outer), inner, read, written);
    for (size_t k = 0; k < inputs.size(); ++k) place_tensor(inputs[k]->tensor, made.in[k]);
    for (size_t k = 0; k < outputs.size(); ++k) place_tensor(outputs[k]->tensor, made.out[k]);
    if (change) change(made);
    return context_.oracle.run(kind, made, context_.memory);
  }
  Result<Done> map(int formula, const Indices& indices, const std::vector<const Placed*>& inputs, const Placed& output,
                   const Change& change = {}) const {
    return task(StepKind::map, formula, indices, {}, inputs, {&output}, change);
  }
  Result<Done> fold(oracle::Term term, const Indices& indices, size_t over, const std::vector<const Placed*>& inputs,
                    const Placed& output) const {
    return task(StepKind::fold, term, indices, {over}, inputs, {&output});
  }
  Result<Done> contract(const Indices& indices, const Indices& over, const Placed& a, const Placed& b,
                        const Placed& output) const {
    return task(StepKind::contract, oracle::kProduct, indices, over, {&a, &b}, {&output});
  }
  // c0 · a + c1 · |b| + c2
  Result<Done> linear(const Indices& indices, const Placed& a, double c0, const Placed& b, double c1, double c2,
                      const Placed& output) const {
    return map(oracle::kLinear, indices, {&a, &b}, output, [&](Task& made) {
      made.numbers[0] = c0;
      made.numbers[1] = c1;
      made.numbers[2] = c2;
    });
  }

  // Runs all of them until one fails.
  static Result<Done> in_order(const std::vector<std::function<Result<Done>()>>& steps) {
    for (const auto& step : steps) {
      if (Result<Done> done = step(); !done) return done;
    }
    return Done{};
  }

  // --- Inputs and outputs ---

  Result<Done> scale_queries() {
    const size_t position = position_in(partition_.reads, attention_.tensors[Attention::q]);
    Task made = make_flat_task(oracle::kScore, elements_of(graph_, partition_.reads[position]), 1, 1);
    place_values(data_.inputs[position], made.in[0]);
    place_values(data_.inputs[position], made.out[0]);
    const double product =
        size_of(rules_[attention_.tensors[Attention::q].at()]) * size_of(rules_[attention_.tensors[Attention::k].at()]);
    made.number = std::ldexp(1, power_of_queries(scale_, attention_.inner, product));
    return context_.oracle.run(StepKind::map, made, context_.memory);
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
    const TensorId tensor = attention_.tensors[operand];
    const ExpectedOnGpu& expected = data_.expected[position_in(partition_.writes, tensor)];
    const Placed values = at_point(placed(expected.values, walk_of(operand)));
    const Placed tolerances = at_point(placed(expected.tolerances, walk_of(operand)));
    return task(StepKind::map, oracle::kTolerance, indices, {}, {&computed}, {&values, &tolerances}, [&](Task& made) {
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

  // The operand at the looped batch indices' point.
  Placed at_point(Placed operand) const {
    for (size_t k = 0; k < point_.size(); ++k) operand.walk.first += operand.walk.strides[looped_[k]] * point_[k];
    return operand;
  }

  Result<Done> compute(const std::vector<int64_t>& point) {
    point_ = point;
    q_ = at_point(input(Attention::q));
    k_ = at_point(input(Attention::k));
    v_ = at_point(input(Attention::v));
    drawn_mask_ = at_point(mask());
    const AttentionErrors errors(attention_);
    if (Result<Done> done = find_weights(errors); !done) return done;
    if (Result<Done> done = find_output(errors); !done) return done;
    return attention_.backward ? find_gradients(errors) : Result<Done>(Done{});
  }

  Result<Done> find_weights(const AttentionErrors& errors) const {
    const AttentionErrors::ScoreError error = errors.of_scores(scale_);
    return in_order({[&] {
                       return map(static_cast<int>(OperatorKind::copy), {inner_, key_}, {&k_}, keys_);
                     },
                     [&] {
                       return contract({query_, key_}, {inner_}, q_, keys_, weights_);
                     },
                     [&] {
                       return map(oracle::kScore, {query_, key_}, {&weights_}, weights_, [&](Task& made) {
                         made.number = scale_;
                         made.is_boolean = attention_.causal ? 1 : 0;
                       });
                     },
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
                     [&] { return fold(oracle::kLargestMagnitude, {inner_}, key_, {&k_}, largest_k_); },
                     [&] {
                       return fold(oracle::kMagnitude, {query_}, inner_, {&q_, &largest_k_}, score_error_);
                     },
                     [&] {
                       return linear({query_}, score_error_, error.per_magnitude, log_sum_, error.per_log_sum, 0,
                                     score_error_);
                     }});
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
         [&] { return drop(); }, [&] { return find_score_gradients(); },
         [&] {
           return contract({query_, inner_}, {key_}, d_scores_, k_, d_q_);
         },
         [&] {
           return contract({key_, inner_}, queries_of_group(), d_scores_, q_, d_k_);
         },
         [&] {
           return contract({key_, value_}, queries_of_group(), dropped_, d_o, d_v_);
         },
         [&] {
           return expect(Attention::d_q, {query_, inner_}, d_q_);
         },
         [&] {
           return expect(Attention::d_k, {key_, inner_}, d_k_);
         },
         [&] {
           return expect(Attention::d_v, {key_, value_}, d_v_);
         }});
  }

  Result<Done> find_score_gradients() const {
    return map(oracle::kGradientOfScore, {query_, key_},
               {&weights_, &gradients_, &inner_product_, &drawn_mask_, &gradient_error_, &inner_error_, &relative_},
               d_scores_, [&](Task& made) {
                 const StorageError error = storage_error_of(type_);
                 made.number = scale_;
                 made.numbers[0] = error.relative;
                 made.numbers[1] = error.absolute;
                 made.numbers[2] = error.absolute;
                 made.numbers[3] = AttentionErrors::of_steps();
               });
  }

  const OracleContext& context_;
  const Graph& graph_;
  const DrawRules& rules_;
  const Partition& partition_;
  const Attention& attention_;
  GpuReferenceData& data_;
  double scale_;
  std::vector<int64_t> extents_;  // of the batch indices, the queries, keys, inner index and values
  size_t query_ = 0;
  size_t key_ = 0;
  size_t inner_ = 0;
  size_t value_ = 0;
  DType type_ = DType::float32;  // of the operands
  Indices chunk_;                // the batch indices that are processed together
  Indices looped_;               // the others
  std::vector<int64_t> point_;   // of looped_
  const GpuMemory* mask_ = nullptr;
  GpuMemory own_mask_;
  std::vector<GpuMemory> temporaries_;
  Placed q_, k_, v_, drawn_mask_;
  Placed keys_, values_;               // transposed, so that neighbouring threads read neighbouring elements
  Placed weights_, dropped_, output_;  // the scores, then the softmax; after the dropout; the result
  Placed largest_, total_, log_sum_;   // of a row
  Placed largest_k_, largest_v_;       // magnitudes
  Placed score_error_, relative_;      // of a row: bounds of the error of a score and of a weight
  Placed statistics_;                  // log_sum_ with its error
  Placed gradients_, inner_product_, d_scores_;
  Placed gradient_error_, output_error_, inner_error_;
  Placed d_q_, d_k_, d_v_;
};

}  // namespace

Result<Done> complete_gpu_attention(const OracleContext& context, const Graph& graph, const DrawRules& rules,
                                    const Partition& partition, GpuReferenceData& data) {
  return GpuHeads(context, graph, rules, partition, data).run();
}

}  // namespace millrace
