#include "plan/verify.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/checked.h"
#include "base/id.h"
#include "base/text.h"
#include "candidates/enumerate.h"
#include "plan/launched_partition.h"

namespace millrace {
namespace {

using Complaint = std::optional<std::string>;

constexpr int64_t kMostArenaBytes = int64_t{1} << 46;  // no machine has as much memory

// Complaints begin with the location, as a path into the JSON file.
class Check {
 public:
  Check(const StepPlan& plan, const TrainingGraph& training, const Candidates& candidates)
      : plan_(plan), training_(training), graph_(training.graph), candidates_(candidates) {}

  Complaint run() {
    for (auto check : {&Check::buffers, &Check::callers, &Check::arena, &Check::launches, &Check::lifetimes,
                       &Check::overlaps, &Check::saved, &Check::outputs, &Check::operators, &Check::times}) {
      if (Complaint complaint = (this->*check)()) return complaint;
    }
    return {};
  }

 private:
  bool is_arena(const PlanBuffer& buffer) const { return buffer.location == BufferLocation::arena; }

  // The tensor at one of the caller's positions; invalid if there is none.
  TensorId callers_tensor(BufferLocation location, int position) const {
    const auto among = [&](const std::vector<TensorId>& list) {
      return position >= 0 && as_index(position) < list.size() ? list[as_index(position)] : TensorId();
    };
    switch (location) {
      case BufferLocation::arena: break;
      case BufferLocation::argument: return among(graph_.arguments);
      case BufferLocation::result:
        return position >= 0 && as_index(position) < graph_.results.size() ? graph_.results[as_index(position)].tensor
                                                                           : TensorId();
      case BufferLocation::result_gradient: return among(training_.result_gradients);
      case BufferLocation::argument_gradient: return among(training_.argument_gradients);
    }
    return {};
  }

  // Each is a tensor of the graph in a layout of its domain, occurs once, and has the right size.
  Complaint buffers() {
    std::map<std::string, TensorId> by_name;
    for (size_t k = 0; k < graph_.tensors.size(); ++k) by_name.emplace(graph_.tensors[k].name, TensorId(k));
    std::set<std::pair<TensorId, int>> known;
    for (size_t k = 0; k < plan_.buffers.size(); ++k) {
      const PlanBuffer& buffer = plan_.buffers[k];
      const std::string location = concat("buffers[", k, "]");
      const auto tensor = by_name.find(buffer.tensor);
      if (tensor == by_name.end()) return concat(location, ".tensor: the program has no '", buffer.tensor, "'");
      const std::vector<Layout>& domain = candidates_.domains[tensor->second.at()].layouts;
      const auto layout = std::find_if(domain.begin(), domain.end(), [&](const Layout& l) {
        return l.storage != MaskStorage::regenerated && print_layout(graph_, tensor->second, l) == buffer.layout;
      });
      if (layout == domain.end())
        return concat(location, ".layout: '", buffer.layout, "' is not a layout of ", buffer.tensor);
      if (!known.emplace(tensor->second, static_cast<int>(layout - domain.begin())).second)
        return concat(location, ": another buffer is ", buffer.tensor, " in this layout");
      if (buffer.bytes != stored_bytes(graph_, tensor->second, *layout))
        return concat(location, ".bytes: ", buffer.tensor, " takes ", stored_bytes(graph_, tensor->second, *layout));
      tensors_.push_back(tensor->second);
      layouts_.push_back(static_cast<int>(layout - domain.begin()));
    }
    return {};
  }

  // Each of the caller's tensors has exactly one buffer, in the caller's layout.
  Complaint callers() {
    std::set<TensorId> found;
    for (size_t k = 0; k < plan_.buffers.size(); ++k) {
      const PlanBuffer& buffer = plan_.buffers[k];
      if (is_arena(buffer)) continue;
      const std::string location = concat("buffers[", k, "]");
      if (callers_tensor(buffer.location, buffer.position) != tensors_[k])
        return concat(location, ".position: ", buffer.tensor, " is not the caller's tensor at this position");
      if (!found.insert(tensors_[k]).second)
        return concat(location, ": ", buffer.tensor, " appears twice among the caller's tensors");
      const int pinned = candidates_.domains[tensors_[k].at()].pinned;
      if (pinned >= 0 && pinned != layouts_[k])
        return concat(location, ".layout: the caller has ", buffer.tensor, " in another layout");
    }
    for (const BufferLocation kind : {BufferLocation::argument, BufferLocation::result, BufferLocation::result_gradient,
                                      BufferLocation::argument_gradient}) {
      const bool by_argument = kind == BufferLocation::argument || kind == BufferLocation::argument_gradient;
      const size_t count = by_argument ? graph_.arguments.size() : graph_.results.size();
      for (size_t k = 0; k < count; ++k) {
        const TensorId tensor = callers_tensor(kind, static_cast<int>(k));
        const bool in_memory = tensor.valid() && graph_.tensor(tensor).role != TensorRole::scalar;
        if (in_memory && !found.contains(tensor))
          return concat("buffers: none is the caller's ", graph_.tensor(tensor).name);
      }
    }
    return {};
  }

