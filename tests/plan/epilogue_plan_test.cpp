// Plans and selections with products that absorb biases and their gradients.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/sanitized.h"
#include "base/text.h"
#include "candidates/adding_program.h"
#include "candidates/enumerate.h"
#include "candidates/gelu_program.h"
#include "device/emulated/emulated_gpu.h"
#include "exec/launch_tensors.h"
#include "fusion/fuse.h"
#include "fusion/fusion_text.h"
#include "measure/verify.h"
#include "plan/launched_partition.h"
#include "plan/plan_json.h"
#include "plan/random_plan.h"
#include "plan/verify.h"
#include "select/select.h"
#include "select/verify.h"

namespace millrace {
namespace {

// Two projections of one input, each with a bias, as in attention.
constexpr const char* kProjections = R"(
B = 6
I = 4
O = 5


def layer(x: float32[B, I], wq: float32[I, O], bq: float32[O], wk: float32[I, O], bk: float32[O]):
    qq = np.einsum("bi,io->bo", x, wq) + bq
    kk = np.einsum("bi,io->bo", x, wk) + bk
    return np.einsum("bo,co->bc", qq, kk)
)";

MadePlan made_on_gpu(const std::string& text, uint64_t seed, std::vector<std::string> sizes = {}) {
  static const std::unique_ptr<Gpu> kGpu = emulated::make_gpu();
  PlanChoice choice;
  choice.seed = seed;
  choice.gpu = kGpu.get();
  choice.sizes = std::move(sizes);
  choice.most = 60;
  return make_plan(text, choice);
}

bool has_epilogue(const MadePlan& made, const PlanLaunch& launch) {
  const Result<LaunchedPartition> launched = launched_partition(made.training.graph, made.candidates, launch);
  return launched && launched->partition.product.has_epilogue();
}

std::string complaint(const MadePlan& made, const std::function<void(StepPlan&)>& change) {
  StepPlan plan = made.plan;
  change(plan);
  const Result<Done> verified = verify(plan, made.training, made.candidates);
  return verified ? "" : verified.error().diagnostics.front().message;
}

// Changes each digit of the layouts and of the config: a result that is still a candidate needs other buffers, or is
// the same.
void expect_digits_matter(const MadePlan& made, size_t number) {
  const std::string& candidate = made.plan.launches[number].candidate;
  for (size_t at = 0; at < candidate.find(" algorithm"); ++at) {
    if (candidate[at] < '0' || candidate[at] > '9') continue;
    for (const char digit : {'0', '1', '2', '9'}) {
      if (candidate[at] == digit) continue;
      const std::string wrong = complaint(made, [&](StepPlan& plan) { plan.launches[number].candidate[at] = digit; });
      EXPECT_NE(wrong, "") << candidate << " at " << at << ": " << digit;
    }
  }
}

TEST(EpiloguePlans, AreBuiltVerifiedAndReadBack) {
  std::set<std::string> launched;
  for (uint64_t seed = 0; seed < 40 && !(kSanitized && launched.size() == 6); ++seed) {
    const MadePlan made = made_on_gpu(kProjections, seed);
    const Result<StepPlan> read = parse_plan(plan_json(made.plan), "plan.json");
    ASSERT_TRUE(read) << to_string(read.error());
    EXPECT_EQ(plan_json(*read), plan_json(made.plan));
    EXPECT_TRUE(verify(*read, made.training, made.candidates));
    const Result<std::vector<Launch>> launches = lower_plan(*read, made.training, made.candidates);
    ASSERT_TRUE(launches) << to_string(launches.error());
    const LaunchTensors tensors(*read, *launches);
    EXPECT_EQ(tensors.launches(), launches->size());
    for (size_t k = 0; k < launches->size(); ++k) {
      const Launch& launch = (*launches)[k];
      EXPECT_EQ(launch.vectors.empty(), launch.gemm.vector == GemmVector::none);
      if (launch.vectors.empty()) continue;
      launched.insert(read->launches[k].partition);
      // Every tensor of the launch is one of its operands.
      std::set<int> used(launch.vectors.begin(), launch.vectors.end());
      for (const std::vector<int>& operand : launch.operands) used.insert(operand.begin(), operand.end());
      EXPECT_EQ(used.size(), read->launches[k].buffers.size());
      EXPECT_EQ(*used.rbegin() + 1, std::ssize(read->launches[k].buffers));
      EXPECT_EQ(launch.vector_bytes * std::ssize(launch.vectors), launch.gemm.v_elements * 4);
    }
  }
  // Separate and stacked, biases and their gradients.
  EXPECT_EQ(launched.size(), 6U) << join(std::vector<std::string>(launched.begin(), launched.end()), "\n");
}

TEST(EpiloguePlans, OfModelsAreBuiltAndVerified) {
  size_t epilogues = 0;
  for (const char* const model : {"gpt2_block_unpacked", "mha"}) {
    const std::string text = text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/", model, ".py"));
    for (uint64_t seed = 0; seed < tried_of(4); ++seed) {
      const MadePlan made = made_on_gpu(text, seed, {"tiny"});
      for (const PlanLaunch& launch : made.plan.launches) epilogues += has_epilogue(made, launch) ? 1 : 0;
    }
  }
  EXPECT_GT(epilogues, kSanitized ? 0U : 5U);
}

TEST(EpiloguePlans, EveryChangeIsNoticed) {
  size_t changed = 0;
  for (uint64_t seed = 0; seed < tried_of(30); ++seed) {
    const MadePlan made = made_on_gpu(kProjections, seed);
    for (size_t k = 0; k < made.plan.launches.size(); ++k) {
      const PlanLaunch& launch = made.plan.launches[k];
      if (!has_epilogue(made, launch)) continue;
      ++changed;
      const auto expect = [&](const std::string& how, const std::function<void(PlanLaunch&)>& change) {
        EXPECT_NE(complaint(made, [&](StepPlan& plan) { change(plan.launches[k]); }), "")
            << launch.partition << ": " << how;
      };
      expect("without what it absorbs",
             [](PlanLaunch& one) { one.partition = one.partition.substr(0, one.partition.find(" with ")); });
      expect("with something else", [](PlanLaunch& one) { one.partition += " too"; });
      expect("by a kernel", [](PlanLaunch& one) {
        one.candidate =
            one.candidate.substr(0, one.candidate.find("; ")) + "; flat loops 0.1 vector 1 threads 1 block -1";
      });
      expect("by another library", [](PlanLaunch& one) {
        const size_t at = one.candidate.find("cublaslt");
        const size_t on = one.candidate.find(" on ");
        one.candidate =
            one.candidate.substr(0, at) + "openblas" + one.candidate.substr(at + 8, on - at - 8) + " threads 1 inside";
      });
      for (size_t b = 0; b < launch.buffers.size(); ++b) {
        expect("a buffer less",
               [&](PlanLaunch& one) { one.buffers.erase(one.buffers.begin() + static_cast<std::ptrdiff_t>(b)); });
        for (const int other : {-2, -1, 0, 1, 2, 1000}) {
          if (launch.buffers[b] != other) expect("another buffer", [&](PlanLaunch& one) { one.buffers[b] = other; });
        }
      }
      expect_digits_matter(made, k);
    }
  }
  EXPECT_GT(changed, kSanitized ? 0U : 10U);
}

TEST(EpiloguePlans, DoNotExistOnACpu) {
  size_t refused = 0;
  for (uint64_t seed = 0; seed < tried_of(12); ++seed) {
    const MadePlan made = made_on_gpu(kProjections, seed);
    const Result<Candidates> of_cpu = find_partitions(made.training, fuse(made.training), EnumerateOptions());
    ASSERT_TRUE(of_cpu);
    for (const PlanLaunch& launch : made.plan.launches) {
      if (!has_epilogue(made, launch)) continue;
      const Result<Done> verified = verify(made.plan, made.training, *of_cpu);
      ASSERT_FALSE(verified);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0U);
}

// A product that adds to a sum reads the sum in its output's layout, and does not write to where it reads.
TEST(AdditionPlans, EveryChangeIsNoticed) {
  size_t changed = 0;
  for (uint64_t seed = 0; seed < tried_of(12); ++seed) {
    const MadePlan made = made_on_gpu(kSums, seed);
    for (size_t k = 0; k < made.plan.launches.size(); ++k) {
      const PlanLaunch& launch = made.plan.launches[k];
      const Result<LaunchedPartition> launched = launched_partition(made.training.graph, made.candidates, launch);
      ASSERT_TRUE(launched) << to_string(launched.error());
      if (!launched->partition.product.adds()) continue;
      ++changed;
      const auto expect = [&](const std::string& how, const std::function<void(PlanLaunch&)>& change) {
        EXPECT_NE(complaint(made, [&](StepPlan& plan) { change(plan.launches[k]); }), "")
            << launch.partition << ": " << how;
      };
      const auto added = static_cast<size_t>(
          std::find(launched->tensors.begin(), launched->tensors.end(), launched->partition.product.added) -
          launched->tensors.begin());
      expect("onto itself", [&](PlanLaunch& one) { one.buffers[added] = one.buffers.back(); });
      expect("into the added tensor", [&](PlanLaunch& one) { one.buffers.back() = one.buffers[added]; });
      expect("without the addition",
             [](PlanLaunch& one) { one.partition = one.partition.substr(0, one.partition.find(" with ")); });
      expect_digits_matter(made, k);
    }
  }
  EXPECT_GT(changed, kSanitized ? 0U : 10U);
}

// A GELU's input has the layout of its output, and another buffer.
TEST(AuxiliaryPlans, EveryChangeIsNoticed) {
  std::set<std::string> changed;
  for (uint64_t seed = 0; seed < 16 && !(kSanitized && changed.size() == 4); ++seed) {
    const MadePlan made = made_on_gpu(kGelus, seed);
    const Result<StepPlan> read = parse_plan(plan_json(made.plan), "plan.json");
    ASSERT_TRUE(read) << to_string(read.error());
    EXPECT_TRUE(verify(*read, made.training, made.candidates));
    for (size_t k = 0; k < made.plan.launches.size(); ++k) {
      const PlanLaunch& launch = made.plan.launches[k];
      const Result<LaunchedPartition> launched = launched_partition(made.training.graph, made.candidates, launch);
      ASSERT_TRUE(launched) << to_string(launched.error());
      const Product& product = launched->partition.product;
      if (!product.auxiliary.valid()) continue;
      changed.insert(launch.partition);
      const auto location = [&](TensorId tensor) {
        return static_cast<size_t>(std::find(launched->tensors.begin(), launched->tensors.end(), tensor) -
                                   launched->tensors.begin());
      };
      const size_t auxiliary = location(product.auxiliary);
      const size_t result = location(product.tensors[2].front());
      const auto expect = [&](const std::string& how, const std::function<void(PlanLaunch&)>& change) {
        EXPECT_NE(complaint(made, [&](StepPlan& plan) { change(plan.launches[k]); }), "")
            << launch.partition << ": " << how;
      };
      expect("onto itself", [&](PlanLaunch& one) { one.buffers[auxiliary] = one.buffers[result]; });
      expect("into the auxiliary tensor", [&](PlanLaunch& one) { one.buffers[result] = one.buffers[auxiliary]; });
      expect("swapped", [&](PlanLaunch& one) { std::swap(one.buffers[result], one.buffers[auxiliary]); });
      expect("without the GELU",
             [](PlanLaunch& one) { one.partition = one.partition.substr(0, one.partition.find(" with ")); });
      expect_digits_matter(made, k);
    }
  }
  EXPECT_EQ(changed.size(), 4U) << join(std::vector<std::string>(changed.begin(), changed.end()), "\n");
}

// --- Selecting ---

// Measurements of every candidate, with times from `seconds` by partition; a conversion takes a microsecond.
Measurements measured(const TrainingGraph& training, const Candidates& candidates,
                      const std::function<double(const Partition&)>& seconds) {
  Measurements made;
  std::vector<int> number(training.graph.tensors.size(), -1);
  for (size_t t = 0; t < number.size(); ++t) {
    const TensorDomain& domain = candidates.domains[t];
    if (domain.layouts.empty()) continue;
    number[t] = static_cast<int>(made.tensors.size());
    MeasuredTensor tensor{training.graph.tensors[t].name, {}, domain.pinned};
    for (const Layout& layout : domain.layouts)
      tensor.layouts.push_back(print_layout(training.graph, TensorId(t), layout));
    for (size_t from = 0; from < domain.layouts.size(); ++from) {
      for (size_t to = 0; to < domain.layouts.size(); ++to) {
        if (from != to)
          made.conversions.push_back({number[t], static_cast<int>(from), static_cast<int>(to), 1e-6, "by a test"});
      }
    }
    made.tensors.push_back(std::move(tensor));
  }
  for (const PartitionCandidates& entry : candidates.partitions) {
    MeasuredPartition partition{entry.partition.name, entry.partition.pass == Pass::backward, {}, {}, {}};
    for (const TensorId tensor : entry.partition.reads) partition.reads.push_back(number[tensor.at()]);
    for (const TensorId tensor : entry.partition.writes) partition.writes.push_back(number[tensor.at()]);
    for (const Candidate& candidate : entry.candidates) {
      const double time = seconds(entry.partition);
      partition.candidates.push_back(
          {print_candidate(candidates.domains, entry.partition, candidate), candidate.layouts, time, time, time});
    }
    made.partitions.push_back(std::move(partition));
  }
  for (const ChoicePoint& choice_point : candidates.choice_points) {
    MeasuredChoicePoint into;
    for (const std::vector<int>& alternative : choice_point.alternatives) {
      if (std::all_of(alternative.begin(), alternative.end(), [&](int partition) {
            return !made.partitions[static_cast<size_t>(partition)].candidates.empty();
          }))
        into.alternatives.push_back(alternative);
    }
    made.choice_points.push_back(std::move(into));
  }
  // Drops partitions that no remaining alternative contains.
  std::vector<int> renumbered(made.partitions.size(), -1);
  std::vector<MeasuredPartition> kept;
  for (MeasuredChoicePoint& choice_point : made.choice_points) {
    for (const std::vector<int>& alternative : choice_point.alternatives) {
      for (const int partition : alternative) renumbered[static_cast<size_t>(partition)] = 0;
    }
  }
  for (size_t k = 0; k < renumbered.size(); ++k) {
    if (renumbered[k] < 0) continue;
    renumbered[k] = static_cast<int>(kept.size());
    kept.push_back(std::move(made.partitions[k]));
  }
  made.partitions = std::move(kept);
  for (MeasuredChoicePoint& choice_point : made.choice_points) {
    for (std::vector<int>& alternative : choice_point.alternatives) {
      for (int& partition : alternative) partition = renumbered[static_cast<size_t>(partition)];
    }
  }
  return made;
}

std::set<std::string> selected(const Measurements& measurements) {
  std::set<std::string> names;
  const Result<Done> sound = verify(measurements);
  EXPECT_TRUE(sound) << to_string(sound.error());
  const Result<Selection> selection = select(measurements, SelectMethod::exact);
  EXPECT_TRUE(selection) << to_string(selection.error());
  if (!selection) return names;
  EXPECT_TRUE(verify(measurements, *selection));
  for (const SelectedPartition& partition : selection->partitions)
    names.insert(measurements.partitions[static_cast<size_t>(partition.partition)].name);
  return names;
}

TEST(EpilogueSelections, TakeAnEpilogueWhereItIsFaster) {
  const TrainingGraph training = training_of(kProjections);
  EnumerateOptions options;
  options.target = gpu_target();
  options.libraries = {GemmLibrary::cublaslt};
  options.most = 30;
  const Result<Candidates> candidates = enumerate(training, fuse(training), options);
  ASSERT_TRUE(candidates);
  constexpr double kProduct = 1e-4;
  const auto with = [&](double apart, double stacked) {
    return selected(measured(training, *candidates, [&](const Partition& partition) {
      if (partition.kind == PartitionKind::kernel) return 5e-5;
      if (partition.product.adds()) return 1e-3;
      const bool is_stacked = partition.product.tensors[2].size() > 1;
      return kProduct * (is_stacked ? 2.5 : 1) + (partition.product.vector ? (is_stacked ? stacked : apart) : 0);
    }));
  };
  const std::string both = "qq einsum + kk einsum with qq bias, kk bias";
  const auto count = [](const std::set<std::string>& names, const std::string& what) {
    return std::count_if(names.begin(), names.end(),
                         [&](const std::string& name) { return name.find(what) != std::string::npos; });
  };
  const std::set<std::string> apart = with(1e-6, 1e-3);
  EXPECT_EQ(count(apart, " with "), 4) << join(std::vector<std::string>(apart.begin(), apart.end()), "\n");
  EXPECT_EQ(count(apart, " + "), 0);
  EXPECT_EQ(count(apart, "bias*2"), 0);
  const std::set<std::string> stacked = with(1e-3, -1.5e-4);
  EXPECT_EQ(count(stacked, " with "), 2) << join(std::vector<std::string>(stacked.begin(), stacked.end()), "\n");
  EXPECT_EQ(count(stacked, " + "), 2);
  const std::set<std::string> none = with(1e-3, 1e-3);
  EXPECT_EQ(count(none, " with "), 0) << join(std::vector<std::string>(none.begin(), none.end()), "\n");
}

TEST(AdditionSelections, TakeWhatIsFaster) {
  const TrainingGraph training = training_of(kSums);
  EnumerateOptions options;
  options.target = gpu_target();
  options.libraries = {GemmLibrary::cublaslt};
  options.most = 30;
  options.layouts = free_weights();
  const Result<Candidates> candidates = enumerate(training, fuse(training), options);
  ASSERT_TRUE(candidates);
  // How many products add in the best selection: one by one, and stacked.
  const auto with = [&](double apart, double stacked) {
    const std::set<std::string> names = selected(measured(training, *candidates, [&](const Partition& partition) {
      if (partition.kind == PartitionKind::kernel) return 5e-5;
      if (!partition.product.adds()) return 1e-4 * static_cast<double>(partition.operators.size());
      return partition.product.tensors[0].size() > 1 ? stacked : apart;
    }));
    size_t one_by_one = 0;
    size_t together = 0;
    for (const std::string& name : names) {
      if (name.find(" with ") == std::string::npos) continue;
      ++(name.find(" + ") == std::string::npos ? one_by_one : together);
    }
    return concat(one_by_one, " and ", together);
  };
  EXPECT_EQ(with(1e-3, 1e-3), "0 and 0");
  EXPECT_EQ(with(1e-4, 1e-3), "8 and 0");  // four of forward, three of d_x, one of d_wk
  EXPECT_EQ(with(1e-4, 1e-4), "4 and 2");
}

}  // namespace
}  // namespace millrace
