#include "measure/gpu/gpu_trial.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/clock.h"
#include "base/text.h"
#include "codegen/cuda/generate.h"
#include "codegen/lower.h"
#include "measure/probes.h"
#include "measure/statistics.h"
#include "measure/trial_log.h"

namespace millrace {
namespace {

constexpr uint64_t kSeed = 20210101;
constexpr int64_t kAlignment = 256;
constexpr int64_t kRedZone = kAlignment;  // bytes before and after each buffer that a candidate must not write
constexpr int64_t kMostSets = 16;         // sets of buffers, to exceed the cache
constexpr size_t kMostSamples = 24;
constexpr size_t kFewestSamples = 5;
constexpr double kTight = 0.02;
constexpr double kFarSlower = 1.2;       // than the best so far: stop after two samples
constexpr double kSampleSeconds = 1e-4;  // work per sample
constexpr size_t kProbes = 4096;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Renames a launch's functions to the names they were compiled with.
void name_functions(Launch& launch, const std::string& name) {
  const std::string token = "MILLRACE_KERNEL";
  for (GpuGrid& grid : launch.grids) grid.function = name + grid.function.substr(token.size());
}

}  // namespace

Result<GpuTrials> GpuTrials::make(Gpu& gpu, const GpuCompiler& compiler, const std::string& directory,
                                  const Graph& graph, const std::vector<TensorDomain>& domains) {
  Result<GpuChecker> checker = GpuChecker::make(gpu, compiler);
  if (!checker) return checker.error();
  const GpuKernelCache cache(directory, compiler, std::string(cuda_hardware()), gpu.info().architecture());
  Result<Oracle> oracle = Oracle::make(gpu, cache);
  if (!oracle) return oracle.error();
  GpuTrials made(gpu, std::move(*checker), std::move(*oracle), graph, domains);
  if (Result<Done> got = made.reserve(2 * gpu.info().l2_bytes, made.flushed_); !got) return got.error();
  if (Result<Done> got = made.reserve(sizeof(GpuState), made.state_); !got) return got.error();
  return made;
}

Result<Done> GpuTrials::reserve(int64_t bytes, GpuMemory& memory) {
  if (memory.data() != nullptr && memory.size() >= bytes) return Done{};
  if (Result<Done> waited = gpu_->wait(); !waited) return waited;
  memory = GpuMemory();
  Result<GpuMemory> got = allocate(bytes);
  if (!got) {
    no_room_ = true;
    return got.error();
  }
  memory = std::move(*got);
  return Done{};
}

// Forgets other partitions' reference data until there is room.
Result<GpuMemory> GpuTrials::allocate(int64_t bytes) {
  Result<GpuMemory> got = GpuMemory::allocate(*gpu_, bytes);
  while (!got && known_.forget_oldest()) got = GpuMemory::allocate(*gpu_, bytes);
  return got;
}

Result<Done> GpuTrials::upload(const std::vector<double>& values, GpuMemory& to) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(double));
  if (Result<Done> got = reserve(bytes, to); !got) return got;
  if (Result<Done> copied = gpu_->copy_in(to.data(), values.data(), bytes); !copied) return copied;
  return gpu_->wait();
}

