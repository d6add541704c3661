#include "measure/trial.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "base/parallel.h"
#include "base/text.h"
#include "codegen/lower.h"
#include "device/cpu/cpu_info.h"
#include "device/cpu/cpu_launch.h"
#include "device/cpu/denormals.h"
#include "measure/guarded_memory.h"
#include "measure/probes.h"
#include "measure/sampling.h"
#include "measure/statistics.h"
#include "measure/tensor_memory.h"
#include "measure/trial_log.h"

namespace millrace {
namespace {

constexpr uint64_t kSeed = 20210101;
// A wrong candidate that computes few numbers may be right by chance: its ids may all be equal, or the tanh of a sum
// may be 1 in every row. So it is also checked with other inputs.
constexpr uint64_t kOtherDraws = 3;
constexpr size_t kFewNumbers = 4096;
constexpr double kLargeProduct = 3e7;  // products of a contraction
constexpr int64_t kShareOfMemory = 8;  // an eighth of the machine's memory is for reference data
constexpr double kLong = 2e-3;         // seconds of a run after which its tensors are not in the fastest caches anyway
// How many elements of a large product are computed from the definition; more if it has no check at small extents.
constexpr size_t kProbes = 64;
constexpr size_t kProbesOfParts = 1024;

// Whether the product reads only whole tensors, each axis along one index. Other products would compute something else
// at other extents.
bool has_small_form(const Graph& graph, const Partition& partition) {
  std::vector<OperatorId> operators = partition.operators;
  operators.insert(operators.end(), partition.repeats.begin(), partition.repeats.end());
  for (const OperatorId id : operators) {
    const Operator& op = graph.operators[id.at()];
    for (const std::vector<Access>* accesses : {&op.inputs, &op.outputs}) {
      for (const Access& access : *accesses) {
        if (!is_plain(graph, op, access)) return false;
      }
    }
  }
  return true;
}

// Calls body(element) for each, in parallel.
template <class Body>
void for_each_element(const std::vector<double>& values, const Body& body) {
  constexpr int64_t kSlice = 1 << 16;  // elements per thread
  in_parallel(static_cast<int64_t>(values.size()), kSlice, [&](int64_t begin, int64_t end) {
    for (auto element = static_cast<size_t>(begin); element < static_cast<size_t>(end); ++element) body(element);
  });
}

}  // namespace

Trials::Trials(const Graph& graph, const std::vector<TensorDomain>& domains)
    : Trials(graph, draw_rules(graph), domains, cpu_info().memory / kShareOfMemory) {}

Trials::Trials(const Graph& graph, DrawRules rules, const std::vector<TensorDomain>& domains, int64_t reference_bytes)
    : graph_(graph), rules_(std::move(rules)), domains_(domains), references_(reference_bytes) {}

MeasurementRow measured_row(const std::vector<double>& samples) {
  const Estimate found = estimate(samples);
  MeasurementRow row;
  row.outcome = Outcome::measured;
  row.seconds = found.median;
  row.low = found.low;
  row.high = found.high;
  row.samples = found.samples;
  return row;
}

bool is_large(const Partition& partition) {
  if (partition.kind != PartitionKind::contraction) return false;
  double products = 1;
  for (const ProductIndex& index : partition.product.indices) products *= static_cast<double>(index.extent);
  return products > kLargeProduct;
}

// A partition's tensors in memory, with stacked ones contiguous, and scratch memory. All have red zones.
struct Trials::Buffers {
  Buffers(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts, int64_t scratch_bytes)
      : scratch(scratch_bytes) {
    const std::vector<TensorId> tensors = tensors_of(partition);
    for (size_t k = 0; k < tensors.size(); ++k) sizes.push_back(stored_bytes(graph, tensors[k], layouts[k]));
    pointers.assign(tensors.size(), nullptr);
    for (size_t operand = 0; operand < kOperands; ++operand) {
      const std::vector<TensorId>& stack = partition.product.operand(operand);
      if (!partition.product.is_adjacent(operand)) continue;
      std::vector<size_t> positions;
      int64_t total = 0;
      for (const TensorId tensor : stack) {
        const size_t begin = partition.product.is_written(operand) ? partition.reads.size() : 0;
        const auto found = std::find(tensors.begin() + static_cast<std::ptrdiff_t>(begin), tensors.end(), tensor);
        positions.push_back(static_cast<size_t>(found - tensors.begin()));
        total += sizes[positions.back()];
      }
      char* at = memory.emplace_back(total).data();
      for (const size_t position : positions) {
        pointers[position] = at;
        at += sizes[position];
      }
    }
    for (size_t k = 0; k < tensors.size(); ++k) {
      bytes += sizes[k];
      if (pointers[k] == nullptr) pointers[k] = memory.emplace_back(sizes[k]).data();
    }
  }

