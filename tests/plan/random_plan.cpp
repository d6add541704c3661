#include "plan/random_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

#include "autodiff/differentiate.h"
#include "base/text.h"
#include "candidates/enumerate.h"
#include "codegen/lower.h"
#include "device/cpu/blas_library.h"
#include "device/cpu/cpu_launch.h"
#include "frontend/frontend.h"
#include "fusion/predicates.h"
#include "fusion/row_statistics.h"
#include "plan/build.h"
#include "plan/verify.h"
#include "select/conversions.h"
#include "select/price.h"
#include "select/verify.h"

namespace millrace {
namespace {

constexpr double kSeconds = 1e-6;

Target target_of(const PlanChoice& choice) {
  if (choice.gpu == nullptr) return {};
  const GpuInfo& info = choice.gpu->info();
  return gpu_target({info.multiprocessors, info.shared_bytes, info.has_wgmma(), !info.cudnn.empty()});
}

int64_t scratch_on(Gpu* gpu, const Launch& launch) {
  if (gpu == nullptr) return scratch_bytes(launch);
  if (!launch.kernel.empty()) return launch.scratch_bytes;
  const Result<std::unique_ptr<GpuLaunch>> prepared = gpu->prepare(launch, "");
  EXPECT_TRUE(prepared) << to_string(prepared.error());
  return prepared ? (*prepared)->scratch_bytes() : 0;
}

class Chooser {
 public:
  Chooser(const TrainingGraph& training, const Candidates& candidates, const PlanChoice& choice)
      : graph_(training.graph),
        candidates_(candidates),
        random_(choice.seed.value_or(0)),
        by_chance_(choice.seed.has_value()),
        chained_(choice.conversions == MadeConversions::chained),
        target_(target_of(choice)) {
    for (const PartitionCandidates& entry : candidates.partitions) {
      usable_.emplace_back();
      for (const Candidate& candidate : entry.candidates) {
        if (is_wanted(choice, entry.partition, candidate) &&
            (choice.gpu == nullptr || is_accepted(*choice.gpu, entry.partition, candidate)))
          usable_.back().push_back(&candidate);
      }
    }
  }

  void run(Measurements& made, Selection& selection) {
    for (const TensorDomain& domain : candidates_.domains) base_.push_back(domain.pinned);
    name_tensors(made);
    take_partitions(made);
    for (const ChoicePoint& choice_point : candidates_.choice_points) {
      made.choice_points.push_back({choice_point.alternatives});
      choose_alternative(choice_point, made);
    }
    const std::optional<Selection> priced_one = priced(made, alternatives_, configs_, cheapest_conversions(made));
    ASSERT_TRUE(priced_one);
    selection = *priced_one;
  }

 private:
  bool is_wanted(const PlanChoice& choice, const Partition& partition, const Candidate& candidate) const {
    return std::all_of(choice.candidates.begin(), choice.candidates.end(), [&](const auto& wanted) {
      return !partition.name.starts_with(wanted.first) ||
             print_candidate(candidates_.domains, partition, candidate).ends_with(wanted.second);
    });
  }

  // Whether the library has an algorithm for a product.
  bool is_accepted(Gpu& gpu, const Partition& partition, const Candidate& candidate) const {
    if (!std::holds_alternative<GemmConfig>(candidate.config)) return true;
    std::vector<TensorId> tensors = partition.reads;
    tensors.insert(tensors.end(), partition.writes.begin(), partition.writes.end());
    std::vector<Layout> layouts;
    for (size_t k = 0; k < tensors.size(); ++k)
      layouts.push_back(candidates_.domains[tensors[k].at()].layouts[static_cast<size_t>(candidate.layouts[k])]);
    return bool(gpu.prepare(lower(graph_, partition, layouts, candidate.config), ""));
  }

  size_t below(size_t count) { return by_chance_ ? std::uniform_int_distribution<size_t>(0, count - 1)(random_) : 0; }

  void name_tensors(Measurements& made) {
    for (size_t t = 0; t < graph_.tensors.size(); ++t) {
      const TensorDomain& domain = candidates_.domains[t];
      if (domain.layouts.empty()) continue;
      number_of_[TensorId(t)] = static_cast<int>(made.tensors.size());
      MeasuredTensor tensor{graph_.tensors[t].name, {}, domain.pinned};
      for (const Layout& layout : domain.layouts) tensor.layouts.push_back(print_layout(graph_, TensorId(t), layout));
      made.tensors.push_back(std::move(tensor));
    }
  }

  std::vector<int> numbers(const std::vector<TensorId>& tensors) const {
    std::vector<int> found;
    for (const TensorId tensor : tensors) found.push_back(number_of_.at(tensor));
    return found;
  }