  // All buffers are inside the arena, and scratch follows them.
  Complaint arena() {
    int64_t sum = 0;
    for (size_t k = 0; k < plan_.buffers.size(); ++k) {
      const PlanBuffer& buffer = plan_.buffers[k];
      if (!is_arena(buffer)) continue;
      const std::optional<int64_t> total = checked_add(sum, buffer.bytes);
      if (!total) return concat("buffers[", k, "].bytes: all buffers together are too large");
      sum = *total;
      const std::optional<int64_t> end = checked_add(buffer.offset, buffer.bytes);
      if (buffer.offset < 0 || !end || *end > plan_.scratch_offset)
        return concat("buffers[", k, "].offset: the buffer does not end before scratch_offset");
      const int64_t element =
          layout_of(k).storage == MaskStorage::bits ? 1 : bytes_of(graph_.tensor(tensors_[k]).dtype);
      if (buffer.offset % element != 0) return concat("buffers[", k, "].offset: not a multiple of the element size");
    }
    if (plan_.sum_bytes != sum) return concat("sum_bytes: the buffers take ", sum);
    if (plan_.saved_bytes < 0 || plan_.saved_bytes > plan_.scratch_offset || plan_.saved_bytes % kArenaAlignment != 0)
      return concat("saved_bytes: not a multiple of ", kArenaAlignment, " up to scratch_offset");
    if (plan_.scratch_offset % kArenaAlignment != 0)
      return concat("scratch_offset: not a multiple of ", kArenaAlignment);
    const std::optional<int64_t> all = checked_add(plan_.scratch_offset, plan_.scratch_bytes);
    if (plan_.scratch_bytes < 0 || !all || plan_.arena_bytes != *all)
      return "arena_bytes: not the sum of scratch_offset and scratch_bytes";
    if (plan_.arena_bytes > kMostArenaBytes) return concat("arena_bytes: more than ", kMostArenaBytes);
    return {};
  }

  const Layout& layout_of(size_t buffer) const {
    return candidates_.domains[tensors_[buffer].at()].layouts[as_index(layouts_[buffer])];
  }

  // Each launch is a candidate whose tensors are its buffers, and reads only what was written before.
  Complaint launches() {
    first_.assign(plan_.buffers.size(), -1);
    last_.assign(plan_.buffers.size(), -1);
    written_.assign(plan_.buffers.size(), false);
    bool backward = false;
    for (size_t k = 0; k < plan_.launches.size(); ++k) {
      const PlanLaunch& launch = plan_.launches[k];
      const std::string location = concat("launches[", k, "]");
      if (backward && launch.pass == Pass::forward)
        return concat(location, ".pass: a forward launch after a backward launch");
      backward = launch.pass == Pass::backward;
      const Result<LaunchedPartition> launched = launched_partition(graph_, candidates_, launch);
      if (!launched) return concat(location, ": ", launched.error().diagnostics.front().message);
      if (!launch.partition.empty() && launched->partition.pass != launch.pass)
        return concat(location, ".pass: the partition belongs to the other pass");
      if (!is_candidate(graph_, candidates_.domains, launched->partition, launched->candidate))
        return concat(location, ".candidate: '", launch.candidate, "' is not a candidate of ", name_of(launch));
      if (Complaint complaint = touch(*launched, static_cast<int>(k), location)) return complaint;
      if (Complaint complaint = stacks(*launched, launch, location)) return complaint;
      done_.insert(done_.end(), launched->partition.operators.begin(), launched->partition.operators.end());
    }
    return {};
  }

