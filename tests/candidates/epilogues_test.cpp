// Contractions with epilogues of cuBLASLt and oneDNN: biases, their gradients, activations, and added tensors.
// Over 500 lines, because its cases share programs and an emulation of the library's products.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "base/stored_type.h"
#include "base/text.h"
#include "candidates/enumerate.h"
#include "candidates/gelu_program.h"
#include "candidates/partitions_text.h"
#include "candidates/product.h"
#include "candidates/product_epilogue.h"
#include "codegen/lower.h"
#include "device/cuda/column_major.h"
#include "fusion/fusion_text.h"
#include "measure/probes.h"
#include "measure/reference_data.h"
#include "measure/tensor_memory.h"
#include "reference/activations.h"

namespace millrace {
namespace {

EnumerateOptions on_gpu(size_t most = 400) {
  EnumerateOptions options;
  options.target = gpu_target();
  options.libraries = {GemmLibrary::cublaslt};
  options.most = most;
  return options;
}

bool absorbs(const PartitionCandidates& entry) {
  return entry.partition.product.has_epilogue() || entry.partition.product.adds();
}

// Only the partitions with an epilogue or an addition, with their configs.
Candidates epilogues_of(const TrainingGraph& training, size_t most, const std::vector<std::string>& unpinned = {}) {
  EnumerateOptions options = on_gpu(most);
  for (const std::string& name : unpinned) options.layouts.emplace_back(name, "any");
  Result<Candidates> found = find_partitions(training, fuse(training), options);
  EXPECT_TRUE(found);
  std::erase_if(found->partitions, [](const PartitionCandidates& entry) { return !absorbs(entry); });
  for (PartitionCandidates& entry : found->partitions) find_configs(training.graph, found->domains, options, entry);
  return *found;
}

// --- Partitions ---

TEST(EpiloguePartitions, OfModels) {
  for (const char* const model : {"bert_encoder", "gpt2_block_unpacked"}) {
    const TrainingGraph training = training_of_model(model);
    const Result<Candidates> found = find_partitions(training, fuse(training), on_gpu());
    ASSERT_TRUE(found);
    EXPECT_TRUE(matches_file(partitions_text(training, *found), concat("candidates/", model, "_gpu_partitions.txt"),
                             "EpiloguePartitions"));
  }
}

TEST(EpiloguePartitions, AreNotForADeviceWithoutThem) {
  for (const std::string& model : models()) {
    const TrainingGraph training = training_of_model(model, {"tiny"});
    const Result<Candidates> found = find_partitions(training, fuse(training), {});
    ASSERT_TRUE(found);
    for (const PartitionCandidates& entry : found->partitions)
      EXPECT_FALSE(entry.partition.product.has_epilogue()) << model << ": " << entry.partition.name;
    for (const Rejected& rejected : found->rejected)
      EXPECT_EQ(rejected.reason.find(" bias"), std::string::npos) << rejected.reason;
  }
}

Candidates on_cpu(const std::string& text) {
  EnumerateOptions options;
  options.target = cpu_target();
  options.libraries = {GemmLibrary::openblas, GemmLibrary::onednn};
  options.most = 400;
  const TrainingGraph training = training_of(text);
  Result<Candidates> found = find_partitions(training, fuse(training), options);
  EXPECT_TRUE(found);
  for (PartitionCandidates& entry : found->partitions) find_configs(training.graph, found->domains, options, entry);
  return *found;
}

constexpr const char* kFourFunctions = R"(
def f(x: bfloat16[8, 16], w: bfloat16[16, 24], b: bfloat16[24], m: bfloat16[8, 24]):
    y = relu(np.einsum("ab,bc->ac", x, w) + b)
    z = gelu(np.einsum("ab,bc->ac", x, w) + b)
    t = gelu_tanh(np.einsum("ab,bc->ac", x, w) + b)
    s = np.einsum("ab,bc->ac", x, w) + b
    return y, z, t, s
)";

// oneDNN's epilogues are biases and functions of results; whatever else backward needs is computed by kernels.
TEST(EpiloguePartitions, OfACpuAreBiasesAndFunctionsByOneDnn) {
  std::set<std::string> names;
  for (const PartitionCandidates& entry : on_cpu(kFourFunctions).partitions) {
    const Product& product = entry.partition.product;
    if (!product.has_epilogue()) continue;
    names.insert(entry.partition.name);
    EXPECT_FALSE(product.auxiliary.valid()) << entry.partition.name;
    EXPECT_FALSE(product.vector && product.vector->written()) << entry.partition.name;
    EXPECT_FALSE(entry.candidates.empty()) << entry.partition.name;
    for (const Candidate& candidate : entry.candidates)
      EXPECT_EQ(std::get<GemmConfig>(candidate.config).library, GemmLibrary::onednn);
    const auto has = [&](std::string_view reason) {
      return std::any_of(entry.rejected.begin(), entry.rejected.end(),
                         [&](const Rejected& rejected) { return rejected.reason == reason; });
    };
    EXPECT_TRUE(has("of the CPU's libraries only oneDNN supports the epilogue")) << entry.partition.name;
  }
  EXPECT_GE(names.size(), 2U);
}

// Epilogues do not change the first alternative of a choice point, which runs if nothing is measured.
TEST(EpiloguePartitions, LeaveTheDefaultAsItIs) {
  for (const std::string& model : models()) {
    const TrainingGraph training = training_of_model(model, {"tiny"});
    const FusedGraph fused = fuse(training);
    const auto defaults = [&](const EnumerateOptions& options) {
      std::set<std::string> names;
      const Result<Candidates> found = find_partitions(training, fused, options);
      EXPECT_TRUE(found);
      for (const ChoicePoint& choice_point : found->choice_points) {
        for (const int partition : choice_point.alternatives.front())
          names.insert(found->partitions[static_cast<size_t>(partition)].partition.name);
      }
      return names;
    };
    EXPECT_EQ(defaults(on_gpu()), defaults({})) << model;
  }
}

std::string rejected_of(const std::string& text) {
  const TrainingGraph training = training_of(text);
  const Result<Candidates> found = find_partitions(training, fuse(training), on_gpu());
  EXPECT_TRUE(found);
  std::string reasons;
  for (const Rejected& rejected : found->rejected) reasons += rejected.reason + "\n";
  for (const PartitionCandidates& entry : found->partitions)
    reasons += absorbs(entry) ? concat("partition ", entry.partition.name, "\n") : "";
  return reasons;
}

std::string program(const std::string& arguments, const std::string& body) {
  return concat("A = 5\nB = 3\nC = 7\n\n\ndef f(", arguments, "):\n", body);
}

TEST(EpiloguePartitions, EveryRejectionHasItsReason) {
  const auto expect = [](const std::string& text, const std::string& reason) {
    EXPECT_NE(rejected_of(text).find(reason), std::string::npos) << rejected_of(text) << "lacks " << reason;
  };
  const std::string matrices = "x: float32[A, B], w: float32[B, C], b: float32[C], m: float32[A, C]";
  expect(program(matrices, "    y = np.einsum(\"ab,bc->ac\", x, w)\n    z = y + b\n    return z\n"),
         "partition y einsum with z bias\n");
  expect(program(matrices, "    y = np.einsum(\"ab,bc->ac\", x, w)\n    z = y + b\n    return np.exp(z)\n"),
         "the kernel around it moves as many words without it");
  expect(program(matrices, "    y = np.einsum(\"ab,bc->ac\", x, w)\n    z = y + m\n    return z\n"),
         "partition y einsum with z residual\n");
  expect(program(matrices, "    y = np.einsum(\"ab,bc->ac\", x, w)\n    z = y + b + m\n    return z\n"),
         "a bias or a whole tensor, not both");
  expect(program("x: float32[A, A], w: float32[A, A]",
                 "    y = np.einsum(\"ab,bc->ac\", x, w)\n    z = y + x\n    return z\n"),
         "the added tensor is one of the product's matrices");
  expect(program(matrices, "    y = np.einsum(\"ab,bc->ac\", x, w)\n    z = relu(y + b)\n    return z\n"), "relu\n");
  expect(program(matrices, "    y = np.einsum(\"ab,bc->ac\", x, w)\n    z = gelu(y + b)\n    return z\n"),
         "the library's GELU is the tanh approximation");
  const std::string wide = "x: float32[A, B], w: float32[B, C], b: float32[C], v: float32[C, A]";
  expect(program(matrices, "    y = np.einsum(\"ab,bc->ac\", x, w)\n    z = gelu_tanh(y + b)\n    return z\n"),
         "with z bias, z gelu_tanh: the library's GELU is exact only to half precision");
  expect(
      program(wide, "    y = gelu_tanh(np.einsum(\"ab,bc->ac\", x, w))\n    return np.einsum(\"ac,ce->ae\", y, v)\n"),
      "d_y with y gelu_tanh d_y.1: the library's GELU is exact only to half precision");
  expect(program(wide, "    y = gelu(np.einsum(\"ab,bc->ac\", x, w))\n    return np.einsum(\"ac,ce->ae\", y, v)\n"),
         "d_y with y gelu d_y.1: the library's GELU is the tanh approximation");
  expect(program(wide, "    y = relu(np.einsum(\"ab,bc->ac\", x, w))\n    return np.einsum(\"ac,ce->ae\", y, v)\n"),
         "the library's gradient of a ReLU takes longer than a separate kernel");
  expect(program(matrices, "    y = -2 * np.einsum(\"ab,bc->ac\", x, w)\n    z = relu(y)\n    return z\n"),
         "the product has a negative scale");
  expect(program("x: float32[A, A], w: float32[A, A]",
                 "    y = np.einsum(\"ab,bc->ac\", x, w)\n    z = y + np.einsum(\"aa->a\", x)\n    return z\n"),
         "partition y einsum with z bias\n");
  expect(program(matrices, "    y = np.einsum(\"ab,bc->ac\", x, w)\n    z = np.exp(y + b * 2)\n    return z\n"),
         "cannot be a kernel");
  expect(program("t: float32[C, A, A], v: float32[A]",
                 "    y = np.einsum(\"cab,b->ca\", t, v)\n    z = y + v\n    return z\n"),
         "the bias is one of the product's matrices");
}

// --- Configs ---

TEST(EpilogueConfigs, AreReadBackAndNoOtherTextIs) {
  const TrainingGraph training = training_of_model("gpt2_block_unpacked", {"tiny"});
  const Candidates found = epilogues_of(training, 60);
  size_t configs = 0;
  for (const PartitionCandidates& entry : found.partitions) {
    EXPECT_FALSE(entry.candidates.empty()) << entry.partition.name;
    EXPECT_FALSE(entry.rejected.empty()) << entry.partition.name;
    for (const Candidate& candidate : entry.candidates) {
      const std::string text = print_candidate(found.domains, entry.partition, candidate);
      ASSERT_TRUE(std::holds_alternative<GemmConfig>(candidate.config)) << text;
      const std::optional<Candidate> read = parse_candidate(found.domains, entry.partition, text);
      ASSERT_TRUE(read) << text;
      EXPECT_EQ(read->layouts, candidate.layouts);
      EXPECT_EQ(read->config, candidate.config);
      if (configs++ % 8 != 0) continue;
      EXPECT_TRUE(is_candidate(training.graph, found.domains, entry.partition, *read))
          << entry.partition.name << ": " << text;
      if (entry.partition.product.adds()) continue;
      Candidate other = candidate;
      std::get<GemmConfig>(other.config).library = GemmLibrary::openblas;
      EXPECT_FALSE(is_candidate(training.graph, found.domains, entry.partition, other))
          << entry.partition.name << " by OpenBLAS";
      // Another layout of the result: the bias would run along the other index, or across it.
      const size_t result = entry.partition.reads.size();
      for (size_t layout = 0; layout < found.domains[entry.partition.writes[0].at()].layouts.size(); ++layout) {
        other = candidate;
        other.layouts[result] = static_cast<int>(layout);
        const bool known = std::any_of(entry.candidates.begin(), entry.candidates.end(), [&](const Candidate& c) {
          return c.layouts == other.layouts && c.config == other.config;
        });
        if (entry.candidates.size() < 60) {
          EXPECT_EQ(is_candidate(training.graph, found.domains, entry.partition, other), known);
        }
      }
    }
  }
  EXPECT_GT(configs, 20U);
}

// --- What they compute ---

double read_one(const char* from, int64_t element, StoredType type) {
  uint64_t bits = 0;
  const auto size = static_cast<size_t>(bytes_of(type));
  std::memcpy(&bits, from + static_cast<size_t>(element) * size, size);
  return decode(bits, type);
}

void write_one(char* to, int64_t element, StoredType type, double value) {
  const uint64_t bits = encode(value, type);
  const auto size = static_cast<size_t>(bytes_of(type));
  std::memcpy(to + static_cast<size_t>(element) * size, &bits, size);
}

// The stored value of a sum; `auxiliary`: the auxiliary matrix's element, read or written.
template <class Read, class Write>
double activated(const GemmCall& call, double sum, const Read& read_auxiliary, const Write& write_auxiliary) {
  if (call.activation == Activation::gelu && call.has_auxiliary) write_auxiliary(sum);
  switch (call.activation) {
    case Activation::none: return sum;
    case Activation::relu: return std::max(sum, 0.0);
    case Activation::exact_gelu: return sum * normal_cdf(sum);
    case Activation::gelu: return gelu_tanh(sum);
    case Activation::gelu_gradient: return gelu_tanh_dx(read_auxiliary(), sum);
  }
  return sum;
}

// A product as the call defines it, by loops: operands 0 to 5 are A, B, C, V, D and the auxiliary matrix.
using Operands = std::array<char*, 6>;
void emulate_call(const GemmCall& call, double factor, const Operands& at) {
  const GemmLoop loop = call.loops.empty() ? GemmLoop{} : call.loops.front();
  ASSERT_LE(call.loops.size(), 1U);
  const auto read = [&](size_t operand, int64_t element) { return read_one(at[operand], element, call.type); };
  for (int64_t step = 0; step < loop.extent; ++step) {
    for (int64_t i = 0; i < call.m; ++i) {
      for (int64_t j = 0; j < call.n; ++j) {
        double sum = 0;
        double of_a = 0;
        double of_b = 0;
        for (int64_t l = 0; l < call.k; ++l) {
          const double a = read(0, step * loop.a + i * call.a_m + l * call.a_k);
          const double b = read(1, step * loop.b + l * call.b_k + j * call.b_n);
          sum += a * b;
          of_a += a;
          of_b += b;
        }
        const int64_t v = step * loop.v + i * call.v_m + j * call.v_n;
        sum *= factor;
        if (call.vector == GemmVector::bias) sum += read(3, v);
        if (call.vector == GemmVector::gradient_of_a) write_one(at[3], v, call.type, of_a);
        if (call.vector == GemmVector::gradient_of_b) write_one(at[3], v, call.type, of_b);
        const int64_t c = step * loop.c + i * call.c_m + j * call.c_n;
        if (call.adds) sum += read(4, c);
        sum = activated(
            call, sum, [&] { return read(5, c); }, [&](double x) { write_one(at[5], c, call.type, x); });
        write_one(at[2], c, call.type, sum);
      }
    }
  }
}

// The same as cuBLASLt defines its descriptors.
void emulate_library(const GemmCall& call, double factor, Operands at) {
  const Result<ColumnMajorProduct> product = column_major(call);
  ASSERT_TRUE(product) << to_string(product.error());
  if (product->swapped) std::swap(at[0], at[1]);
  const auto read = [&](size_t operand, const ColumnMajor& matrix, int64_t step, int64_t row, int64_t column) {
    if (matrix.transposed) std::swap(row, column);
    return read_one(at[operand], step * matrix.batch_stride + row + column * matrix.leading, call.type);
  };
  for (int64_t step = 0; step < product->batch; ++step) {
    for (int64_t i = 0; i < product->c.rows; ++i) {
      for (int64_t j = 0; j < product->c.columns; ++j) {
        double sum = 0;
        double of_a = 0;
        double of_b = 0;
        for (int64_t l = 0; l < call.k; ++l) {
          const double a = read(0, product->a, step, i, l);
          const double b = read(1, product->b, step, l, j);
          sum += a * b;
          of_a += a;
          of_b += b;
        }
        const int64_t v = step * product->vector_batch_stride;
        sum *= factor;
        if (product->vector == ColumnVector::bias) sum += read_one(at[3], v + i, call.type);
        if (product->vector == ColumnVector::gradient_of_a) write_one(at[3], v + i, call.type, of_a);
        if (product->vector == ColumnVector::gradient_of_b) write_one(at[3], v + j, call.type, of_b);
        if (call.adds) sum += read(4, product->c, step, i, j);
        const int64_t c = step * product->c.batch_stride + i + j * product->c.leading;
        sum = activated(
            call, sum, [&] { return read(5, product->c, step, i, j); },
            [&](double x) { write_one(at[5], c, call.type, x); });
        write_one(at[2], c, call.type, sum);
      }
    }
  }
}

// Runs a launch of a product with `emulate`; stacked operands are packed and unpacked.
template <class Emulate>
void emulate_launch(const Launch& launch, const std::vector<char*>& tensors, const ReferenceData& reference_data,
                    const Emulate& emulate) {
  double factor = 1;
  for (const LaunchNumber& number : launch.numbers)
    factor *= number.argument < 0 ? number.value : reference_data.arguments[static_cast<size_t>(number.argument)];
  const GemmCall& call = launch.gemm;
  const std::array<int64_t, 4> elements = {call.a_elements, call.b_elements, call.c_elements, call.v_elements};
  std::array<std::vector<char>, 4> together;
  std::array<std::vector<int>, 4> stacks = {launch.operands[0], launch.operands[1], launch.operands[2], launch.vectors};
  const std::array<int64_t, 4> bytes = {launch.operand_bytes[0], launch.operand_bytes[1], launch.operand_bytes[2],
                                        launch.vector_bytes};
  Operands at{};
  ASSERT_EQ(call.adds, launch.added >= 0);
  ASSERT_EQ(call.has_auxiliary, launch.auxiliary >= 0);
  if (call.adds) at[4] = tensors[static_cast<size_t>(launch.added)];
  if (call.has_auxiliary) at[5] = tensors[static_cast<size_t>(launch.auxiliary)];
  for (size_t operand = 0; operand < 4; ++operand) {
    together[operand].assign(static_cast<size_t>(elements[operand] * bytes_of(call.type)), '\xff');
    at[operand] = together[operand].data();
    ASSERT_EQ(bytes[operand] * std::ssize(stacks[operand]), std::ssize(together[operand]));
    for (size_t k = 0; k < stacks[operand].size(); ++k)
      std::memcpy(at[operand] + k * static_cast<size_t>(bytes[operand]),
                  tensors[static_cast<size_t>(stacks[operand][k])], static_cast<size_t>(bytes[operand]));
  }
  emulate(call, factor, at);
  for (const size_t operand : {size_t{2}, size_t{3}}) {
    for (size_t k = 0; k < stacks[operand].size(); ++k)
      std::memcpy(tensors[static_cast<size_t>(stacks[operand][k])],
                  at[operand] + k * static_cast<size_t>(bytes[operand]), static_cast<size_t>(bytes[operand]));
  }
}

// Compares every config of every partition with an epilogue, or one of so many, with the reference on the operators
// that it absorbs. Returns the partitions that have configs.
std::set<std::string> check_against_reference(const TrainingGraph& training, size_t every, const std::string& where,
                                              const std::vector<std::string>& unpinned = {}) {
  const Graph& graph = training.graph;
  const Candidates found = epilogues_of(training, 2000, unpinned);
  std::set<std::string> partitions;
  for (const PartitionCandidates& entry : found.partitions) {
    if (!entry.candidates.empty()) partitions.insert(entry.partition.name);
    const Result<ReferenceData> reference_data = make_reference_data(graph, draw_rules(graph), entry.partition, 7);
    EXPECT_TRUE(reference_data);
    const std::vector<TensorId> tensors = tensors_of(entry.partition);
    for (size_t k = 0; k < entry.candidates.size(); k += every) {
      const std::vector<Layout> layouts = layouts_of(found.domains, entry.partition, entry.candidates[k]);
      const Launch launch = lower(graph, entry.partition, layouts, entry.candidates[k].config);
      for (const bool by_library : {false, true}) {
        std::vector<std::vector<char>> memory;
        std::vector<char*> at;
        for (size_t t = 0; t < tensors.size(); ++t) {
          memory.emplace_back(static_cast<size_t>(stored_bytes(graph, tensors[t], layouts[t])), '\xff');
          if (t < entry.partition.reads.size())
            put_values(graph, tensors[t], layouts[t], reference_data->inputs[t], memory.back().data());
        }
        for (std::vector<char>& bytes : memory) at.push_back(bytes.data());
        if (by_library) {
          emulate_launch(launch, at, *reference_data, emulate_library);
        } else {
          emulate_launch(launch, at, *reference_data, emulate_call);
        }
        for (size_t w = 0; w < entry.partition.writes.size(); ++w) {
          const size_t t = entry.partition.reads.size() + w;
          EXPECT_EQ(difference(graph, tensors[t], layouts[t], reference_data->outputs[w],
                               take_values(graph, tensors[t], layouts[t], at[t])),
                    "")
              << where << ": " << entry.partition.name << ": "
              << print_candidate(found.domains, entry.partition, entry.candidates[k]);
        }
      }
    }
  }
  return partitions;
}

TEST(EpilogueConfigs, OfModelsAgreeWithTheReference) {
  for (const std::string& model : models()) {
    const std::set<std::string> tiny = check_against_reference(training_of_model(model, {"tiny"}), 37, model);
    const std::set<std::string> odd = check_against_reference(training_of_model(model, {"odd"}), 37, model + " odd");
    EXPECT_FALSE(tiny.empty()) << model;
    EXPECT_FALSE(odd.empty()) << model;
  }
}

TEST(EpilogueConfigs, OfEveryTypeAndKindAgreeWithTheReference) {
  for (const char* const dtype : {"float16", "bfloat16", "float32", "float64"}) {
    std::string text = R"(
A = 4
B = 3
C = 5
D = 6


def f(x: float32[A, B], w: float32[B, C], b: float32[C], t: float32[D, A, B], u: float32[D, B, C], rows: float32[A],
      each: float32[D, C], flat: float32[D], wide: float32[C, D], v: float32[B, C, D], s: float32,
      m: float32[A, C], n: float32[D, A, C], o: float32[A, D, C], p: float32[A, B], q: float32[B, C]):
    columns = np.einsum("ab,bc->ac", x, w) + b
    by_rows = np.einsum("ab,bc->ac", x, w) + rows[:, None]
    batch = np.einsum("dab,dbc->dac", t, u) + b
    each_its_own = np.einsum("dab,dbc->dac", t, u) + each[:, None, :]
    of_batch = np.einsum("dab,dbc->dac", t, u) + flat[:, None, None]
    chain = s * np.einsum("ab,bcd->acd", x, v) + wide
    negative = -2 * np.einsum("ab,bcd->adc", x, v) + each
    positive = relu(np.einsum("dab,dbc->dac", t, u))
    both = relu(s * np.einsum("ab,bcd->acd", x, v) + wide)
    added = m + np.einsum("ab,bc->ac", x, w)
    added_twice = m + np.einsum("ab,bc->ac", x, w) + np.einsum("ab,bc->ac", p, q)
    added_batch = np.einsum("dab,dbc->dac", t, u) + n
    added_negative = o + -2 * np.einsum("ab,bcd->adc", x, v)
    return (columns, by_rows, batch, each_its_own, of_batch, chain, negative, positive, both, added, added_twice,
            added_batch, added_negative)
)";
    for (size_t at = text.find("float32"); at != std::string::npos; at = text.find("float32", at + 1))
      text.replace(at, 7, dtype);
    const std::vector<std::string> unpinned = {
        "columns",  "by_rows",     "batch", "each_its_own",   "of_batch", "chain", "negative",
        "positive", "both",        "v",     "wide",           "each",     "added", "m",
        "n",        "added_batch", "o",     "added_negative", "x",        "p"};
    const std::set<std::string> partitions = check_against_reference(training_of(text), 1, dtype, unpinned);
    for (const std::string name : {"columns", "by_rows", "batch", "each_its_own", "chain", "negative"})
      EXPECT_TRUE(partitions.contains(concat(name, " einsum with ", name, " bias"))) << dtype << ": " << name;
    for (const std::string name : {"added", "added_batch", "added_negative"})
      EXPECT_TRUE(partitions.contains(concat(name, " einsum with ", name, " residual"))) << dtype << ": " << name;
    const auto is_stacked_sum = [](const std::string& partition) {
      return partition.find(" + ") != std::string::npos && partition.find(" with added_twice") != std::string::npos;
    };
    EXPECT_TRUE(std::any_of(partitions.begin(), partitions.end(), is_stacked_sum)) << dtype;
    size_t relus = 0;
    for (const std::string& partition : partitions) relus += partition.ends_with(" relu") ? 1 : 0;
    EXPECT_EQ(relus, 2U) << dtype;
    EXPECT_FALSE(partitions.contains("of_batch einsum with of_batch bias"))
        << "a bias along the batch alone is no vector";
  }
}

