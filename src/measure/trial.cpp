#include "measure/trial.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "base/text.h"
#include "codegen/lower.h"
#include "device/cpu/cpu_launch.h"
#include "measure/probes.h"
#include "measure/statistics.h"
#include "measure/tensor_memory.h"

namespace millrace {
namespace {

constexpr uint64_t kSeed = 20210101;
constexpr double kLargeProduct = 3e7;  // products of a contraction
constexpr int kMostSets = 16;          // of buffers, to get past a cache
constexpr size_t kMostSamples = 40;
constexpr double kTight = 0.02;
constexpr double kFarSlower = 1.5;  // than the best known: two samples will do
constexpr size_t kProbes = 64;      // elements of a large product that are computed one by one

MeasurementRow outcome(Outcome outcome, std::string detail) {
  MeasurementRow row;
  row.outcome = outcome;
  row.detail = std::move(detail);
  return row;
}

}  // namespace

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

bool is_large(const Part& part) {
  if (part.kind != PartKind::contraction) return false;
  double products = 1;
  for (const ProductIndex& index : part.product.indices) products *= static_cast<double>(index.extent);
  return products > kLargeProduct;
}

// A part's tensors in memory, stacked ones one behind the other, and scratch.
struct Trials::Buffers {
  Buffers(const Graph& graph, const Part& part, const std::vector<Layout>& layouts, int64_t scratch_bytes)
      : scratch(scratch_bytes) {
    const std::vector<TensorId> tensors = tensors_of(part);
    for (size_t k = 0; k < tensors.size(); ++k) sizes.push_back(stored_bytes(graph, tensors[k], layouts[k]));
    pointers.assign(tensors.size(), nullptr);
    for (size_t operand = 0; operand < kOperands; ++operand) {
      const std::vector<TensorId>& stack = part.product.operand(operand);
      if (!part.product.is_adjacent(operand)) continue;
      std::vector<size_t> places;
      int64_t total = 0;
      for (const TensorId tensor : stack) {
        const size_t begin = part.product.is_written(operand) ? part.reads.size() : 0;
        const auto found = std::find(tensors.begin() + static_cast<std::ptrdiff_t>(begin), tensors.end(), tensor);
        places.push_back(static_cast<size_t>(found - tensors.begin()));
        total += sizes[places.back()];
      }
      char* at = memory.emplace_back(total).data();
      for (const size_t place : places) {
        pointers[place] = at;
        at += sizes[place];
      }
    }
    for (size_t k = 0; k < tensors.size(); ++k) {
      bytes += sizes[k];
      if (pointers[k] == nullptr) pointers[k] = memory.emplace_back(sizes[k]).data();
    }
  }