  Complaint touch(const LaunchedPartition& launched, int number, const std::string& location) {
    const PlanLaunch& launch = plan_.launches[as_index(number)];
    if (launch.buffers.size() != launched.tensors.size())
      return concat(location, ".buffers: the partition has ", launched.tensors.size(), " tensors");
    for (size_t k = 0; k < launched.tensors.size(); ++k) {
      const std::string here = concat(location, ".buffers[", k, "]");
      const int buffer = launch.buffers[k];
      if (launched.layouts[k].storage == MaskStorage::regenerated) {
        if (buffer != kNoBuffer) return concat(here, ": a regenerated mask has no buffer");
        continue;
      }
      if (buffer < 0 || as_index(buffer) >= plan_.buffers.size()) return concat(here, ": there is no buffer ", buffer);
      if (tensors_[as_index(buffer)] != launched.tensors[k] ||
          layouts_[as_index(buffer)] != launched.candidate.layouts[k])
        return concat(here, ": buffer ", buffer, " is not ", graph_.tensor(launched.tensors[k]).name,
                      " in the candidate's layout");
      if (first_[as_index(buffer)] < 0) first_[as_index(buffer)] = number;
      last_[as_index(buffer)] = number;
      const bool written = k >= launched.partition.reads.size();
      if (Complaint complaint = written ? write(buffer, launch, here) : read(buffer, launch, here)) return complaint;
    }
    return {};
  }

  Complaint read(int buffer, const PlanLaunch& launch, const std::string& here) const {
    const BufferLocation location = plan_.buffers[as_index(buffer)].location;
    const bool given = location == BufferLocation::argument ||
                       (location == BufferLocation::result_gradient && launch.pass == Pass::backward);
    if (given || written_[as_index(buffer)]) return {};
    return concat(here, ": ", plan_.buffers[as_index(buffer)].tensor, " is read before it is written");
  }

  Complaint write(int buffer, const PlanLaunch& launch, const std::string& here) {
    const PlanBuffer& to = plan_.buffers[as_index(buffer)];
    if (to.location == BufferLocation::argument || to.location == BufferLocation::result_gradient)
      return concat(here, ": ", to.tensor, " is the caller's and read-only");
    if (to.location == BufferLocation::argument_gradient && launch.pass == Pass::forward)
      return concat(here, ": ", to.tensor, " is not available in forward");
    if (to.location == BufferLocation::result && launch.pass == Pass::backward)
      return concat(here, ": ", to.tensor, " must be written in forward");
    if (written_[as_index(buffer)]) return concat(here, ": ", to.tensor, " is written twice");
    written_[as_index(buffer)] = true;
    return {};
  }

  // Whether the caller guarantees that they are contiguous.
  bool are_adjacent_by_the_caller(const std::vector<TensorId>& stack) const {
    const auto end =
        candidates_.contiguous_groups.begin() + static_cast<std::ptrdiff_t>(candidates_.callers_contiguous_groups);
    return std::any_of(candidates_.contiguous_groups.begin(), end, [&](const std::vector<TensorId>& family) {
      return std::search(family.begin(), family.end(), stack.begin(), stack.end()) != family.end();
    });
  }

  // Tensors that a product takes as one are contiguous.
  Complaint stacks(const LaunchedPartition& launched, const PlanLaunch& launch, const std::string& location) const {
    if (!std::holds_alternative<GemmConfig>(launched.candidate.config)) return {};
    for (size_t operand = 0; operand < kOperands; ++operand) {
      const std::vector<TensorId>& stack = launched.partition.product.operand(operand);
      if (!launched.partition.product.is_adjacent(operand) || are_adjacent_by_the_caller(stack)) continue;
      const PlanBuffer* previous = nullptr;
      for (const TensorId tensor : stack) {
        const auto position =
            std::find(launched.tensors.begin(), launched.tensors.end(), tensor) - launched.tensors.begin();
        const PlanBuffer& buffer = plan_.buffers[as_index(launch.buffers[as_index(position)])];
        const bool follows = previous == nullptr || previous->offset + previous->bytes == buffer.offset;
        if (!is_arena(buffer) || !follows)
          return concat(location, ".buffers: ", buffer.tensor, " does not follow the tensor it is stacked with");
        previous = &buffer;
      }
    }
    return {};
  }

  Complaint lifetimes() {
    for (size_t k = 0; k < plan_.buffers.size(); ++k) {
      const PlanBuffer& buffer = plan_.buffers[k];
      if (buffer.first != first_[k] || buffer.last != last_[k])
        return concat("buffers[", k, "].first: launches ", first_[k], " to ", last_[k], " use it");
      if (is_arena(buffer) && buffer.first < 0) return concat("buffers[", k, "]: no launch uses it");
    }
    return {};
  }