GpuTrials::Placement GpuTrials::place(const Partition& partition, const std::vector<Layout>& layouts) const {
  Placement placement;
  const std::vector<TensorId> tensors = tensors_of(partition);
  for (size_t k = 0; k < tensors.size(); ++k) placement.sizes.push_back(stored_bytes(*graph_, tensors[k], layouts[k]));
  placement.offsets.assign(tensors.size(), -1);
  placement.bytes = kRedZone;
  // Stacked tensors are contiguous.
  for (size_t operand = 0; operand < kOperands; ++operand) {
    if (!partition.product.is_adjacent(operand)) continue;
    for (const TensorId tensor : partition.product.operand(operand)) {
      const bool written = partition.product.is_written(operand);
      const auto begin = tensors.begin() + (written ? static_cast<std::ptrdiff_t>(partition.reads.size()) : 0);
      const auto position = static_cast<size_t>(std::find(begin, tensors.end(), tensor) - tensors.begin());
      placement.offsets[position] = placement.bytes;
      placement.bytes += placement.sizes[position];
    }
    placement.bytes = aligned(placement.bytes) + kRedZone;
  }
  for (size_t k = 0; k < tensors.size(); ++k) {
    if (placement.offsets[k] >= 0) continue;
    placement.offsets[k] = placement.bytes;
    placement.bytes += aligned(placement.sizes[k]) + kRedZone;
  }
  for (size_t k = partition.reads.size(); k < tensors.size(); ++k) {
    if (placement.sizes[k] == 0) continue;
    placement.written.push_back({placement.offsets[k], placement.offsets[k] + placement.sizes[k]});
  }
  std::sort(placement.written.begin(), placement.written.end(),
            [](const ByteRange& l, const ByteRange& r) { return l.begin < r.begin; });
  return placement;
}

Result<Done> GpuTrials::prepare_reference_data(const Partition& partition) {
  const std::string name = reference_data_name(*graph_, rules_, partition);
  partition_ = known_.find(name);
  if (partition_ != nullptr) return Done{};
  Known added;
  added.name = name;
  partition_ = &known_.add(std::move(added));
  Result<Done> computed = compute_reference_data(partition, *partition_);
  if (computed) return computed;
  partition_ = nullptr;
  known_.remove_newest();
  return computed;
}

// Makes the reference data on the GPU, unless its memory or the time does not suffice.
Result<Done> GpuTrials::compute_reference_data(const Partition& partition, Known& known) {
  const double begin = now();
  const OracleContext context{*gpu_, oracle_, [this](int64_t bytes) { return allocate(bytes); }};
  Result<GpuReferenceData> made = make_gpu_reference_data(context, *graph_, rules_, partition, kSeed);
  if (Result<Done> alive = gpu_->wait(); !alive) return alive;
  why_not_on_gpu_ = made ? "" : made.error().diagnostics.front().message;
  if (made) {
    known.data = std::move(*made);
  } else if (Result<Done> computed = compute_on_cpu(partition, known); !computed) {
    return computed;
  }
  log_trial(now() - begin, made ? "expected on the GPU" : concat("expected on the CPU: ", why_not_on_gpu_),
            partition.name);
  const RandomState& random = known.data.numbers.random;
  const GpuState state{random.seed, random.step, 0};  // the same for all partitions
  if (Result<Done> copied = gpu_->copy_in(state_.data(), &state, sizeof(state)); !copied) return copied;
  return gpu_->wait();
}

Result<Done> GpuTrials::compute_on_cpu(const Partition& partition, Known& known) {
  known.by_peer = is_large(partition);
  ReferenceData& numbers = known.data.numbers;
  if (known.by_peer) {
    numbers = draw_inputs(*graph_, rules_, partition, kSeed);
  } else {
    Result<ReferenceData> reference_data = make_reference_data(*graph_, rules_, partition, kSeed);
    if (!reference_data) return reference_data.error();
    numbers = std::move(*reference_data);
  }
  known.data.inputs.resize(partition.reads.size());
  known.data.expected.resize(partition.writes.size());
  for (size_t k = 0; k < partition.reads.size(); ++k) {
    if (Result<Done> up = upload(numbers.inputs[k], known.data.inputs[k]); !up) return up;
  }
  for (size_t k = 0; !known.by_peer && k < partition.writes.size(); ++k) {
    if (Result<Done> up = upload(numbers.outputs[k].values, known.data.expected[k].values); !up) return up;
    if (Result<Done> up = upload(numbers.outputs[k].tolerances, known.data.expected[k].tolerances); !up) return up;
  }
  numbers.outputs.clear();
  if (!known.by_peer) numbers.inputs.clear();  // probes need them
  return Done{};
}

