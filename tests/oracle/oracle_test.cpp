// The oracle on a GPU against the interpreter: every operator of random programs and of the models, from the same
// inputs. On the emulated GPU, and on a real one if there is one.
#include "oracle/oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "autodiff/differentiate.h"
#include "base/long_run.h"
#include "base/sanitized.h"
#include "base/scratch.h"
#include "fusion/fusion_text.h"
#include "oracle/oracle_fixture.h"
#include "random/generator.h"
#include "random/inputs.h"

namespace millrace {
namespace {

// The Number of numbers.h, on the host.
struct NumberOnHost {
  double value = 0;
  double error = 0;
  double terms_error = 0;
  double magnitude = 0;
  double additions = 0;
};
static_assert(sizeof(NumberOnHost) == kBytesOfNumber);

template <int kDigits>
std::vector<NumberOnHost> numbers_of(const std::vector<Bounded<kDigits>>& values) {
  std::vector<NumberOnHost> made;
  for (const Bounded<kDigits>& x : values) made.push_back({x.value, x.error, x.terms_error, x.magnitude, x.additions});
  return made;
}

bool same_value(const NumberOnHost& found, double wanted, double error) {
  if (std::isnan(wanted) || std::isnan(found.value)) return std::isnan(wanted) && std::isnan(found.value);
  return found.value == wanted || std::abs(found.value - wanted) <= error;
}

bool same_bound(double found, double wanted) {
  return found == wanted || std::abs(found - wanted) <= 1e-6 * std::max(found, wanted) + 1e-290;
}

class OracleTest : public ScratchTest {
 protected:
  void open(OracleMachine machine) {
    machine_ = std::make_unique<OracleOnMachine>(machine, path("cache"));
    if (!machine_->missing.empty()) GTEST_SKIP() << machine_->missing;
  }

  template <int kDigits>
  static Values<Bounded<kDigits>> interpreted(const TrainingGraph& training, uint64_t seed, RandomState& random) {
    Graph graph = training.graph;
    for (size_t k = 0; k < training.result_gradients.size(); ++k)
      graph.results[k].tensor = training.result_gradients[k];
    const random_programs::Inputs inputs = random_programs::draw_inputs(graph, seed);
    Values<Bounded<kDigits>> values(graph.tensors.size());
    for (size_t k = 0; k < graph.arguments.size(); ++k)
      values[graph.arguments[k].at()].assign(inputs.arguments[k].begin(), inputs.arguments[k].end());
    for (size_t k = 0; k < training.result_gradients.size(); ++k)
      values[training.result_gradients[k].at()].assign(inputs.result_gradients[k].begin(),
                                                       inputs.result_gradients[k].end());
    random = inputs.random;
    const Result<Done> done = interpret(training.graph, values, random);
    EXPECT_TRUE(done) << to_string(done.error());
    return values;
  }

  // One operator, from the interpreter's inputs.
  template <int kDigits>
  void check(const Graph& graph, const Operator& op, const Values<Bounded<kDigits>>& values,
             const RandomState& random) {
    Graph alone = graph;
    alone.operators = {op};
    std::vector<OracleTensor> tensors(graph.tensors.size());
    for (const Access& input : op.inputs) {
      OracleTensor& tensor = tensors[input.tensor.at()];
      if (graph.tensor(input.tensor).role == TensorRole::constant || tensor.data != nullptr) continue;
      tensor.memory = machine_->upload(numbers_of(values[input.tensor.at()]));
      tensor.data = static_cast<double*>(tensor.memory.data());
    }
    std::vector<TensorId> kept;
    for (const Access& output : op.outputs) kept.push_back(output.tensor);
    const OracleSettings settings{random.seed, random.step, Bounded<kDigits>::kRoundoff};
    const Result<Done> ran = machine_->oracle->run(alone, tensors, kept, settings, machine_->memory());
    ASSERT_TRUE(ran) << to_string(ran.error());
    for (const TensorId tensor : kept) {
      const std::vector<NumberOnHost> found =
          machine_->download<NumberOnHost>(tensors[tensor.at()].data, elements_of(graph, tensor));
      compare(graph, op, tensor, found, values[tensor.at()]);
    }
    kinds_.insert(op.kind);
  }

  template <int kDigits>
  void compare(const Graph& graph, const Operator& op, TensorId tensor, const std::vector<NumberOnHost>& found,
               const std::vector<Bounded<kDigits>>& wanted) {
    for (size_t e = 0; e < found.size(); ++e) {
      const double tolerance = 4 * 0x1p-53 / Bounded<kDigits>::kRoundoff * wanted[e].error;
      const bool same = same_value(found[e], wanted[e].value, tolerance) && same_bound(found[e].error, wanted[e].error);
      ASSERT_TRUE(same) << info_of(op.kind).name << " '" << op.name << "', " << graph.tensor(tensor).name << "[" << e
                        << "] is " << found[e].value << " ± " << found[e].error << ", expected " << wanted[e].value
                        << " ± " << wanted[e].error;
    }
  }

  template <int kDigits>
  void check_operators(const TrainingGraph& training, uint64_t seed) {
    RandomState random;
    const Values<Bounded<kDigits>> values = interpreted<kDigits>(training, seed, random);
    for (const Operator& op : training.graph.operators) {
      check(training.graph, op, values, random);
      if (HasFatalFailure()) return;
    }
  }

  void check_random_programs(uint64_t count) {
    for (uint64_t seed = 1; seed <= count && !HasFatalFailure(); ++seed) {
      SCOPED_TRACE(concat("random program ", seed));
      const TrainingGraph training = training_of(random_programs::random_program(seed));
      if (seed % 2 == 0)
        check_operators<53>(training, seed);
      else
        check_operators<24>(training, seed);
    }
  }

