// Reference data made on a GPU equals that of the CPU: inputs bit by bit, expected values and tolerances of every
// partition of the models. On the emulated GPU, and on a real one if there is one.
#include "measure/gpu/gpu_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>

#include "base/sanitized.h"
#include "base/scratch.h"
#include "candidates/enumerate.h"
#include "candidates/partitions.h"
#include "candidates/row_partitions.h"
#include "fusion/fusion_text.h"
#include "fusion/predicates.h"
#include "fusion/row_statistics.h"
#include "ir/attention_family.h"
#include "measure/attention_reference_data.h"
#include "measure/gpu/gpu_attention.h"
#include "measure/trial_log.h"
#include "oracle/oracle_fixture.h"

namespace millrace {
namespace {

constexpr uint64_t kReferenceSeed = 20210101;

class GpuReferenceTest : public ScratchTest {
 protected:
  void open(OracleMachine machine) {
    machine_ = std::make_unique<OracleOnMachine>(machine, path("cache"));
    if (!machine_->missing.empty()) GTEST_SKIP() << machine_->missing;
  }

  OracleContext context() const { return {*machine_->gpu, *machine_->oracle, machine_->memory()}; }

  std::vector<double> values_in(const GpuMemory& memory) const {
    return machine_->download<double>(memory.data(), memory.size() / static_cast<int64_t>(sizeof(double)));
  }

  // Every partition that a GPU is offered, and a conversion of every tensor.
  void check_all(const TrainingGraph& forward_and_backward) {
    const Recomputed made = add_row_statistics(save_predicates(forward_and_backward, true));
    EnumerateOptions options;
    options.target = gpu_target();
    options.libraries = {GemmLibrary::cublaslt};
    const Result<Candidates> found = find_partitions(made.training, made.fused, options);
    ASSERT_TRUE(found) << to_string(found.error());
    const Graph& graph = made.training.graph;
    for (const PartitionCandidates& each : found->partitions) {
      SCOPED_TRACE(each.partition.name);
      check(graph, each.partition);
      ++seen_[each.partition.kind];
      if (HasFatalFailure()) return;
    }
    for (size_t k = 0; k < graph.tensors.size() && !HasFatalFailure(); ++k) {
      const bool number = graph.tensors[k].role == TensorRole::scalar || graph.tensors[k].role == TensorRole::constant;
      if (!number) check(graph, conversion_partition(graph, TensorId(k)));
    }
  }

  void check(const Graph& graph, const Partition& partition) {
    const Result<ReferenceData> wanted = make_reference_data(graph, draw_rules(graph), partition, kReferenceSeed);
    ASSERT_TRUE(wanted) << to_string(wanted.error());
    const Result<GpuReferenceData> found =
        make_gpu_reference_data(context(), graph, draw_rules(graph), partition, kReferenceSeed);
    ASSERT_TRUE(found) << to_string(found.error());
    EXPECT_EQ(found->numbers.arguments, wanted->arguments);
    EXPECT_EQ(found->numbers.random.seed, wanted->random.seed);
    EXPECT_EQ(found->numbers.random.step, wanted->random.step);
    for (size_t k = 0; k < partition.reads.size(); ++k) {
      // What backward reads of an attention's forward pass is computed.
      const bool computed = partition.kind == PartitionKind::attention &&
                            (partition.reads[k] == partition.attention.tensors[Attention::o] ||
                             partition.reads[k] == partition.attention.tensors[Attention::log_sums]);
      compare_inputs(graph, partition.reads[k], values_in(found->inputs[k]), wanted->inputs[k], computed ? 1e-2 : 0);
    }
    for (size_t k = 0; k < partition.writes.size() && !HasFatalFailure(); ++k)
      compare(graph, partition, k, found->expected[k], wanted->outputs[k]);
    if (partition.kind == PartitionKind::attention && !HasFatalFailure()) check_attention(graph, partition);
  }

  // Checks attentions without the unfused graph, from which small attentions take their values.
  void check_attention(const Graph& graph, const Partition& partition) {
    ReferenceData wanted = draw_inputs(graph, draw_rules(graph), partition, kReferenceSeed);
    complete_attention(graph, draw_rules(graph), partition, wanted);
    Result<GpuReferenceData> found = draw_gpu_inputs(context(), graph, draw_rules(graph), partition, kReferenceSeed);
    ASSERT_TRUE(found) << to_string(found.error());
    const Result<Done> completed = complete_gpu_attention(context(), graph, draw_rules(graph), partition, *found);
    ASSERT_TRUE(completed) << to_string(completed.error());
    for (size_t k = 0; k < partition.writes.size() && !HasFatalFailure(); ++k) {
      compare(graph, partition, k, found->expected[k], wanted.outputs[k]);
      const std::vector<double> values = values_in(found->expected[k].values);
      for (size_t e = 0; e < values.size(); ++e)
        ASSERT_NEAR(values[e], wanted.outputs[k].values[e], 1e-13 * (1 + std::abs(values[e])));
    }
  }

  static void compare_inputs(const Graph& graph, TensorId tensor, const std::vector<double>& found,
                             const std::vector<double>& wanted, double tolerance) {
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t e = 0; e < found.size(); ++e) {
      const bool same = std::memcmp(&found[e], &wanted[e], sizeof(double)) == 0;
      ASSERT_TRUE(same || std::abs(found[e] - wanted[e]) <= tolerance * std::abs(wanted[e]))
          << graph.tensor(tensor).name << "[" << e << "] is drawn as " << found[e] << ", expected " << wanted[e];
    }
  }