std::vector<void*> GpuTrials::pointers(const Placement& placement, int64_t set) const {
  std::vector<void*> made;
  for (size_t k = 0; k < placement.offsets.size(); ++k) {
    const bool not_stored = placement.sizes[k] == 0;  // a regenerated mask
    made.push_back(not_stored ? nullptr : sets_.bytes_at(set * placement.bytes + placement.offsets[k]));
  }
  return made;
}

Result<Done> GpuTrials::put_inputs(const Partition& partition, const std::vector<Layout>& layouts,
                                   const Placement& placement, InputsAs form) {
  const std::vector<void*> at = pointers(placement, 0);
  const bool negative = factor_of(*graph_, partition, partition_->data.numbers) < 0;
  for (size_t k = 0; k < partition.reads.size(); ++k) {
    const bool negated = negative && is_added(partition, partition.reads[k]);
    const PutAs as = form == InputsAs::values ? PutAs::values
                     : negated                ? PutAs::negative_magnitudes
                                              : PutAs::magnitudes;
    Result<Done> put = checker_.put(*graph_, partition.reads[k], layouts[k], partition_->data.inputs[k], as, at[k]);
    if (!put) return put;
  }
  return Done{};
}

Result<Done> GpuTrials::launch_once(GpuLaunch& launch, const Placement& placement, int64_t set) {
  return launch.run(pointers(placement, set).data(), partition_->data.numbers.arguments.data(), state_.data(),
                    scratch());
}

char* GpuTrials::scratch() const { return scratch_.bytes_at(kRedZone); }

// What the candidate wrote outside of its outputs, or "". Set 1 has the bytes that set 0 had before the run.
Result<std::string> GpuTrials::misuse(const Partition& partition, const Placement& placement, const GpuLaunch& launch) {
  char* const before = sets_.bytes_at(placement.bytes);
  const Result<std::optional<int64_t>> changed =
      checker_.first_change(sets_.bytes_at(0), before, placement.bytes, placement.written);
  if (!changed) return changed.error();
  for (size_t k = 0; *changed && k < partition.reads.size(); ++k) {
    if (placement.offsets[k] <= **changed && **changed < placement.offsets[k] + placement.sizes[k])
      return concat("it changes its input ", graph_->tensor(partition.reads[k]).name);
  }
  const std::string outside = "it writes before or after its tensors";
  if (*changed) return outside;
  if (launch.scratch_bytes() == 0) return std::string();
  for (char* const zone : {scratch() - kRedZone, scratch() + aligned(launch.scratch_bytes())}) {
    const Result<std::optional<int64_t>> touched = checker_.first_change(zone, before, kRedZone, {});
    if (!touched) return touched.error();
    if (*touched) return outside;
  }
  return std::string();
}

// Runs once more after the timing: a candidate must compute the same bits every time, not only the first time.
Result<std::string> GpuTrials::check_again(const Partition& partition, const std::vector<Layout>& layouts,
                                           const Placement& placement, GpuLaunch& launch) {
  char* const before = sets_.bytes_at(placement.bytes);
  if (Result<Done> copied = gpu_->copy(before, sets_.data(), placement.bytes); !copied) return copied.error();
  for (const ByteRange& output : placement.written) {
    if (Result<Done> poisoned = gpu_->fill(sets_.bytes_at(output.begin), 0xff, output.end - output.begin); !poisoned)
      return poisoned.error();
  }
  if (Result<Done> ran = launch_once(launch, placement, 0); !ran) return ran.error();
  Result<std::string> wrong = compare(partition, layouts, placement);
  if (!wrong) return wrong;
  if (!wrong->empty()) return concat("after the timing: ", *wrong);
  const Result<std::optional<int64_t>> changed = checker_.first_change(sets_.bytes_at(0), before, placement.bytes, {});
  if (!changed) return changed.error();
  return *changed ? "its results have other bits in each run" : std::string();
}