// Products with auxiliary matrices, in every layout that the library supports, in both half-precision types.
TEST(EpilogueConfigs, OfGelusAgreeWithTheReference) {
  for (const char* const dtype : {"float16", "bfloat16"}) {
    std::string text = kGelus;
    for (size_t at = text.find("float16"); at != std::string::npos; at = text.find("float16", at + 8))
      text.replace(at, 7, dtype);
    const std::vector<std::string> unpinned = {"x", "w1", "w2", "t", "v1", "v2"};
    const TrainingGraph training = training_of(text);
    const std::set<std::string> partitions = check_against_reference(training, 1, dtype, unpinned);
    for (const char* const name :
         {"linear einsum with linear bias, hidden gelu_tanh", "batch einsum with curved gelu_tanh",
          "first einsum d_hidden with hidden gelu_tanh d_linear",
          "second einsum d_curved with curved gelu_tanh d_batch"})
      EXPECT_TRUE(partitions.contains(name)) << dtype << ": " << name;
    const Candidates found = epilogues_of(training, 2000, unpinned);
    for (const PartitionCandidates& entry : found.partitions) {
      const Product& product = entry.partition.product;
      if (!product.auxiliary.valid()) continue;
      const std::vector<TensorId> tensors = tensors_of(entry.partition);
      for (const Candidate& candidate : entry.candidates) {
        const std::vector<Layout> layouts = layouts_of(found.domains, entry.partition, candidate);
        const auto layout = [&](TensorId tensor) {
          return layouts[static_cast<size_t>(std::find(tensors.begin(), tensors.end(), tensor) - tensors.begin())];
        };
        EXPECT_EQ(layout(product.auxiliary), layout(product.tensors[2].front())) << entry.partition.name;
      }
    }
  }
}

