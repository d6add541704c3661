// Expected values of attentions agree with the reference; tolerances admit the rounding of kernels and nothing more.
#include "measure/attention_reference_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/sanitized.h"
#include "candidates/enumerate.h"
#include "candidates/row_partitions.h"
#include "fusion/fusion_text.h"
#include "fusion/predicates.h"
#include "fusion/row_statistics.h"
#include "reference/philox.h"

namespace millrace {
namespace {

constexpr uint64_t kSeed = 11;

struct Attentions {
  TrainingGraph training;
  Partition forward;
  Partition backward;
};

enum class Rows { read, computed };

Attentions attentions_of(const std::string& text, Rows rows = Rows::read) {
  Recomputed recomputed = add_row_statistics(save_predicates(training_of(text), true));
  EnumerateOptions options;
  options.target = gpu_target();
  const Result<Candidates> found = find_partitions(recomputed.training, recomputed.fused, options);
  EXPECT_TRUE(found);
  const std::vector<PartitionCandidates> partitions = rows == Rows::computed ? rows_of(recomputed) : found->partitions;
  Attentions made{std::move(recomputed.training), {}, {}};
  for (const PartitionCandidates& each : partitions) {
    if (each.partition.kind == PartitionKind::attention)
      (each.partition.pass == Pass::forward ? made.forward : made.backward) = each.partition;
  }
  EXPECT_FALSE(made.forward.operators.empty()) << text;
  return made;
}

std::vector<AttentionProgram> programs() {
  std::vector<AttentionProgram> made(6);
  made[1].weights = "softmax(causal_mask(s))";
  made[2].weights = "dropout(softmax(causal_mask(s)), p=0.5)";
  made[2].type = "bfloat16";
  made[3].q = "pjbh";
  made[3].k = "hpkb";
  made[3].v = "whbk";
  made[3].scores = "hkbj";
  made[3].o = "bjhw";
  made[3].weights = "dropout(softmax(s, axis=1), p=0.25)";
  made[4].arguments = ", x: float16, y: float16";
  made[4].scale = "";
  made[4].scaled = " * -3 * x * y";
  made[4].q = "jp";
  made[4].k = "pk";
  made[4].v = "kw";
  made[4].scores = "jk";
  made[4].o = "jw";
  made[5].q = "bhrjp";  // grouped heads
  made[5].scores = "bhrjk";
  made[5].o = "bjhrw";
  return made;
}

// The programs, and those with formulas of their scores.
std::vector<AttentionProgram> all_programs() {
  std::vector<AttentionProgram> made = programs();
  for (const NamedAttention& each : attention_family()) made.push_back(each.program);
  for (const NamedAttention& each : attentions_of_some_gradients()) made.push_back(each.program);
  return made;
}

// --- Against the reference ---

void expect_what_the_reference_computes(const AttentionProgram& program, Rows rows) {
  const Attentions made = attentions_of(program.text(), rows);
  const Graph& graph = made.training.graph;
  for (const Partition* const partition : {&made.forward, &made.backward}) {
    if (partition->operators.empty()) continue;  // no gradients
    ReferenceData direct = draw_inputs(graph, draw_rules(graph), *partition, kSeed);
    complete_attention(graph, draw_rules(graph), *partition, direct);
    const Result<ReferenceData> reference_data = make_reference_data(graph, draw_rules(graph), *partition, kSeed);
    ASSERT_TRUE(reference_data) << to_string(reference_data.error());
    EXPECT_EQ(direct.inputs, reference_data->inputs) << program.text();
    ASSERT_EQ(direct.outputs.size(), partition->writes.size());
    for (size_t k = 0; k < partition->writes.size(); ++k) {
      const Expected& expected = reference_data->outputs[k];
      EXPECT_EQ(direct.outputs[k].tolerances, expected.tolerances);
      ASSERT_EQ(direct.outputs[k].values.size(), static_cast<size_t>(elements_of(graph, partition->writes[k])));
      double largest = 0;
      for (size_t e = 0; e < expected.values.size(); ++e) {
        const double x = expected.values[e];
        ASSERT_NEAR(direct.outputs[k].values[e], x, 1e-12 * (1 + std::abs(x)))
            << graph.tensor(partition->writes[k]).name << "[" << e << "]\n"
            << program.text();
        ASSERT_GE(expected.tolerances[e], storage_error(graph.tensor(partition->writes[k]).dtype, x));
        largest = std::max(largest, std::abs(x));
      }
      EXPECT_GT(largest, 0.01) << graph.tensor(partition->writes[k]).name;
    }
  }
}

TEST(AttentionReferenceData, IsWhatTheReferenceComputes) {
  for (const AttentionProgram& program : all_programs()) expect_what_the_reference_computes(program, Rows::read);
}

TEST(AttentionReferenceData, IsWhatTheReferenceComputesOfRows) {
  for (const NamedAttention& each : row_family()) {
    SCOPED_TRACE(each.name);
    expect_what_the_reference_computes(each.program, Rows::computed);
  }
}

// Backward's inputs are what forward computes and stores for the same queries, keys and values.
TEST(AttentionReferenceData, InputsFitEachOther) {
  for (const AttentionProgram& program : programs()) {
    const Attentions made = attentions_of(program.text());
    const Graph& graph = made.training.graph;
    const Result<ReferenceData> backward = make_reference_data(graph, draw_rules(graph), made.backward, kSeed);
    const Result<ReferenceData> forward = make_reference_data(graph, draw_rules(graph), made.forward, kSeed);
    ASSERT_TRUE(backward && forward);
    for (size_t k = 0; k < 3; ++k) EXPECT_EQ(backward->inputs[k], forward->inputs[k]);
    for (size_t k = 0; k < 2; ++k) {
      const TensorId tensor = made.forward.writes[k];
      ASSERT_EQ(made.backward.reads[3 + k], tensor);
      for (size_t e = 0; e < forward->outputs[k].values.size(); ++e) {
        const double x = forward->outputs[k].values[e];
        EXPECT_NEAR(backward->inputs[3 + k][e], x, storage_error(graph.tensor(tensor).dtype, x)) << program.text();
        EXPECT_EQ(rounded_to(graph.tensor(tensor).dtype, backward->inputs[3 + k][e]), backward->inputs[3 + k][e]);
      }
    }
    if (made.forward.attention.mask.valid()) {
      EXPECT_EQ(backward->inputs.back(), forward->outputs.back().values);
    }
  }
}

// The scores must differ between keys, or a kernel without a softmax would pass.
TEST(AttentionReferenceData, RowsAreNotFlat) {
  std::vector<std::pair<AttentionProgram, Rows>> all;
  for (const AttentionProgram& program : all_programs()) all.emplace_back(program, Rows::read);
  for (const NamedAttention& each : row_family()) all.emplace_back(each.program, Rows::computed);
  for (const auto& [program, rows] : all) {
    const Attentions made = attentions_of(program.text(), rows);
    const Result<ReferenceData> reference_data =
        make_reference_data(made.training.graph, draw_rules(made.training.graph), made.forward, kSeed);
    ASSERT_TRUE(reference_data);
    double least = std::numeric_limits<double>::infinity();
    double most = -least;
    for (const double x : reference_data->outputs[1].values) {
      least = std::min(least, x);
      most = std::max(most, x);
    }
    EXPECT_GT(most - least, 1) << program.text();
  }
}

// --- Kernels, right and wrong ---

// Faults of a kernel.
struct Fault {
  bool no_scale = false;
  bool no_mask = false;
  bool shifted_mask = false;  // the mask of the next key
  bool sees_ahead = false;    // a causal mask that is one key late
  bool key_less = false;      // the last key is left out
  bool no_rescale = false;    // sums are not rescaled when a row's maximum grows
  bool no_inner_sum = false;  // backward without Σ p·g
  bool log_sums_of_two = false;
  size_t wrong_head = 1000;  // has the first head's values
};

// Computes like a kernel with tensor cores: tiles of keys, float32, operands rounded to their type.
class Kernel {
 public:
  Kernel(const Graph& graph, const Partition& partition, const ReferenceData& reference_data, const Fault& fault)
      : graph_(graph),
        partition_(partition),
        attention_(partition.attention),
        reference_data_(reference_data),
        fault_(fault) {
    scale_ = fault.no_scale ? 1.0F : static_cast<float>(factor_of(graph, attention_.scales, reference_data));
    type_ = graph.tensor(attention_.tensors[Attention::q]).dtype;
    points_ = 1;
    for (const int64_t extent : attention_.batch) points_ *= extent;
    for (size_t operand = 0; operand < Attention::kOperands; ++operand) {
      if (attention_.tensors[operand].valid())
        strides_[operand] = strides_along(attention_.tensors[operand], attention_.axes[operand]);
    }
    if (attention_.mask.valid()) mask_strides_ = strides_along(attention_.mask, attention_.mask_axes);
    for (const TensorId tensor : partition.writes) {
      const bool summed = tensor == attention_.tensors[Attention::d_k] || tensor == attention_.tensors[Attention::d_v];
      made_.emplace_back(static_cast<size_t>(elements_of(graph, tensor)), summed ? 0 : std::nan(""));
    }
  }