// Describes a wrong element.
Result<std::string> GpuTrials::describe(const Partition& partition, const std::vector<Layout>& layouts,
                                        const Placement& placement, size_t write, int64_t element) {
  const TensorId tensor = partition.writes[write];
  const size_t position = partition.reads.size() + write;
  Result<GpuMemory> values =
      GpuMemory::allocate(*gpu_, elements_of(*graph_, tensor) * static_cast<int64_t>(sizeof(double)));
  if (!values) return values.error();
  if (Result<Done> taken = checker_.take(*graph_, tensor, layouts[position], pointers(placement, 0)[position], *values);
      !taken)
    return taken.error();
  std::array<double, 3> numbers{};
  const std::array<const GpuMemory*, 3> from = {&*values, &partition_->data.expected[write].values,
                                                &partition_->data.expected[write].tolerances};
  for (size_t k = 0; k < from.size(); ++k) {
    const char* const at = from[k]->bytes_at(element * static_cast<int64_t>(sizeof(double)));
    if (Result<Done> copied = gpu_->copy_out(&numbers[k], at, sizeof(double)); !copied) return copied.error();
  }
  return concat(graph_->tensor(tensor).name, "[", element, "] is ", numbers[0], ", expected ", numbers[1], " ± ",
                numbers[2]);
}

// Returns what is wrong, or "".
Result<std::string> GpuTrials::check(const Partition& partition, const std::vector<Layout>& layouts,
                                     const Placement& placement, GpuLaunch& launch) {
  if (Result<Done> poisoned = gpu_->fill(sets_.data(), 0xff, placement.bytes); !poisoned) return poisoned.error();
  if (launch.scratch_bytes() > 0) {
    const int64_t bytes = aligned(launch.scratch_bytes()) + 2 * kRedZone;
    if (Result<Done> poisoned = gpu_->fill(scratch_.data(), 0xff, bytes); !poisoned) return poisoned.error();
  }
  if (Result<Done> put = put_inputs(partition, layouts, placement, InputsAs::values); !put) return put.error();
  if (Result<Done> copied = gpu_->copy(sets_.bytes_at(placement.bytes), sets_.data(), placement.bytes); !copied)
    return copied.error();
  if (Result<Done> ran = launch_once(launch, placement, 0); !ran) return ran.error();
  if (Result<Done> waited = gpu_->wait(); !waited) return waited.error();
  if (Result<std::string> wrong = misuse(partition, placement, launch); !wrong || !wrong->empty()) return wrong;
  if (partition_->by_peer && !partition_->has_peer) {
    Result<std::string> wrong = take_as_peer(partition, layouts, placement, launch);
    if (!wrong || !wrong->empty()) return wrong;
  }
  return compare(partition, layouts, placement);
}

// What differs from the expected values, or "".
Result<std::string> GpuTrials::compare(const Partition& partition, const std::vector<Layout>& layouts,
                                       const Placement& placement) {
  const std::vector<void*> at = pointers(placement, 0);
  for (size_t k = 0; k < partition.writes.size(); ++k) {
    const size_t position = partition.reads.size() + k;
    const Result<std::optional<int64_t>> first =
        checker_.first_wrong(*graph_, partition.writes[k], layouts[position], at[position],
                             partition_->data.expected[k].values, partition_->data.expected[k].tolerances);
    if (!first) return first.error();
    if (*first) return describe(partition, layouts, placement, k, **first);
  }
  return std::string();
}