  void take_partitions(Measurements& made) {
    for (const PartitionCandidates& entry : candidates_.partitions) {
      made.partitions.push_back({entry.partition.name,
                                 entry.partition.pass == Pass::backward,
                                 numbers(entry.partition.reads),
                                 numbers(entry.partition.writes),
                                 {}});
    }
    configs_.assign(candidates_.partitions.size(), -1);
  }

  void choose_alternative(const ChoicePoint& choice_point, Measurements& made) {
    std::vector<size_t> possible;
    for (size_t k = 0; k < choice_point.alternatives.size(); ++k) {
      const auto has_configs = [&](int p) { return !usable_[static_cast<size_t>(p)].empty(); };
      if (std::all_of(choice_point.alternatives[k].begin(), choice_point.alternatives[k].end(), has_configs))
        possible.push_back(k);
    }
    ASSERT_FALSE(possible.empty());
    const size_t chosen = possible[below(possible.size())];
    alternatives_.push_back(static_cast<int>(chosen));
    for (const int partition : choice_point.alternatives[chosen]) chosen_.insert(partition);
    // Candidates are chosen after the partitions, in an order that writes tensors before it reads them.
    if (alternatives_.size() < candidates_.choice_points.size()) return;
    for (const int partition : chosen_) choose_config(static_cast<size_t>(partition), made);
  }

  void choose_config(size_t number, Measurements& made) {
    const PartitionCandidates& entry = candidates_.partitions[number];
    std::vector<const Candidate*> possible;
    for (const Candidate* const candidate : usable_[number]) {
      if (fits(entry.partition, *candidate)) possible.push_back(candidate);
    }
    ASSERT_FALSE(possible.empty()) << entry.partition.name;
    const Candidate& chosen = *possible[below(possible.size())];
    const double seconds = kSeconds * static_cast<double>(1 + number);
    made.partitions[number].candidates.push_back(
        {print_candidate(candidates_.domains, entry.partition, chosen), chosen.layouts, seconds, seconds, seconds});
    configs_[number] = 0;
    for (size_t k = 0; k < entry.partition.reads.size(); ++k) read(entry.partition.reads[k], chosen.layouts[k], made);
    for (size_t k = 0; k < entry.partition.writes.size(); ++k) {
      const TensorId tensor = entry.partition.writes[k];
      const int layout = chosen.layouts[entry.partition.reads.size() + k];
      const int pinned = candidates_.domains[tensor.at()].pinned;
      base_[tensor.at()] = layout;
      if (pinned >= 0) read(tensor, pinned, made);
    }
  }

  // Masks are converted only to words in another order, or regenerated.
  bool can_become(TensorId tensor, int from, int to) const {
    if (from < 0 || from == to) return true;
    const std::vector<Layout>& domain = candidates_.domains[tensor.at()].layouts;
    const MaskStorage before = domain[static_cast<size_t>(from)].storage;
    const MaskStorage after = domain[static_cast<size_t>(to)].storage;
    return after == MaskStorage::regenerated || (before == MaskStorage::words && after == MaskStorage::words);
  }

  // Whether every later partition can read the tensor in this layout.
  bool can_be_read(TensorId tensor, int layout) const {
    return std::all_of(chosen_.begin(), chosen_.end(), [&](int number) {
      const PartitionCandidates& entry = candidates_.partitions[static_cast<size_t>(number)];
      const auto at = std::find(entry.partition.reads.begin(), entry.partition.reads.end(), tensor);
      const auto k = static_cast<size_t>(at - entry.partition.reads.begin());
      return at == entry.partition.reads.end() ||
             std::any_of(usable_[static_cast<size_t>(number)].begin(), usable_[static_cast<size_t>(number)].end(),
                         [&](const Candidate* c) { return can_become(tensor, layout, c->layouts[k]); });
    });
  }

  bool fits(const Partition& partition, const Candidate& candidate) const {
    for (size_t k = 0; k < partition.reads.size(); ++k) {
      if (!can_become(partition.reads[k], base_[partition.reads[k].at()], candidate.layouts[k])) return false;
    }
    for (size_t k = 0; k < partition.writes.size(); ++k) {
      if (!can_be_read(partition.writes[k], candidate.layouts[partition.reads.size() + k])) return false;
    }
    return true;
  }

  void read(TensorId tensor, int layout, Measurements& made) {
    int& base = base_[tensor.at()];
    if (base < 0) base = layout;
    if (base == layout || !converted_.emplace(tensor, layout).second) return;
    const int via = chained_ ? third_layout(tensor, base, layout) : base;
    if (via != base) convert(tensor, base, via, made);
    convert(tensor, via, layout, made);
  }