  void poison(size_t first) {
    for (size_t k = first; k < pointers.size(); ++k) std::memset(pointers[k], 0xff, static_cast<size_t>(sizes[k]));
    std::memset(scratch.data(), 0xff, static_cast<size_t>(scratch.size()));
  }

  // One for each tensor from the first to the last.
  std::vector<uint64_t> fingerprints(size_t first, size_t last) const {
    std::vector<uint64_t> found;
    for (size_t k = first; k < last; ++k) found.push_back(fingerprint(pointers[k], sizes[k]));
    return found;
  }

  bool is_intact() const {
    return scratch.is_intact() &&
           std::all_of(memory.begin(), memory.end(), [](const GuardedMemory& block) { return block.is_intact(); });
  }

  std::vector<GuardedMemory> memory;
  std::vector<void*> pointers;
  std::vector<int64_t> sizes;
  GuardedMemory scratch;
  int64_t bytes = 0;
  std::vector<uint64_t> inputs;   // fingerprints before the candidate ran
  std::vector<uint64_t> outputs;  // fingerprints of outputs that were checked
  double seconds = 0;             // of the run that made them
};

Result<Done> Trials::prepare_reference_data(const Partition& partition) {
  KnownReference made;
  made.name = reference_data_name(graph_, rules_, partition);
  known_ = references_.find(made.name);
  if (known_ != nullptr) return Done{};
  const double begin = now();
  made.by_peer = is_large(partition);
  if (made.by_peer) {
    made.data = draw_inputs(graph_, rules_, partition, kSeed);
  } else {
    Result<ReferenceData> reference_data = make_reference_data(graph_, rules_, partition, kSeed);
    if (!reference_data) return reference_data.error();
    made.data = std::move(*reference_data);
    const bool few = !partition.operators.empty() && numbers_in(made.data) <= kFewNumbers;
    for (uint64_t draw = 1; few && draw <= kOtherDraws; ++draw) {
      Result<ReferenceData> other = make_reference_data(graph_, rules_, partition, kSeed + draw);
      if (!other) return other.error();
      made.others.push_back(std::move(*other));
    }
  }
  known_ = &references_.add(std::move(made));
  log_trial(now() - begin, "expected on the CPU", partition.name);
  return Done{};
}

// Runs on poisoned outputs and compares. Returns what is wrong, or "".
std::string Trials::check(const Partition& partition, const std::vector<Layout>& layouts, const CpuLaunch& launch,
                          Buffers& buffers) {
  for (const ReferenceData& other : known_->others) {
    std::string wrong = run_on(other, partition, layouts, launch, buffers);
    if (wrong.empty()) wrong = compare(other, partition, layouts, buffers);
    if (!wrong.empty()) return wrong;
  }
  if (std::string wrong = run_on(known_->data, partition, layouts, launch, buffers); !wrong.empty()) return wrong;
  buffers.outputs = buffers.fingerprints(partition.reads.size(), buffers.pointers.size());
  if (known_->by_peer && !known_->has_peer) {
    const Result<Done> taken = take_as_peer(partition, layouts, launch, buffers);
    return taken ? "" : taken.error().diagnostics.front().message;
  }
  return compare(known_->data, partition, layouts, buffers);
}

// Runs on these inputs and poisoned outputs. Returns what was written outside of the outputs, or "".
std::string Trials::run_on(const ReferenceData& data, const Partition& partition, const std::vector<Layout>& layouts,
                           const CpuLaunch& launch, Buffers& buffers) const {
  const size_t outputs = partition.reads.size();
  for (size_t k = 0; k < outputs; ++k)
    put_values(graph_, partition.reads[k], layouts[k], data.inputs[k], static_cast<char*>(buffers.pointers[k]));
  buffers.inputs = buffers.fingerprints(0, outputs);
  buffers.poison(outputs);
  const double begin = now();
  launch.run(buffers.pointers.data(), {data.arguments.data(), data.random.seed, data.random.step},
             buffers.scratch.data());
  buffers.seconds = now() - begin;
  return misuse(partition, buffers);
}

// What the candidate wrote outside of its outputs, or "".
std::string Trials::misuse(const Partition& partition, const Buffers& buffers) const {
  if (!buffers.is_intact()) return "it writes before or after its tensors";
  const std::vector<uint64_t> inputs = buffers.fingerprints(0, partition.reads.size());
  const auto changed = std::mismatch(inputs.begin(), inputs.end(), buffers.inputs.begin()).first;
  if (changed == inputs.end()) return "";
  const TensorId tensor = partition.reads[as_index(changed - inputs.begin())];
  return concat("it changes its input ", graph_.tensor(tensor).name);
}

// After the timing, which began with poisoned outputs: a candidate must compute every time, not only the first time.
std::string Trials::check_again(const Partition& partition, const std::vector<Layout>& layouts,
                                const Buffers& buffers) const {
  if (std::string wrong = misuse(partition, buffers); !wrong.empty()) return wrong;
  // Comparing values takes much longer than comparing bytes.
  if (buffers.fingerprints(partition.reads.size(), buffers.pointers.size()) == buffers.outputs) return "";
  const std::string wrong = compare(known_->data, partition, layouts, buffers);
  return wrong.empty() ? "" : concat("after the timing: ", wrong);
}

// What differs from the expected values, or "".
std::string Trials::compare(const ReferenceData& data, const Partition& partition, const std::vector<Layout>& layouts,
                            const Buffers& buffers) const {
  for (size_t k = 0; k < partition.writes.size(); ++k) {
    const size_t position = partition.reads.size() + k;
    const std::vector<double> found = take_values(graph_, partition.writes[k], layouts[position],
                                                  static_cast<const char*>(buffers.pointers[position]));
    const std::string wrong = difference(graph_, partition.writes[k], layouts[position], data.outputs[k], found);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

const Trials::Small& Trials::small() {
  if (!small_) {
    Graph graph = shrunken(graph_);
    DrawRules rules = draw_rules(graph);
    small_ = Small{std::move(graph), std::move(rules)};
  }
  return *small_;
}

// Checks a large contraction at small extents against the reference.
std::string Trials::check_small(const Partition& partition, const Candidate& candidate) {
  const Graph& graph = small().graph;
  const Partition small_partition = shrunken(partition, graph);
  const std::vector<Layout> layouts = layouts_of(domains_, partition, candidate);
  Trials trials(graph, small().rules, domains_, 0);
  if (Result<Done> found = trials.prepare_reference_data(small_partition); !found)
    return found.error().diagnostics.front().message;
  const Result<CpuLaunch> launch =
      CpuLaunch::prepare(lower(graph, small_partition, layouts, candidate.config), nullptr);
  if (!launch) return launch.error().diagnostics.front().message;
  Buffers buffers(graph, small_partition, layouts, launch->scratch_bytes());
  const std::string wrong = trials.check(small_partition, layouts, *launch, buffers);
  return wrong.empty() ? "" : concat("at small extents: ", wrong);
}

// Uses the results of the first candidate that passed at small extents as expected values, after checking some elements
// against the definition. The tolerances come from running it on the inputs' magnitudes. An added tensor gets the sign
// of the product's scale factor, so that nothing cancels.
Result<Done> Trials::take_as_peer(const Partition& partition, const std::vector<Layout>& layouts,
                                  const CpuLaunch& launch, Buffers& buffers) {
  known_->data.outputs.clear();
  for (size_t k = 0; k < partition.writes.size(); ++k) {
    const size_t position = partition.reads.size() + k;
    known_->data.outputs.push_back({take_values(graph_, partition.writes[k], layouts[position],
                                                static_cast<const char*>(buffers.pointers[position])),
                                    {}});
  }
  const bool negative = factor_of(graph_, partition, known_->data) < 0;
  for (size_t k = 0; k < partition.reads.size(); ++k) {
    const double sign = negative && is_added(partition, partition.reads[k]) ? -1 : 1;
    std::vector<double> magnitudes = known_->data.inputs[k];
    for_each_element(magnitudes, [&](size_t element) { magnitudes[element] = sign * std::abs(magnitudes[element]); });
    put_values(graph_, partition.reads[k], layouts[k], magnitudes, static_cast<char*>(buffers.pointers[k]));
  }
  launch.run(buffers.pointers.data(),
             {known_->data.arguments.data(), known_->data.random.seed, known_->data.random.step},
             buffers.scratch.data());
  for (size_t k = 0; k < partition.writes.size(); ++k) {
    const size_t position = partition.reads.size() + k;
    std::vector<double> magnitudes = take_values(graph_, partition.writes[k], layouts[position],
                                                 static_cast<const char*>(buffers.pointers[position]));
    if (std::string wrong = allow(partition, k, std::move(magnitudes)); !wrong.empty())
      return Error::make(ErrorKind::failed, wrong);
  }
  std::string wrong = probe(partition);
  if (!wrong.empty()) return Error::make(ErrorKind::failed, wrong);
  known_->has_peer = true;
  // Restore the inputs for the timing.
  for (size_t k = 0; k < partition.reads.size(); ++k)
    put_values(graph_, partition.reads[k], layouts[k], known_->data.inputs[k], static_cast<char*>(buffers.pointers[k]));
  return Done{};
}

// Makes tolerances from magnitudes. Returns what is wrong: the inputs are finite and small, so all results are finite.
std::string Trials::allow(const Partition& partition, size_t write, std::vector<double> magnitudes) {
  const TensorId tensor = partition.writes[write];
  Expected& expected = known_->data.outputs[write];
  const double absolute = tolerance_of(graph_, partition, tensor, 0, 0);
  const double per_magnitude = tolerance_of(graph_, partition, tensor, 1, 0) - absolute;
  const double relative = tolerance_of(graph_, partition, tensor, 0, 1) - absolute;
  std::atomic<bool> finite = true;
  for_each_element(magnitudes, [&](size_t element) {
    const double value = expected.values[element];
    magnitudes[element] = absolute + per_magnitude * std::abs(magnitudes[element]) + relative * std::abs(value);
    if (!std::isfinite(value)) finite = false;
  });
  expected.tolerances = std::move(magnitudes);
  return finite ? "" : concat(graph_.tensor(tensor).name, " has an element that is not finite");
}

// Checks some elements of the peer's product against the definition.
std::string Trials::probe(const Partition& partition) const {
  const size_t count = has_small_form(graph_, partition) ? kProbes : kProbesOfParts;
  for (const Probe& probe : probes_of(graph_, partition, known_->data, count)) {
    const Expected& expected = known_->data.outputs[probe.output];
    if (!(std::abs(expected.values[probe.element] - probe.value) <= expected.tolerances[probe.element]))
      return concat(graph_.tensor(partition.writes[probe.output]).name, "[", probe.element, "] is ",
                    expected.values[probe.element], ", expected ", probe.value);
  }
  return "";
}

MeasurementRow Trials::run(const Partition& partition, const Candidate& candidate, void* function,
                           const TrialSettings& settings) {
  try {
    if (Result<Done> found = prepare_reference_data(partition); !found)
      return failed_row(Outcome::failed, found.error().diagnostics.front().message);
    const std::vector<Layout> layouts = layouts_of(domains_, partition, candidate);
    Result<CpuLaunch> launch = CpuLaunch::prepare(lower(graph_, partition, layouts, candidate.config), function);
    if (!launch) return failed_row(Outcome::failed, launch.error().diagnostics.front().message);
    const DenormalScope scope(kPlanDenormals, launch->threads());
    const double begin = now();
    if (known_->by_peer && has_small_form(graph_, partition)) {
      if (std::string wrong = check_small(partition, candidate); !wrong.empty())
        return failed_row(Outcome::wrong, std::move(wrong));
    }
    std::vector<Buffers> sets;
    sets.emplace_back(graph_, partition, layouts, launch->scratch_bytes());
    if (std::string wrong = check(partition, layouts, *launch, sets.front()); !wrong.empty())
      return failed_row(Outcome::wrong, std::move(wrong));
    const double checked = now();
    log_trial(checked - begin, "check", partition.name);
    MeasurementRow row = time(partition, layouts, *launch, sets, settings);
    log_trial(now() - checked, "time", partition.name);
    std::string wrong = check_again(partition, layouts, sets[1 % sets.size()]);
    return wrong.empty() ? row : failed_row(Outcome::wrong, std::move(wrong));
  } catch (const std::bad_alloc&) {
    return failed_row(Outcome::out_of_memory, "the tensors do not fit into memory");
  }
}

MeasurementRow Trials::time(const Partition& partition, const std::vector<Layout>& layouts, const CpuLaunch& launch,
                            std::vector<Buffers>& sets, const TrialSettings& settings) const {
  const int64_t wanted = copies_in_turn(settings.caches, static_cast<double>(sets.front().bytes));
  while (static_cast<int64_t>(sets.size()) < wanted) {
    Buffers& added = sets.emplace_back(graph_, partition, layouts, launch.scratch_bytes());
    for (size_t k = 0; k < added.pointers.size(); ++k)
      std::memcpy(added.pointers[k], sets.front().pointers[k], static_cast<size_t>(added.sizes[k]));
  }
  const LaunchState state{known_->data.arguments.data(), known_->data.random.seed, known_->data.random.step};
  const auto once = [&](size_t set) {
    launch.run(sets[set % sets.size()].pointers.data(), state, sets.front().scratch.data());
  };
  // This set is checked after the timing. It is the first to run from here on, and if there are other sets, it runs
  // again: a candidate must compute every time.
  Buffers& checked = sets[1 % sets.size()];
  checked.inputs = sets.front().inputs;
  checked.outputs = sets.front().outputs;
  checked.poison(partition.reads.size());
  size_t set = 1;
  // The run that was checked warms the caches for a long one; further runs count.
  double first = sets.front().seconds;
  if (first < kLong) {
    const double begin = now();
    once(set++);
    first = now() - begin;
  }
  // Time several short runs together: reading the clock takes some tens of nanoseconds.
  const int repeats =
      settings.caches.cold ? 1 : static_cast<int>(std::clamp(2e-5 / std::max(first, 1e-9), 1.0, 1000.0));
  Sampling sampling(first, settings.best_seconds, settings.seconds);
  while (!sampling.is_enough()) {
    const double from = now();
    for (int k = 0; k < repeats; ++k) once(set++);
    sampling.add((now() - from) / repeats);
  }
  if (set > 2) {
    checked.poison(partition.reads.size());
    once(1);
  }
  return measured_row(sampling.samples());
}

}  // namespace millrace