  Complaint overlaps() {
    for (size_t k = 0; k < plan_.buffers.size(); ++k) {
      const PlanBuffer& one = plan_.buffers[k];
      if (!is_arena(one)) continue;
      for (size_t other = 0; other < k; ++other) {
        const PlanBuffer& two = plan_.buffers[other];
        if (!is_arena(two) || last_[k] < two.first || last_[other] < one.first) continue;
        if (one.offset < two.offset + two.bytes && two.offset < one.offset + one.bytes)
          return concat("buffers[", k, "].offset: ", one.tensor, " overlaps ", two.tensor, ", and both are alive");
      }
    }
    return {};
  }

  // Values that forward saves for backward are in the saved part, and backward overwrites none of them. No buffer
  // crosses the end of that part.
  Complaint saved() {
    const int backward = first_of_backward(plan_);
    for (size_t k = 0; k < plan_.buffers.size(); ++k) {
      const PlanBuffer& one = plan_.buffers[k];
      if (!is_arena(one)) continue;
      const bool inside = one.offset + one.bytes <= plan_.saved_bytes;
      if (!inside && one.offset < plan_.saved_bytes)
        return concat("buffers[", k, "].offset: ", one.tensor, " crosses saved_bytes");
      const bool kept = one.first < backward && one.last >= backward;
      if (kept && !inside) return concat("buffers[", k, "].offset: ", one.tensor, " is not in the saved part");
      if (!inside || kept || one.last < backward) continue;
      for (const PlanBuffer& two : plan_.buffers) {
        const bool other_kept = is_arena(two) && two.first < backward && two.last >= backward;
        if (other_kept && one.offset < two.offset + two.bytes && two.offset < one.offset + one.bytes)
          return concat("buffers[", k, "].offset: ", one.tensor, " overwrites the saved ", two.tensor);
      }
    }
    return {};
  }

  Complaint outputs() {
    for (size_t k = 0; k < plan_.buffers.size(); ++k) {
      const BufferLocation location = plan_.buffers[k].location;
      const bool output = location == BufferLocation::result || location == BufferLocation::argument_gradient;
      if (output && !written_[k])
        return concat("buffers[", k, "]: nothing writes the caller's ", plan_.buffers[k].tensor);
    }
    return {};
  }

  Complaint operators() {
    std::vector<int> times(graph_.operators.size(), 0);
    for (const OperatorId op : done_) ++times[op.at()];
    for (size_t k = 0; k < times.size(); ++k) {
      const std::vector<OperatorId>& optional = training_.statistics;
      const bool left_out =
          times[k] == 0 && std::find(optional.begin(), optional.end(), OperatorId(k)) != optional.end();
      if (times[k] != 1 && !left_out)
        return concat("launches: operator '", graph_.operators[k].name, "' runs ", times[k], " times");
    }
    return {};
  }

  Complaint times() {
    double sum = 0;
    for (size_t k = 0; k < plan_.launches.size(); ++k) {
      const double seconds = plan_.launches[k].predicted_seconds;
      if (!std::isfinite(seconds) || seconds < 0) return concat("launches[", k, "].predicted_seconds: not a time");
      sum += seconds;
    }
    // Compares up to rounding. Plans of earlier versions may cost more: they count a conversion that two chains share
    // twice.
    if (!std::isfinite(plan_.cost) || plan_.cost < sum * (1 - 1e-9))
      return concat("cost: less than the sum of the launches, ", sum, " s");
    return {};
  }

  const StepPlan& plan_;
  const TrainingGraph& training_;
  const Graph& graph_;
  const Candidates& candidates_;
  std::vector<TensorId> tensors_;  // one per buffer
  std::vector<int> layouts_;
  std::vector<int> first_;
  std::vector<int> last_;
  std::vector<bool> written_;
  std::vector<OperatorId> done_;
};

}  // namespace

Result<Done> verify(const StepPlan& plan, const TrainingGraph& training, const Candidates& candidates) {
  if (const Complaint complaint = Check(plan, training, candidates).run())
    return Error::make(ErrorKind::bad_input, concat("invalid plan: ", *complaint),
                       "run millrace optimize again: the plan was changed, or another version wrote it");
  return Done{};
}

}  // namespace millrace