  std::vector<Memory> memory;
  std::vector<void*> pointers;
  std::vector<int64_t> sizes;
  Memory scratch;
  int64_t bytes = 0;
};

Result<Done> Trials::find_truth(const Part& part) {
  const std::string name = truth_name(graph_, part);
  if (name == part_) return Done{};
  part_.clear();
  has_peer_ = false;
  by_peer_ = is_large(part);
  if (by_peer_) {
    truth_ = draw_inputs(graph_, part, kSeed, false);
  } else {
    Result<Truth> truth = truth_of(graph_, part, kSeed);
    if (!truth) return truth.error();
    truth_ = std::move(*truth);
  }
  part_ = name;
  return Done{};
}

// Runs on poisoned outputs and compares; empty when all is as it must be.
std::string Trials::check(const Part& part, const std::vector<Layout>& layouts, const CpuLaunch& launch,
                          Buffers& buffers) {
  for (size_t k = 0; k < part.reads.size(); ++k)
    put_values(graph_, part.reads[k], layouts[k], truth_.inputs[k], static_cast<char*>(buffers.pointers[k]));
  for (size_t k = part.reads.size(); k < buffers.pointers.size(); ++k)
    std::memset(buffers.pointers[k], 0xff, static_cast<size_t>(buffers.sizes[k]));
  std::memset(buffers.scratch.data(), 0xff, static_cast<size_t>(buffers.scratch.size()));
  launch.run(buffers.pointers.data(), {truth_.arguments.data(), truth_.random.seed, truth_.random.step},
             buffers.scratch.data());
  if (by_peer_ && !has_peer_) {
    if (Result<Done> taken = take_as_peer(part, layouts, launch, buffers); !taken)
      return taken.error().diagnostics.front().message;
  }
  for (size_t k = 0; k < part.writes.size(); ++k) {
    const size_t place = part.reads.size() + k;
    const std::vector<double> found =
        take_values(graph_, part.writes[k], layouts[place], static_cast<const char*>(buffers.pointers[place]));
    const std::string wrong = difference(graph_, part.writes[k], layouts[place], truth_.outputs[k], found);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

// A large contraction at small extents, against the reference.
std::string Trials::check_small(const Part& part, const Candidate& candidate) {
  const Part small = shrunken(part, small_);
  const std::vector<Layout> layouts = layouts_of(domains_, part, candidate);
  Trials trials(small_, domains_);
  if (Result<Done> found = trials.find_truth(small); !found) return found.error().diagnostics.front().message;
  const Result<CpuLaunch> launch = CpuLaunch::prepare(lower(small_, small, layouts, candidate.way), nullptr);
  if (!launch) return launch.error().diagnostics.front().message;
  Buffers buffers(small_, small, layouts, launch->scratch_bytes());
  const std::string wrong = trials.check(small, layouts, *launch, buffers);
  return wrong.empty() ? "" : concat("at small extents: ", wrong);
}

// The first candidate that passed at small extents speaks for the real ones, after some of its elements have been
// computed one by one. Its tolerances come from the product of the magnitudes; and of that of what is added, which has
// the sign of the product's factor, so that nothing cancels.
Result<Done> Trials::take_as_peer(const Part& part, const std::vector<Layout>& layouts, const CpuLaunch& launch,
                                  Buffers& buffers) {
  truth_.outputs.clear();
  for (size_t k = 0; k < part.writes.size(); ++k) {
    const size_t place = part.reads.size() + k;
    truth_.outputs.push_back(
        {take_values(graph_, part.writes[k], layouts[place], static_cast<const char*>(buffers.pointers[place])), {}});
  }
  const bool negative = factor_of(graph_, part, truth_) < 0;
  for (size_t k = 0; k < part.reads.size(); ++k) {
    const double sign = negative && is_added(part, part.reads[k]) ? -1 : 1;
    std::vector<double> magnitudes = truth_.inputs[k];
    for (double& x : magnitudes) x = sign * std::abs(x);
    put_values(graph_, part.reads[k], layouts[k], magnitudes, static_cast<char*>(buffers.pointers[k]));
  }
  launch.run(buffers.pointers.data(), {truth_.arguments.data(), truth_.random.seed, truth_.random.step},
             buffers.scratch.data());
  for (size_t k = 0; k < part.writes.size(); ++k) {
    const size_t place = part.reads.size() + k;
    Expected& expected = truth_.outputs[k];
    const std::vector<double> magnitudes =
        take_values(graph_, part.writes[k], layouts[place], static_cast<const char*>(buffers.pointers[place]));
    for (size_t element = 0; element < magnitudes.size(); ++element)
      expected.tolerances.push_back(
          tolerance_of(graph_, part, part.writes[k], magnitudes[element], expected.values[element]));
  }
  std::string wrong = probe(part);
  if (!wrong.empty()) return Error::make(ErrorKind::failed, wrong);
  has_peer_ = true;
  // The inputs as they were.
  for (size_t k = 0; k < part.reads.size(); ++k)
    put_values(graph_, part.reads[k], layouts[k], truth_.inputs[k], static_cast<char*>(buffers.pointers[k]));
  launch.run(buffers.pointers.data(), {truth_.arguments.data(), truth_.random.seed, truth_.random.step},
             buffers.scratch.data());
  return Done{};
}

// Some elements of the peer's product, computed one by one.
std::string Trials::probe(const Part& part) const {
  for (const Probe& probe : probes_of(graph_, part, truth_, kProbes)) {
    const Expected& expected = truth_.outputs[probe.output];
    if (!(std::abs(expected.values[probe.element] - probe.value) <= expected.tolerances[probe.element]))
      return concat(graph_.tensor(part.writes[probe.output]).name, "[", probe.element, "] is ",
                    expected.values[probe.element], " where ", probe.value, " is right");
  }
  return "";
}

MeasurementRow Trials::run(const Part& part, const Candidate& candidate, void* function,
                           const TrialSettings& settings) {
  try {
    if (Result<Done> found = find_truth(part); !found)
      return outcome(Outcome::failed, found.error().diagnostics.front().message);
    const std::vector<Layout> layouts = layouts_of(domains_, part, candidate);
    Result<CpuLaunch> launch = CpuLaunch::prepare(lower(graph_, part, layouts, candidate.way), function);
    if (!launch) return outcome(Outcome::failed, launch.error().diagnostics.front().message);
    if (by_peer_) {
      if (std::string wrong = check_small(part, candidate); !wrong.empty())
        return outcome(Outcome::wrong, std::move(wrong));
    }
    std::vector<Buffers> sets;
    sets.emplace_back(graph_, part, layouts, launch->scratch_bytes());
    if (std::string wrong = check(part, layouts, *launch, sets.front()); !wrong.empty())
      return outcome(Outcome::wrong, std::move(wrong));
    return time(part, layouts, *launch, sets, settings);
  } catch (const std::bad_alloc&) {
    return outcome(Outcome::out_of_memory, "its tensors do not fit into memory");
  }
}

MeasurementRow Trials::time(const Part& part, const std::vector<Layout>& layouts, const CpuLaunch& launch,
                            std::vector<Buffers>& sets, const TrialSettings& settings) const {
  if (settings.cold) {
    const int64_t bytes = std::max<int64_t>(sets.front().bytes, 1);
    const int64_t wanted = std::clamp<int64_t>(settings.cache_bytes / bytes + 1, 2, kMostSets);
    while (static_cast<int64_t>(sets.size()) < wanted) {
      Buffers& added = sets.emplace_back(graph_, part, layouts, launch.scratch_bytes());
      for (size_t k = 0; k < added.pointers.size(); ++k)
        std::memcpy(added.pointers[k], sets.front().pointers[k], static_cast<size_t>(added.sizes[k]));
    }
  }
  const LaunchState state{truth_.arguments.data(), truth_.random.seed, truth_.random.step};
  const auto once = [&](size_t set) {
    launch.run(sets[set % sets.size()].pointers.data(), state, sets.front().scratch.data());
  };
  // Short ones are timed several at a time: the clock itself takes some tens of nanoseconds.
  const double begin = now();
  once(1);
  const double first = now() - begin;
  const int repeats = settings.cold ? 1 : static_cast<int>(std::clamp(2e-5 / std::max(first, 1e-9), 1.0, 1000.0));
  std::vector<double> samples;
  size_t set = 2;
  const double end = now() + settings.seconds;
  while (samples.size() < kMostSamples && (samples.size() < 5 || now() < end)) {
    const double from = now();
    for (int k = 0; k < repeats; ++k) once(set++);
    samples.push_back((now() - from) / repeats);
    const Estimate known = estimate(samples);
    if (settings.best_seconds > 0 && std::min(known.low, first) > kFarSlower * settings.best_seconds) break;
    if (samples.size() >= 6 && tight(known, kTight)) break;
  }
  return measured_row(samples);
}

}  // namespace millrace
