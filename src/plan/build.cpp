#include "plan/build.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/id.h"
#include "base/text.h"
#include "codegen/lower.h"
#include "plan/arena.h"
#include "plan/launched_partition.h"

namespace millrace {
namespace {

Error wrong(const std::string& what) {
  return Error::make(ErrorKind::failed, concat("cannot plan: ", what),
                     "this is a bug in Millrace, or the measurements belong to another program");
}

// A tensor in one layout of its domain.
using Stored = std::pair<TensorId, int>;

class PlanBuilder {
 public:
  PlanBuilder(const TrainingGraph& training, const Candidates& candidates, const Measurements& measurements,
              const Selection& selection, const PlanOptions& options)
      : training_(training),
        graph_(training.graph),
        candidates_(candidates),
        measurements_(measurements),
        selection_(selection),
        options_(options) {}

  Result<StepPlan> run() {
    if (Result<Done> done = take_partitions(); !done) return done.error();
    if (Result<Done> done = take_conversions(); !done) return done.error();
    for (const Planned& planned : planned_) {
      plan_.launches.push_back(planned.launch);
      plan_.cost += planned.launch.predicted_seconds;
    }
    add_callers_buffers();
    for (size_t k = 0; k < planned_.size(); ++k) add_buffers_of(static_cast<int>(k));
    place_buffers();
    plan_.program = options_.program;
    plan_.version = options_.version;
    plan_.device = options_.device;
    plan_.date = options_.date;
    plan_.bound = selection_.bound;
    return std::move(plan_);
  }

 private:
  struct Planned {
    PlanLaunch launch;
    LaunchedPartition resolved;
  };

  // A selected conversion.
  struct PlacedChain {
    std::vector<Planned> conversions;
    size_t location = 0;  // the launch that they precede
    Pass pass = Pass::forward;
  };

  Result<Planned> resolve(PlanLaunch launch) const {
    Result<LaunchedPartition> resolved = launched_partition(graph_, candidates_, launch);
    if (!resolved) return resolved.error();
    return Planned{std::move(launch), std::move(*resolved)};
  }

  // Forward before backward, each in the order of the measurements.
  Result<Done> take_partitions() {
    for (const bool backward : {false, true}) {
      for (const SelectedPartition& selected : selection_.partitions) {
        const MeasuredPartition& partition = measurements_.partitions[as_index(selected.partition)];
        if (partition.backward != backward) continue;
        const MeasuredCandidate& config = partition.candidates[as_index(selected.candidate)];
        PlanLaunch launch;
        launch.partition = partition.name;
        launch.pass = backward ? Pass::backward : Pass::forward;
        launch.candidate = config.candidate;
        launch.predicted_seconds = config.seconds;
        launch.estimated = config.low == 0;
        Result<Planned> planned = resolve(std::move(launch));
        if (!planned) return planned.error();
        planned_.push_back(std::move(*planned));
      }
    }
    return Done{};
  }

  Result<Done> take_conversions() {
    std::vector<PlacedChain> chains;
    for (const SelectedConversion& selected : selection_.conversions) {
      const MeasuredTensor& tensor = measurements_.tensors[as_index(selected.tensor)];
      if (tensor.layouts[as_index(selected.to)] == "regenerated") continue;  // needs no launch
      Result<PlacedChain> chain = placed_chain(selected);
      if (!chain) return chain.error();
      chains.push_back(std::move(*chain));
    }
    // Conversions at the end of forward precede those at the start of backward.
    std::stable_sort(chains.begin(), chains.end(), [](const PlacedChain& l, const PlacedChain& r) {
      return std::pair(l.location, l.pass) < std::pair(r.location, r.pass);
    });
    std::map<size_t, std::vector<Planned>> before;  // by the launch that they precede
    std::set<Stored> made;                          // a conversion that chains have in common is launched once
    for (PlacedChain& chain : chains) {
      for (Planned& conversion : chain.conversions) {
        if (!made.emplace(conversion.resolved.tensors[0], conversion.resolved.candidate.layouts[1]).second) continue;
        conversion.launch.pass = chain.pass;
        before[chain.location].push_back(std::move(conversion));
      }
    }
    std::vector<Planned> all;
    for (size_t k = 0; k <= planned_.size(); ++k) {
      std::move(before[k].begin(), before[k].end(), std::back_inserter(all));
      if (k < planned_.size()) all.push_back(std::move(planned_[k]));
    }
    planned_ = std::move(all);
    return Done{};
  }