  void check_models() {
    for (const std::string& model : all_models()) {
      SCOPED_TRACE(model);
      check_operators<24>(training_of_model(model, {"tiny"}), 7);
      if (HasFatalFailure()) return;
    }
  }

  std::unique_ptr<OracleOnMachine> machine_;
  std::set<OperatorKind> kinds_;
};

class CudaOracleTest : public OracleTest {};

// No operator is left out: those that neither the models nor these programs have would be listed.
TEST_F(OracleTest, AgreesWithTheInterpreter) {
  open(OracleMachine::emulated);
  check_operators<24>(training_of("A = 7\n\n\ndef f(x: float64[A]):\n    return np.abs(x)\n"), 1);
  check_models();
  check_random_programs(kSanitized ? 5 : is_long_run() ? 1000 : 60);
  std::string missing;
#define MILLRACE_OPERATOR(kind, ...) \
  if (!kinds_.contains(OperatorKind::kind)) missing += concat(" ", #kind);
#include "ir/operators.inc"
#undef MILLRACE_OPERATOR
  EXPECT_TRUE(kSanitized || missing.empty()) << "not checked:" << missing;
}

TEST_F(CudaOracleTest, AgreesWithTheInterpreter) {
  open(OracleMachine::cuda);
  if (IsSkipped()) return;
  check_models();
  check_random_programs(300);
}

// A whole graph: intermediate tensors are freed, results are kept.
TEST_F(OracleTest, RunsWholeGraphs) {
  open(OracleMachine::emulated);
  const TrainingGraph training = training_of_model("bert_encoder", {"tiny"});
  RandomState random;
  const Values<Bounded<24>> values = interpreted<24>(training, 3, random);
  std::vector<OracleTensor> tensors(training.graph.tensors.size());
  for (size_t k = 0; k < tensors.size(); ++k) {
    const TensorRole role = training.graph.tensors[k].role;
    if (role == TensorRole::scalar) tensors[k] = OracleTensor::of_number(values[k].front().value);
    if (role != TensorRole::argument && role != TensorRole::result_gradient) continue;
    std::vector<double> given;
    for (const Bounded<24>& x : values[k]) given.push_back(x.value);
    tensors[k].memory = machine_->upload(given);
    tensors[k].format = oracle::kExact;
    tensors[k].data = static_cast<double*>(tensors[k].memory.data());
  }
  std::vector<TensorId> kept;
  for (const TensorId gradient : training.argument_gradients) {
    if (gradient.valid()) kept.push_back(gradient);
  }
  const OracleSettings settings{random.seed, random.step, 0x1p-24};
  ASSERT_TRUE(machine_->oracle->run(training.graph, tensors, kept, settings, machine_->memory()));
  for (const TensorId tensor : kept) {
    const std::vector<NumberOnHost> found =
        machine_->download<NumberOnHost>(tensors[tensor.at()].data, elements_of(training.graph, tensor));
    for (size_t e = 0; e < found.size(); ++e) {
      ASSERT_TRUE(same_value(found[e], values[tensor.at()][e].value, 1e-8 * values[tensor.at()][e].error + 1e-300));
      ASSERT_TRUE(same_bound(found[e].error, values[tensor.at()][e].error));
    }
  }
}

// Long sums of few elements are shared by threads; large contractions copy their operands first.
TEST_F(OracleTest, SharesLongSumsAndCopiesOperands) {
  open(OracleMachine::emulated);
  check_operators<24>(training_of(R"(
A = 3
B = 5000


def sums(x: float64[A, B], y: float64[B]):
    return np.sum(x), np.max(x, axis=1), np.min(x), softmax(x), np.einsum("ab,b->a", x, y)
)"),
                      1);
  if (kSanitized) return;
  check_operators<24>(training_of(R"(
B = 2
M = 170
N = 180
K = 190


def products(x: float64[B, M, K], y: float64[N, B, K]):
    return np.einsum("bmk,nbk->bmn", x, y)
)"),
                      1);
}

// A task is passed whole, so nothing in it depends on earlier tasks or on uninitialized memory.
TEST_F(OracleTest, AnUnknownFormulaGivesNoNumber) {
  open(OracleMachine::emulated);
  const GpuMemory to = machine_->upload(std::vector<double>(3, 1.0));
  oracle::Task task{};
  task.formula = 999;
  task.outputs = 1;
  task.outer = 1;
  task.indices = 1;
  task.extents[0] = 3;
  task.points = 3;
  task.out[0].strides[0] = 1;
  task.out[0].format = oracle::kExact;
  task.out[0].data = static_cast<double*>(to.data());
  ASSERT_TRUE(machine_->oracle->run(TaskKind::map, task, machine_->memory()));
  for (const double x : machine_->download<double>(to.data(), 3)) EXPECT_TRUE(std::isnan(x));
}

TEST_F(OracleTest, SaysWhatDoesNotFit) {
  open(OracleMachine::emulated);
  const TrainingGraph training = training_of_model("mha", {"tiny"});
  std::vector<OracleTensor> tensors(training.graph.tensors.size());
  const OracleMemory none = [](int64_t) -> Result<GpuMemory> { return Error::make(ErrorKind::failed, "no memory"); };
  const Result<Done> ran = machine_->oracle->run(training.graph, tensors, {}, {}, none);
  ASSERT_FALSE(ran);
  EXPECT_NE(to_string(ran.error()).find("no memory"), std::string::npos);
}

}  // namespace
}  // namespace millrace