// Uses the results of the first candidate whose probed elements are right as expected values. The tolerances come from
// running it on the inputs' magnitudes. An added tensor gets the sign of the product's scale factor, so that nothing
// cancels.
Result<std::string> GpuTrials::take_as_peer(const Partition& partition, const std::vector<Layout>& layouts,
                                            const Placement& placement, GpuLaunch& launch) {
  const std::vector<void*> at = pointers(placement, 0);
  std::vector<std::vector<double>> values;
  for (size_t k = 0; k < partition.writes.size(); ++k) {
    const size_t position = partition.reads.size() + k;
    const int64_t bytes = elements_of(*graph_, partition.writes[k]) * static_cast<int64_t>(sizeof(double));
    if (Result<Done> got = reserve(bytes, partition_->data.expected[k].values); !got) return got.error();
    if (Result<Done> taken = checker_.take(*graph_, partition.writes[k], layouts[position], at[position],
                                           partition_->data.expected[k].values);
        !taken)
      return taken.error();
    values.emplace_back(static_cast<size_t>(elements_of(*graph_, partition.writes[k])));
    if (Result<Done> copied = gpu_->copy_out(values.back().data(), partition_->data.expected[k].values.data(), bytes);
        !copied)
      return copied.error();
  }
  for (const Probe& probe : probes_of(*graph_, partition, partition_->data.numbers, kProbes)) {
    const TensorId tensor = partition.writes[probe.output];
    const double found = values[probe.output][probe.element];
    const double tolerance = tolerance_of(*graph_, partition, tensor, probe.magnitude, probe.value);
    if (!(std::abs(found - probe.value) <= tolerance))
      return concat(graph_->tensor(tensor).name, "[", probe.element, "] is ", found, ", expected ", probe.value, " ± ",
                    tolerance);
  }
  if (Result<Done> put = put_inputs(partition, layouts, placement, InputsAs::magnitudes); !put) return put.error();
  if (Result<Done> ran = launch_once(launch, placement, 0); !ran) return ran.error();
  for (size_t k = 0; k < partition.writes.size(); ++k) {
    const size_t position = partition.reads.size() + k;
    const TensorId tensor = partition.writes[k];
    const int64_t elements = elements_of(*graph_, tensor);
    if (Result<Done> got =
            reserve(elements * static_cast<int64_t>(sizeof(double)), partition_->data.expected[k].tolerances);
        !got)
      return got.error();
    if (Result<Done> taken =
            checker_.take(*graph_, tensor, layouts[position], at[position], partition_->data.expected[k].tolerances);
        !taken)
      return taken.error();
    const double absolute = tolerance_of(*graph_, partition, tensor, 0, 0);
    const double per_magnitude = tolerance_of(*graph_, partition, tensor, 1, 0) - absolute;
    const double relative = tolerance_of(*graph_, partition, tensor, 0, 1) - absolute;
    if (Result<Done> allowed =
            checker_.allow(elements, partition_->data.expected[k].values, partition_->data.expected[k].tolerances,
                           per_magnitude, relative, absolute);
        !allowed)
      return allowed.error();
  }
  if (Result<Done> put = put_inputs(partition, layouts, placement, InputsAs::values); !put) return put.error();
  if (Result<Done> ran = launch_once(launch, placement, 0); !ran) return ran.error();
  if (Result<Done> waited = gpu_->wait(); !waited) return waited.error();
  partition_->has_peer = true;
  partition_->data.numbers.inputs.clear();
  return std::string();
}

Result<MeasurementRow> GpuTrials::run(const Partition& partition, const Candidate& candidate, const std::string& cubin,
                                      const std::string& name, const TrialSettings& settings) {
  no_room_ = false;
  if (Result<Done> found = prepare_reference_data(partition); !found) return failed_unless_lost(found.error());
  const std::vector<Layout> layouts = layouts_of(*domains_, partition, candidate);
  Launch lowered = lower(*graph_, partition, layouts, candidate.config);
  name_functions(lowered, name);
  Result<std::unique_ptr<GpuLaunch>> launch = gpu_->prepare(lowered, cubin);
  if (!launch) return failed_unless_lost(launch.error());
  const Placement placement = place(partition, layouts);
  const int64_t sets = std::clamp<int64_t>(2 * gpu_->info().l2_bytes / placement.bytes + 1, 2, kMostSets);
  if (Result<Done> got = reserve(sets * placement.bytes, sets_); !got) return failed_unless_lost(got.error());
  const int64_t scratch_bytes = aligned((*launch)->scratch_bytes()) + 2 * kRedZone;
  if (Result<Done> got = reserve(scratch_bytes, scratch_); !got) return failed_unless_lost(got.error());
  const double begin = now();
  Result<std::string> wrong = check(partition, layouts, placement, **launch);
  const double checked = now();
  log_trial(checked - begin, "check", partition.name);
  if (!wrong) return failed_unless_lost(wrong.error());
  if (!wrong->empty()) return failed_row(Outcome::wrong, *wrong);
  Result<MeasurementRow> row = time(placement, sets, **launch, settings);
  log_trial(now() - checked, "time", partition.name);
  if (!row) return failed_unless_lost(row.error());
  wrong = check_again(partition, layouts, placement, **launch);
  if (!wrong) return failed_unless_lost(wrong.error());
  return wrong->empty() ? *row : failed_row(Outcome::wrong, *wrong);
}