  // The conversions of a chain, and the launch that they precede.
  Result<PlacedChain> placed_chain(const SelectedConversion& selected) const {
    PlacedChain chain;
    for (const auto& [from, to] : selected.chain()) {
      Result<Planned> conversion = planned_conversion(selected.tensor, from, to);
      if (!conversion) return conversion.error();
      chain.conversions.push_back(std::move(*conversion));
    }
    const TensorId id = chain.conversions.back().resolved.tensors[0];
    const int layout = chain.conversions.back().resolved.candidate.layouts[1];
    chain.location = place_of_conversion(id, layout);
    const bool ends_forward =
        chain.location == first_of_backward() && is_written_forward(id) && is_callers_output(id, layout);
    chain.pass = chain.location < first_of_backward() || ends_forward ? Pass::forward : Pass::backward;
    return chain;
  }

  Result<Planned> planned_conversion(int tensor, int from, int to) const {
    const std::string& name = measurements_.tensors[as_index(tensor)].name;
    const auto measured =
        std::find_if(measurements_.conversions.begin(), measurements_.conversions.end(),
                     [&](const MeasuredConversion& c) { return c.tensor == tensor && c.from == from && c.to == to; });
    if (measured == measurements_.conversions.end()) return wrong(concat("no conversion of ", name));
    PlanLaunch launch;
    launch.conversion_of = name;
    launch.candidate = measured->candidate;
    launch.predicted_seconds = measured->seconds;
    return resolve(std::move(launch));
  }

  size_t first_of_backward() const {
    const auto first = std::find_if(planned_.begin(), planned_.end(),
                                    [](const Planned& planned) { return planned.launch.pass == Pass::backward; });
    return static_cast<size_t>(first - planned_.begin());
  }

  bool is_written_forward(TensorId tensor) const {
    return std::any_of(planned_.begin(), planned_.end(), [&](const Planned& planned) {
      const std::vector<TensorId>& writes = planned.resolved.partition.writes;
      return planned.launch.pass == Pass::forward && std::find(writes.begin(), writes.end(), tensor) != writes.end();
    });
  }

  // Whether the caller expects this tensor in this layout.
  bool is_callers_output(TensorId tensor, int layout) const {
    const bool output = std::any_of(graph_.results.begin(), graph_.results.end(),
                                    [&](const Output& result) { return result.tensor == tensor; }) ||
                        std::find(training_.argument_gradients.begin(), training_.argument_gradients.end(), tensor) !=
                            training_.argument_gradients.end();
    return output && candidates_.domains[tensor.at()].pinned == layout;
  }

  // The launch that a conversion precedes: its first reader, but a caller's result must be ready when forward ends.
  size_t place_of_conversion(TensorId tensor, int layout) const {
    size_t location = 0;
    while (location < planned_.size() && !reads(planned_[location], tensor, layout)) ++location;
    if (is_callers_output(tensor, layout) && is_written_forward(tensor))
      location = std::min(location, first_of_backward());
    return location;
  }

  static bool reads(const Planned& planned, TensorId tensor, int layout) {
    for (size_t k = 0; k < planned.resolved.partition.reads.size(); ++k) {
      if (planned.resolved.tensors[k] == tensor && planned.resolved.candidate.layouts[k] == layout) return true;
    }
    return false;
  }

  // --- Buffers ---

  int add_buffer(TensorId tensor, int layout, BufferLocation location, size_t position) {
    const Layout& stored = candidates_.domains[tensor.at()].layouts[as_index(layout)];
    PlanBuffer buffer;
    buffer.tensor = graph_.tensor(tensor).name;
    buffer.layout = print_layout(graph_, tensor, stored);
    buffer.bytes = stored_bytes(graph_, tensor, stored);
    buffer.location = location;
    if (location != BufferLocation::arena) buffer.position = static_cast<int>(position);
    plan_.buffers.push_back(std::move(buffer));
    const int number = static_cast<int>(plan_.buffers.size()) - 1;
    buffer_of_[{tensor, layout}] = number;
    return number;
  }