  // Describes the first wrong output.
  std::string run() {
    for (int64_t point = 0; point < points_; ++point) attention_.backward ? backward(point) : forward(point);
    for (size_t k = 0; k < made_.size(); ++k) {
      if (partition_.writes[k] == attention_.mask) continue;
      for (double& x : made_[k]) x = rounded_to(graph_.tensor(partition_.writes[k]).dtype, x);
      const Layout written = written_layout(graph_, partition_.writes[k]);
      const std::string wrong = difference(graph_, partition_.writes[k], written, reference_data_.outputs[k], made_[k]);
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

 private:
  // Row-major strides along the indices.
  struct Strides {
    std::vector<int64_t> batch;
    int64_t query = 0;
    int64_t key = 0;
    int64_t column = 0;
  };
  Strides strides_along(TensorId tensor, const Attention::Axes& axes) const {
    const auto along = [&](int axis) {
      int64_t step = axis < 0 ? 0 : 1;
      const std::vector<DimId>& dims = graph_.tensor(tensor).dims;
      for (size_t k = size(axis + 1); axis >= 0 && k < dims.size(); ++k) step *= graph_.extent(dims[k]);
      return step;
    };
    Strides made{{}, along(axes.query), along(axes.key), along(axes.column)};
    for (const int axis : axes.batch) made.batch.push_back(along(axis));
    return made;
  }

  size_t element(const Strides& strides, int64_t point, int64_t query, int64_t key, int64_t column) const {
    int64_t number = query * strides.query + key * strides.key + column * strides.column;
    for (size_t k = attention_.batch.size(); k-- > 0;) {
      number += point % attention_.batch[k] * strides.batch[k];
      point /= attention_.batch[k];
    }
    return size(number);
  }
  size_t element(Attention::Operand operand, int64_t point, int64_t row, int64_t column) const {
    const int64_t from = size(point) == fault_.wrong_head && operand == Attention::v ? 0 : point;
    return element(strides_[operand], from, row, row, column);
  }

  float in(Attention::Operand operand, int64_t point, int64_t row, int64_t column) const {
    const auto place = std::find(partition_.reads.begin(), partition_.reads.end(), attention_.tensors[operand]) -
                       partition_.reads.begin();
    return static_cast<float>(reference_data_.inputs[static_cast<size_t>(place)][element(operand, point, row, column)]);
  }
  double& out(Attention::Operand operand, int64_t point, int64_t row, int64_t column) {
    const auto place = std::find(partition_.writes.begin(), partition_.writes.end(), attention_.tensors[operand]) -
                       partition_.writes.begin();
    return made_[static_cast<size_t>(place)][element(operand, point, row, column)];
  }

  float mask(int64_t point, int64_t query, int64_t key) const {
    if (!attention_.mask.valid() || fault_.no_mask) return 1;
    if (fault_.shifted_mask) key = (key + 1) % attention_.keys;
    const Operator& dropout = *dropout_of(graph_, attention_.mask);
    const uint64_t number = element(mask_strides_, point, query, key, 0);
    const RandomState& random = reference_data_.random;
    const bool keeps = dropout_keeps(random.seed, random.step, dropout.subsequence, number, dropout.value);
    return keeps ? static_cast<float>(1 / (1 - dropout.value)) : 0;
  }

  float score(int64_t point, int64_t query, int64_t key) const {
    if (attention_.causal && key > query + (fault_.sees_ahead ? 1 : 0)) return -std::numeric_limits<float>::infinity();
    if (fault_.key_less && key + 1 == attention_.keys) return -std::numeric_limits<float>::infinity();
    float sum = 0;
    for (int64_t c = 0; c < attention_.inner; ++c)
      sum += in(Attention::q, point, query, c) * in(Attention::k, point, key, c);
    return sum * scale_;
  }

  float half(float x) const { return static_cast<float>(rounded_to(type_, x)); }
  // An exponential with few digits, like a GPU's.
  static float brief_exp(float x) { return std::exp2(x * 1.44269504F) * (1 + 0x1p-22F); }

  void forward(int64_t point) {
    constexpr int64_t kPanel = 3;
    for (int64_t query = 0; query < attention_.queries; ++query) {
      std::vector<float> o(static_cast<size_t>(attention_.values), 0);
      float sum = 0;
      float largest = -std::numeric_limits<float>::infinity();
      for (int64_t first = 0; first < attention_.keys; first += kPanel) {
        const int64_t end = std::min(attention_.keys, first + kPanel);
        float grown = largest;
        for (int64_t key = first; key < end; ++key) grown = std::max(grown, score(point, query, key));
        const float rescale = fault_.no_rescale || largest == grown ? 1 : brief_exp(largest - grown);
        largest = grown;
        sum *= rescale;
        for (float& x : o) x *= rescale;
        for (int64_t key = first; key < end; ++key) {
          const float p = brief_exp(score(point, query, key) - largest);
          sum += p;
          const float dropped = half(p * mask(point, query, key));
          for (int64_t c = 0; c < attention_.values; ++c)
            o[static_cast<size_t>(c)] += dropped * in(Attention::v, point, key, c);
        }
      }
      for (int64_t c = 0; c < attention_.values; ++c)
        out(Attention::o, point, query, c) = o[static_cast<size_t>(c)] / sum;
      const float log_sum = largest + std::log(sum);
      out(Attention::log_sums, point, query, 0) = fault_.log_sums_of_two ? log_sum * 1.44269504F : log_sum;
    }
  }

  void backward(int64_t point) {
    std::vector<std::vector<float>> d_k(static_cast<size_t>(attention_.keys),
                                        std::vector<float>(size(attention_.inner), 0));
    std::vector<std::vector<float>> d_v(static_cast<size_t>(attention_.keys),
                                        std::vector<float>(size(attention_.values), 0));
    for (int64_t query = 0; query < attention_.queries; ++query) {
      float inner = 0;
      for (int64_t c = 0; c < attention_.values; ++c)
        inner += in(Attention::o, point, query, c) * in(Attention::d_o, point, query, c);
      if (fault_.no_inner_sum) inner = 0;
      std::vector<float> d_q(size(attention_.inner), 0);
      for (int64_t key = 0; key < attention_.keys; ++key) {
        const float p = brief_exp(score(point, query, key) - in(Attention::log_sums, point, query, 0));
        const float m = mask(point, query, key);
        float gradient = 0;
        for (int64_t c = 0; c < attention_.values; ++c)
          gradient += in(Attention::d_o, point, query, c) * in(Attention::v, point, key, c);
        const float d_score = half(p * (gradient * m - inner));
        const float dropped = half(p * m);
        for (int64_t c = 0; c < attention_.inner; ++c) {
          d_q[size(c)] += d_score * in(Attention::k, point, key, c);
          d_k[size(key)][size(c)] += d_score * in(Attention::q, point, query, c);
        }
        for (int64_t c = 0; c < attention_.values; ++c)
          d_v[size(key)][size(c)] += dropped * in(Attention::d_o, point, query, c);
      }
      for (int64_t c = 0; c < attention_.inner; ++c) out(Attention::d_q, point, query, c) = scale_ * d_q[size(c)];
    }
    for (int64_t key = 0; key < attention_.keys; ++key) {
      for (int64_t c = 0; c < attention_.inner; ++c)
        out(Attention::d_k, point, key, c) += scale_ * d_k[size(key)][size(c)];
      for (int64_t c = 0; c < attention_.values; ++c) out(Attention::d_v, point, key, c) += d_v[size(key)][size(c)];
    }
  }

  static size_t size(int64_t number) { return static_cast<size_t>(number); }

  const Graph& graph_;
  const Partition& partition_;
  const Attention& attention_;
  const ReferenceData& reference_data_;
  Fault fault_;
  float scale_ = 1;
  DType type_ = DType::float16;
  int64_t points_ = 1;
  std::array<Strides, Attention::kOperands> strides_;
  Strides mask_strides_;
  std::vector<std::vector<double>> made_;
};

std::string wrong_in(const Attentions& made, const Partition& partition, const Fault& fault) {
  const Result<ReferenceData> reference_data =
      make_reference_data(made.training.graph, draw_rules(made.training.graph), partition, kSeed);
  EXPECT_TRUE(reference_data);
  return Kernel(made.training.graph, partition, *reference_data, fault).run();
}

TEST(AttentionReferenceData, RightKernelsPass) {
  for (AttentionProgram program : programs()) {
    for (const char* const type : {"float16", "bfloat16"}) {
      program.type = type;
      const Attentions made = attentions_of(program.text());
      for (const Partition* const partition : {&made.forward, &made.backward})
        EXPECT_EQ(wrong_in(made, *partition, {}), "") << partition->name << "\n" << program.text();
    }
  }
}

TEST(AttentionReferenceData, WrongKernelsDoNot) {
  AttentionProgram program;
  program.weights = "dropout(softmax(causal_mask(s)), p=0.25)";
  const std::vector<std::pair<std::string, std::function<void(Fault&)>>> both = {
      {"no scale", [](Fault& f) { f.no_scale = true; }},
      {"no mask", [](Fault& f) { f.no_mask = true; }},
      {"shifted mask", [](Fault& f) { f.shifted_mask = true; }},
      {"sees ahead", [](Fault& f) { f.sees_ahead = true; }},
      {"a key less", [](Fault& f) { f.key_less = true; }},
      {"the values of another head", [](Fault& f) { f.wrong_head = 5; }}};
  const std::vector<std::pair<std::string, std::function<void(Fault&)>>> forward = {
      {"no rescale", [](Fault& f) { f.no_rescale = true; }},
      {"logarithms of two", [](Fault& f) { f.log_sums_of_two = true; }}};
  const std::vector<std::pair<std::string, std::function<void(Fault&)>>> backward = {
      {"no sum of the row", [](Fault& f) { f.no_inner_sum = true; }}};
  for (const char* const type : {"float16", "bfloat16"}) {
    program.type = type;
    program.keys = 5;  // so that the last query sees the last key
    const Attentions made = attentions_of(program.text());
    for (const auto& [partition, faults] : {std::pair(&made.forward, &forward), std::pair(&made.backward, &backward),
                                            std::pair(&made.forward, &both), std::pair(&made.backward, &both)}) {
      for (const auto& [what, make] : *faults) {
        Fault fault;
        make(fault);
        EXPECT_NE(wrong_in(made, *partition, fault), "")
            << type << ", " << partition->name << ": " << what << " is not noticed";
      }
    }
  }
}

// Attentions that are too large for the reference.
TEST(AttentionReferenceData, OfLargeOnes) {
  std::string text = AttentionProgram().text();
  for (const auto& [from, to] : {std::pair("J = 5", "J = 160"), std::pair("K = 7", "K = 200"),
                                 std::pair("P = 4", "P = 80"), std::pair("W = 6", "W = 96")})
    text.replace(text.find(from), std::string(from).size(), to);
  const Attentions made = attentions_of(text);
  Fault fault;
  fault.key_less = true;
  for (const Partition* const partition : {&made.forward, &made.backward}) {
    const Result<ReferenceData> reference_data =
        make_reference_data(made.training.graph, draw_rules(made.training.graph), *partition, kSeed);
    ASSERT_TRUE(reference_data);
    if (kSanitized) continue;  // the rest would take minutes
    EXPECT_EQ(Kernel(made.training.graph, *partition, *reference_data, {}).run(), "") << partition->name;
    EXPECT_NE(Kernel(made.training.graph, *partition, *reference_data, fault).run(), "") << partition->name;
  }
}

}  // namespace
}  // namespace millrace