// If nothing else reads the GELU's input, it is not written.
TEST(EpilogueProducts, AGeluWithoutItsAuxiliaryMatrix) {
  const TrainingGraph training = training_of(kGelus);
  const Graph& graph = training.graph;
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    if (graph.operators[k].name != "batch einsum") continue;
    const TensorId result = graph.operators[k].outputs[0].tensor;
    for (size_t f = 0; f < graph.operators.size(); ++f) {
      if (graph.operators[f].kind != OperatorKind::gelu_tanh || graph.operators[f].inputs[0].tensor != result) continue;
      for (const bool needed : {false, true}) {
        Product product = product_of(graph, graph.operators[k]);
        const std::optional<Rejection> rejection =
            take_activation(graph, OperatorId(f), needed ? std::vector<TensorId>{result} : std::vector<TensorId>(),
                            gpu_target().gemm_epilogues, product);
        ASSERT_FALSE(rejection) << rejection->reason;
        EXPECT_EQ(product.writes_auxiliary(), needed);
        EXPECT_EQ(product.activation, Activation::gelu);
        EXPECT_EQ(product.tensors[2].front(), graph.operators[f].outputs[0].tensor);
      }
      return;
    }
  }
  FAIL() << "no GELU";
}

// The products of the attention's inputs can have an epilogue with a bias, with its gradient, and with both stacked: if
// the model's arguments have the layout of a product's result, or if the caller leaves their layouts open. Stacked
// products need open layouts of the weights too.
TEST(EpilogueConfigs, ExistForTheAttentionsInputs) {
  const auto expect_configs = [](const std::string& model, const std::vector<std::string>& unpinned, bool apart,
                                 bool stacked) {
    const TrainingGraph training = training_of_model(model);
    for (const PartitionCandidates& entry : epilogues_of(training, 4000, unpinned).partitions) {
      if (!entry.partition.name.starts_with("q_projected einsum")) continue;
      // The layout that the attention needs: the projection's index or the sequence's is innermost.
      const auto fits = [&](const Candidate& candidate) {
        if (entry.partition.pass == Pass::backward) return true;
        const TensorId result = entry.partition.writes.front();
        const Layout layout = layouts_of(training.graph, result,
                                         false)[static_cast<size_t>(candidate.layouts[entry.partition.reads.size()])];
        const std::string& inner =
            training.graph.dims[training.graph.tensor(result).dims[static_cast<size_t>(layout.order.back())].at()].name;
        return inner == "P" || inner == "J";
      };
      const bool there = entry.partition.product.tensors[2].size() > 1 ? stacked : apart;
      EXPECT_EQ(std::any_of(entry.candidates.begin(), entry.candidates.end(), fits),
                there || entry.partition.pass == Pass::backward)
          << model << ": " << entry.partition.name;
    }
  };
  expect_configs("gpt2_block_unpacked", {}, true, true);
  expect_configs("bert_encoder", {}, false, false);
  expect_configs("bert_encoder", {"bq", "bk", "bv"}, true, false);
  expect_configs("bert_encoder", {"wq", "wk", "wv", "bq", "bk", "bv"}, true, true);
}