  void add_callers_buffers() {
    const auto add = [&](TensorId tensor, BufferLocation location, size_t position) {
      if (tensor.valid() && graph_.tensor(tensor).role != TensorRole::scalar)
        add_buffer(tensor, callers_layout(tensor), location, position);
    };
    for (size_t k = 0; k < graph_.arguments.size(); ++k) add(graph_.arguments[k], BufferLocation::argument, k);
    for (size_t k = 0; k < graph_.results.size(); ++k) add(graph_.results[k].tensor, BufferLocation::result, k);
    for (size_t k = 0; k < graph_.results.size(); ++k)
      add(training_.result_gradients[k], BufferLocation::result_gradient, k);
    for (size_t k = 0; k < graph_.arguments.size(); ++k)
      add(training_.argument_gradients[k], BufferLocation::argument_gradient, k);
  }

  // The pinned layout; else the one in which it is written or converted from; else the one in which it is read.
  int callers_layout(TensorId tensor) const {
    const int pinned = candidates_.domains[tensor.at()].pinned;
    if (pinned >= 0) return pinned;
    int layout = -1;
    for (const Planned& planned : planned_) {
      const bool conversion = planned.launch.partition.empty();
      for (size_t k = 0; k < planned.resolved.tensors.size(); ++k) {
        if (planned.resolved.tensors[k] != tensor) continue;
        const bool written = k >= planned.resolved.partition.reads.size();
        if (conversion != written) return planned.resolved.candidate.layouts[k];
        if (layout < 0) layout = planned.resolved.candidate.layouts[k];
      }
    }
    return std::max(layout, 0);
  }

  void add_buffers_of(int number) {
    const LaunchedPartition& resolved = planned_[as_index(number)].resolved;
    for (size_t k = 0; k < resolved.tensors.size(); ++k) {
      int buffer = kNoBuffer;
      if (resolved.layouts[k].storage != MaskStorage::regenerated) {
        const auto found = buffer_of_.find({resolved.tensors[k], resolved.candidate.layouts[k]});
        buffer = found != buffer_of_.end()
                     ? found->second
                     : add_buffer(resolved.tensors[k], resolved.candidate.layouts[k], BufferLocation::arena, 0);
        PlanBuffer& touched = plan_.buffers[as_index(buffer)];
        if (touched.first < 0) touched.first = number;
        touched.last = number;
      }
      plan_.launches[as_index(number)].buffers.push_back(buffer);
    }
  }

  // --- The arena ---

  // Buffers that must be contiguous because a stacked product takes them as one tensor. The caller's already are.
  std::vector<std::vector<int>> stacked_buffers() const {
    // For each group and layout, the members that the next one must follow.
    std::map<std::pair<size_t, int>, std::set<size_t>> linked;
    for (const Planned& planned : planned_) {
      if (!std::holds_alternative<GemmConfig>(planned.resolved.candidate.config)) continue;
      const Product& product = planned.resolved.partition.product;
      for (size_t operand = 0; operand < kOperands; ++operand) {
        const std::vector<TensorId>& stack = product.operand(operand);
        if (!product.is_adjacent(operand)) continue;
        const auto location =
            std::find(planned.resolved.tensors.begin(), planned.resolved.tensors.end(), stack.front());
        const int layout = planned.resolved.candidate.layouts[as_index(location - planned.resolved.tensors.begin())];
        for (size_t f = candidates_.callers_contiguous_groups; f < candidates_.contiguous_groups.size(); ++f) {
          const std::vector<TensorId>& group = candidates_.contiguous_groups[f];
          const auto found = std::search(group.begin(), group.end(), stack.begin(), stack.end());
          if (found == group.end()) continue;
          const auto first = static_cast<size_t>(found - group.begin());
          for (size_t k = 0; k + 1 < stack.size(); ++k) linked[{f, layout}].insert(first + k);
        }
      }
    }
    std::vector<std::vector<int>> stacks;
    for (const auto& [key, members] : linked) {
      const std::vector<TensorId>& group = candidates_.contiguous_groups[key.first];
      size_t previous = group.size();
      for (const size_t k : members) {
        if (k != previous + 1) stacks.push_back({buffer_of_.at({group[k], key.second})});
        stacks.back().push_back(buffer_of_.at({group[k + 1], key.second}));
        previous = k;
      }
    }
    return stacks;
  }