  // Sums of products may be truncated: then a tolerance is up to twice the CPU's.
  void compare(const Graph& graph, const Partition& partition, size_t k, const ExpectedOnGpu& found,
               const Expected& wanted) const {
    const double most = partition.kind == PartitionKind::contraction ? 2 : 1;
    const std::vector<double> values = values_in(found.values);
    const std::vector<double> tolerances = values_in(found.tolerances);
    ASSERT_EQ(values.size(), wanted.values.size());
    for (size_t e = 0; e < values.size(); ++e) {
      const bool same_nan = std::isnan(values[e]) && std::isnan(wanted.values[e]);
      const bool same_value =
          values[e] == wanted.values[e] || same_nan || std::abs(values[e] - wanted.values[e]) <= wanted.tolerances[e];
      const bool same_tolerance =
          tolerances[e] == wanted.tolerances[e] || (tolerances[e] >= (1 - 1e-6) * wanted.tolerances[e] &&
                                                    tolerances[e] <= most * (1 + 1e-6) * wanted.tolerances[e]);
      ASSERT_TRUE(same_value && same_tolerance)
          << graph.tensor(partition.writes[k]).name << "[" << e << "] is " << values[e] << " ± " << tolerances[e]
          << ", expected " << wanted.values[e] << " ± " << wanted.tolerances[e];
    }
  }

  void check_models(const std::vector<std::string>& models) {
    for (const std::string& model : models) {
      for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
        ProgramOptions options = with_sizes({"tiny"});
        options.dtype = dtype;
        SCOPED_TRACE(concat(model, " in ", name_of(dtype)));
        check_all(training_of(text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/", model, ".py")), options));
        if (HasFatalFailure()) return;
      }
    }
  }

  void check_attentions() {
    std::vector<AttentionProgram> programs(5);
    programs[1].weights = "softmax(causal_mask(s))";
    programs[1].type = "bfloat16";
    programs[2].q = "pjbh";
    programs[2].k = "hpkb";
    programs[2].v = "whbk";
    programs[2].scores = "hkbj";
    programs[2].o = "bjhw";
    programs[2].weights = "dropout(softmax(s, axis=1), p=0.25)";
    programs[3].q = "jp";
    programs[3].k = "pk";
    programs[3].v = "kw";
    programs[3].scores = "jk";
    programs[3].o = "jw";
    programs[4].q = "rbhjp";  // grouped heads
    programs[4].scores = "bhrjk";
    programs[4].o = "bjhrw";
    for (const NamedAttention& each : attention_family()) programs.push_back(each.program);
    for (const NamedAttention& each : attentions_of_some_gradients()) programs.push_back(each.program);
    for (const AttentionProgram& program : programs) {
      SCOPED_TRACE(program.text());
      check_all(training_of(program.text()));
      if (HasFatalFailure()) return;
    }
    EXPECT_GE(seen_[PartitionKind::attention], 2 * std::ssize(programs));
  }

  // The attentions of row_family.h.
  void check_computed_rows() {
    for (const NamedAttention& each : row_family()) {
      SCOPED_TRACE(each.name);
      const TrainingGraph training = training_of(text_with(each.program, {6, 6, 8, 5}, "float16"));
      const Recomputed made = add_row_statistics(save_predicates(training, true));
      for (const PartitionCandidates& one : rows_of(made)) {
        SCOPED_TRACE(one.partition.name);
        check(made.training.graph, one.partition);
        ++seen_[PartitionKind::attention];
        if (HasFatalFailure()) return;
      }
    }
    EXPECT_EQ(seen_[PartitionKind::attention], 2 * std::ssize(row_family()) - 1);
  }

  std::unique_ptr<OracleOnMachine> machine_;
  std::map<PartitionKind, int> seen_;
};

class CudaReferenceTest : public GpuReferenceTest {};

TEST_F(GpuReferenceTest, EqualsThatOfTheCpu) {
  open(OracleMachine::emulated);
  check_models(kSanitized ? std::vector<std::string>{"mha"} : std::vector<std::string>{"bert_encoder", "llama_block"});
}

TEST_F(GpuReferenceTest, OfAttentionsEqualsThatOfTheCpu) {
  open(OracleMachine::emulated);
  check_attentions();
}

TEST_F(GpuReferenceTest, OfComputedRowsEqualsThatOfTheCpu) {
  open(OracleMachine::emulated);
  check_computed_rows();
}

TEST_F(CudaReferenceTest, OfComputedRowsEqualsThatOfTheCpu) {
  open(OracleMachine::cuda);
  if (IsSkipped()) return;
  check_computed_rows();
}

TEST_F(CudaReferenceTest, EqualsThatOfTheCpu) {
  open(OracleMachine::cuda);
  if (IsSkipped()) return;
  check_models(all_models());
  check_attentions();
}

// An attention's heads are processed in chunks that fit into a share of the memory.
TEST_F(GpuReferenceTest, ProcessesHeadsInChunks) {
  set_variable("MILLRACE_EMULATED_MEMORY", std::to_string(256 << 10));
  open(OracleMachine::emulated);
  check_attentions();
}

TEST_F(GpuReferenceTest, LogsPhasesOfTrials) {
  log_trial(1, "check", "nobody asked");
  set_variable("MILLRACE_TRIAL_LOG", path("log"));
  log_trial(0.5, "expected on the GPU", "first");
  log_trial(2, "expected on the CPU: no room", "second");
  std::ifstream file(path("log"));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(text, "0.5\texpected on the GPU\tfirst\n2\texpected on the CPU: no room\tsecond\n");
}

}  // namespace
}  // namespace millrace