// A candidate that cannot be launched has failed. After an error of the GPU itself, nothing works any more.
Result<MeasurementRow> GpuTrials::failed_unless_lost(const Error& error) {
  if (Result<Done> alive = gpu_->wait(); !alive) return alive.error();
  return failed_row(no_room_ ? Outcome::out_of_memory : Outcome::failed, error.diagnostics.front().message);
}

// From time to time, times a control that never changes. If it is slower than before, the GPU is throttled, and new
// times would not be comparable with earlier ones. Then gives the GPU some seconds to recover.
Result<Done> GpuTrials::settle() {
  constexpr double kEvery = 1;  // seconds
  constexpr double kSlower = 1.05;
  constexpr int kPatience = 20;
  constexpr int kCopies = 8;
  const int64_t half = flushed_.size() / 2;
  for (int turn = 0; turn < kPatience; ++turn) {
    if (turn == 0 && now() - control_at_ < kEvery) return Done{};
    const auto copy = [&] { return gpu_->copy(flushed_.bytes_at(half), flushed_.data(), half); };
    const Result<double> taken = gpu_->time(copy, [&]() -> Result<Done> {
      for (int k = 0; k < kCopies; ++k) {
        if (Result<Done> put = copy(); !put) return put;
      }
      return Done{};
    });
    if (!taken) return taken.error();
    control_at_ = now();
    control_best_ = control_best_ > 0 ? std::min(control_best_, *taken) : *taken;
    if (*taken <= kSlower * control_best_) return Done{};
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  control_best_ = 0;  // accept the lower speed
  return Done{};
}

Result<MeasurementRow> GpuTrials::time(const Placement& placement, int64_t sets, GpuLaunch& launch,
                                       const TrialSettings& settings) {
  for (int64_t set = 1; set < sets; ++set) {
    if (Result<Done> copied = gpu_->copy(sets_.bytes_at(set * placement.bytes), sets_.data(), placement.bytes); !copied)
      return copied.error();
  }
  std::vector<std::vector<void*>> at;
  for (int64_t set = 0; set < sets; ++set) at.push_back(pointers(placement, set));
  size_t next = 1;
  const auto sample = [&](int repeats) {
    return gpu_->time([&] { return gpu_->fill(flushed_.data(), 0, flushed_.size()); },
                      [&]() -> Result<Done> {
                        for (int k = 0; k < repeats; ++k) {
                          Result<Done> ran =
                              launch.run(at[next++ % at.size()].data(), partition_->data.numbers.arguments.data(),
                                         state_.data(), scratch());
                          if (!ran) return ran;
                        }
                        return Done{};
                      });
  };
  if (Result<Done> settled = settle(); !settled) return settled.error();
  const Result<double> first = sample(1);
  if (!first) return first.error();
  const int repeats = static_cast<int>(std::clamp(kSampleSeconds / std::max(*first, 1e-9), 2.0, 16.0));
  std::vector<double> samples;
  while (samples.size() < kMostSamples) {
    const Result<double> taken = sample(repeats);
    if (!taken) return taken.error();
    samples.push_back(*taken / repeats);
    const Estimate known = estimate(samples);
    if (samples.size() >= 2 && settings.best_seconds > 0 && known.low > kFarSlower * settings.best_seconds) break;
    if (samples.size() >= kFewestSamples && tight(known, kTight)) break;
  }
  return measured_row(samples);
}

}  // namespace millrace