  // Another layout in words; `base` if there is none, or if one of the two is not in words.
  int third_layout(TensorId tensor, int base, int layout) const {
    const std::vector<Layout>& layouts = candidates_.domains[tensor.at()].layouts;
    const auto words = [&](int k) { return layouts[static_cast<size_t>(k)].storage == MaskStorage::words; };
    for (int k = 0; k < static_cast<int>(layouts.size()); ++k) {
      if (k != base && k != layout && words(k) && words(base) && words(layout)) return k;
    }
    return base;
  }

  void convert(TensorId tensor, int from, int to, Measurements& made) {
    if (!measured_.emplace(tensor, from, to).second) return;
    const TensorDomain& domain = candidates_.domains[tensor.at()];
    MeasuredConversion conversion{number_of_.at(tensor), from, to, kSeconds, ""};
    if (domain.layouts[static_cast<size_t>(to)].storage != MaskStorage::regenerated) {
      const PartitionCandidates configs = conversions(graph_, domain, tensor, from, to, 2, target_);
      ASSERT_FALSE(configs.candidates.empty());
      conversion.candidate =
          print_candidate(candidates_.domains, configs.partition, configs.candidates[below(configs.candidates.size())]);
    }
    made.conversions.push_back(std::move(conversion));
  }

  const Graph& graph_;
  const Candidates& candidates_;
  std::mt19937_64 random_;
  bool by_chance_;
  bool chained_;
  Target target_;
  std::vector<std::vector<const Candidate*>> usable_;  // of each partition
  std::map<TensorId, int> number_of_;
  std::vector<int> alternatives_;
  std::vector<int> configs_;
  std::set<int> chosen_;
  std::vector<int> base_;  // the layout in which each tensor is first stored
  std::set<std::pair<TensorId, int>> converted_;
  std::set<std::tuple<TensorId, int, int>> measured_;  // conversions
};

}  // namespace

MadePlan make_plan(const std::string& text, const PlanChoice& choice) {
  MadePlan made;
  ProgramOptions program;
  program.sizes = choice.sizes;
  if (!choice.dtype.empty()) program.dtype = dtype_named(choice.dtype);
  const Result<Graph> graph = parse_program(text, program);
  EXPECT_TRUE(graph) << to_string(graph.error());
  if (!graph) return made;
  Recomputed recomputed = save_predicates(differentiate(*graph), choice.gpu != nullptr);
  if (choice.gpu != nullptr) recomputed = add_row_statistics(std::move(recomputed));
  made.training = std::move(recomputed.training);
  // On a CPU they do not depend on the type, except for their order; enumeration takes most of the time.
  using Layouts = std::vector<std::pair<std::string, std::string>>;
  static std::map<std::tuple<std::string, std::vector<std::string>, Layouts, std::string>, Candidates> known;
  std::string device = choice.gpu == nullptr ? "" : "gpu " + choice.dtype;
  for (const GemmLibrary library : choice.libraries) device += concat(word_of(library), " ", choice.dtype);
  const auto [location, fresh] = known.try_emplace({text, choice.sizes, choice.layouts, device});
  made.candidates = location->second;
  if (fresh) {
    EnumerateOptions options;
    options.threads = 2;
    options.layouts = choice.layouts;
    options.most = choice.most;
    options.libraries = choice.libraries;
    for (const GemmLibrary library : {GemmLibrary::openblas, GemmLibrary::blis}) {
      const bool wanted = choice.gpu == nullptr && choice.libraries.empty();
      if (wanted && blas_info(library).there) options.libraries.push_back(library);
    }
    options.target = target_of(choice);
    if (choice.gpu != nullptr) options.libraries = {GemmLibrary::cublaslt};
    const Result<Candidates> candidates = enumerate(made.training, recomputed.fused, options);
    EXPECT_TRUE(candidates) << to_string(candidates.error());
    if (!candidates) return made;
    made.candidates = location->second = *candidates;
  }
  Chooser(made.training, made.candidates, choice).run(made.measurements, made.selection);
  if (testing::Test::HasFatalFailure()) return made;
  const Result<Done> selected = verify(made.measurements, made.selection);
  EXPECT_TRUE(selected) << to_string(selected.error());
  PlanOptions planning;
  planning.program = {"program.py", text, "", choice.sizes, choice.dtype, choice.layouts};
  planning.version = "0.0.0";
  planning.device = "test";
  planning.date = "2026-01-01T00:00:00Z";
  planning.scratch_bytes = [&](const Launch& launch) { return scratch_on(choice.gpu, launch); };
  Result<StepPlan> plan = build_plan(made.training, made.candidates, made.measurements, made.selection, planning);
  EXPECT_TRUE(plan) << to_string(plan.error());
  if (!plan) return made;
  made.plan = std::move(*plan);
  const Result<Done> verified = verify(made.plan, made.training, made.candidates);
  EXPECT_TRUE(verified) << to_string(verified.error());
  return made;
}

}  // namespace millrace