// --- Elements computed one by one ---

TEST(EpilogueProbes, AreTheReferencesElements) {
  for (const char* const model : {"gpt2_block_unpacked", "bert_encoder"}) {
    const TrainingGraph training = training_of_model(model, {"tiny"});
    const Result<Candidates> found = find_partitions(training, fuse(training), on_gpu());
    ASSERT_TRUE(found);
    size_t probed = 0;
    for (const PartitionCandidates& entry : found->partitions) {
      if (!absorbs(entry)) continue;
      ++probed;
      const Result<ReferenceData> reference_data =
          make_reference_data(training.graph, draw_rules(training.graph), entry.partition, 7);
      ASSERT_TRUE(reference_data);
      const std::vector<Probe> probes = probes_of(training.graph, entry.partition, *reference_data, 50);
      EXPECT_EQ(probes.size(), 50 * entry.partition.writes.size() / entry.partition.product.tensors[2].size())
          << entry.partition.name;
      std::set<size_t> outputs;
      for (const Probe& probe : probes) {
        ASSERT_LT(probe.output, entry.partition.writes.size());
        outputs.insert(probe.output);
        const Expected& expected = reference_data->outputs[probe.output];
        ASSERT_LT(probe.element, expected.values.size());
        EXPECT_NEAR(probe.value, expected.values[probe.element], 1e-12) << entry.partition.name;
        EXPECT_GE(probe.magnitude, std::abs(probe.value) - 1e-12);
      }
      EXPECT_EQ(outputs.size(), entry.partition.writes.size()) << entry.partition.name;
    }
    EXPECT_GT(probed, 0U) << model;
  }
}

}  // namespace
}  // namespace millrace