  static int64_t aligned(int64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

  // First what forward saves for backward, then the workspace; returns the end of it.
  int64_t place_saved_first(std::vector<ArenaBlock>& blocks) {
    const int backward = static_cast<int>(first_of_backward());
    std::vector<ArenaBlock> saved;
    std::vector<ArenaBlock> passing;
    const auto list_of = [&](const ArenaBlock& block) -> std::vector<ArenaBlock>& {
      return block.first < backward && block.last >= backward ? saved : passing;
    };
    for (const ArenaBlock& block : blocks) list_of(block).push_back(block);
    plan_.saved_bytes = aligned(place_blocks(saved, kArenaAlignment));
    const int64_t end = plan_.saved_bytes + place_blocks(passing, kArenaAlignment);
    for (ArenaBlock& block : passing) block.offset += plan_.saved_bytes;
    auto next_saved = saved.begin();
    auto next_passing = passing.begin();
    for (ArenaBlock& block : blocks) block = *(&list_of(block) == &saved ? next_saved++ : next_passing++);
    return end;
  }

  void place_buffers() {
    std::vector<std::vector<int>> groups = stacked_buffers();
    std::set<int> in_stacks;
    for (const std::vector<int>& stack : groups) in_stacks.insert(stack.begin(), stack.end());
    for (size_t k = 0; k < plan_.buffers.size(); ++k) {
      const int number = static_cast<int>(k);
      if (plan_.buffers[k].location == BufferLocation::arena && !in_stacks.contains(number)) groups.push_back({number});
    }
    std::vector<ArenaBlock> blocks;
    for (const std::vector<int>& group : groups) {
      const int front = group.front();
      ArenaBlock block{0, plan_.buffers[as_index(front)].first, plan_.buffers[as_index(front)].last, 0};
      for (const int number : group) {
        const PlanBuffer& buffer = plan_.buffers[as_index(number)];
        block.bytes += buffer.bytes;
        block.first = std::min(block.first, buffer.first);
        block.last = std::max(block.last, buffer.last);
      }
      plan_.sum_bytes += block.bytes;
      blocks.push_back(block);
    }
    const int64_t end = place_saved_first(blocks);
    for (size_t k = 0; k < groups.size(); ++k) {
      int64_t offset = blocks[k].offset;
      for (const int number : groups[k]) {
        plan_.buffers[as_index(number)].offset = offset;
        offset += plan_.buffers[as_index(number)].bytes;
      }
    }
    plan_.scratch_offset = aligned(end);
    for (const Planned& planned : planned_) {
      const Launch launch =
          lower(graph_, planned.resolved.partition, planned.resolved.layouts, planned.resolved.candidate.config);
      plan_.scratch_bytes = std::max(plan_.scratch_bytes, options_.scratch_bytes(launch));
    }
    plan_.arena_bytes = plan_.scratch_offset + plan_.scratch_bytes;
  }

  const TrainingGraph& training_;
  const Graph& graph_;
  const Candidates& candidates_;
  const Measurements& measurements_;
  const Selection& selection_;
  const PlanOptions& options_;
  std::vector<Planned> planned_;
  std::map<Stored, int> buffer_of_;
  StepPlan plan_;
};

}  // namespace

Result<StepPlan> build_plan(const TrainingGraph& training, const Candidates& candidates,
                            const Measurements& measurements, const Selection& selection, const PlanOptions& options) {
  return PlanBuilder(training, candidates, measurements, selection, options).run();
}

}  // namespace millrace
