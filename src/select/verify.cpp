#include "select/verify.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/id.h"
#include "base/text.h"

namespace millrace {
namespace {

constexpr double kTolerance = 1e-9;  // relative

bool within(int id, size_t count) { return id >= 0 && as_index(id) < count; }

Error broken(const std::string& what) {
  return Error::make(ErrorKind::failed, concat("invalid selection: ", what),
                     "report this as a bug of Millrace, unless the selection belongs to other measurements");
}

class Check {
 public:
  Check(const Measurements& measurements, const Selection& selection) : m_(measurements), s_(selection) {
    for (const MeasuredPartition& partition : m_.partitions)
      writable_.insert(partition.writes.begin(), partition.writes.end());
  }

  Result<Done> run() {
    for (auto step : {&Check::alternatives, &Check::candidates, &Check::conversions, &Check::layouts, &Check::cost}) {
      if (const std::optional<std::string> complaint = (this->*step)()) return broken(*complaint);
    }
    return Done{};
  }

 private:
  using Complaint = std::optional<std::string>;

  Complaint alternatives() {
    if (s_.alternatives.size() != m_.choice_points.size()) return "it does not have one alternative per choice point";
    std::set<int> wanted;
    for (size_t k = 0; k < m_.choice_points.size(); ++k) {
      const auto& alternatives = m_.choice_points[k].alternatives;
      if (!within(s_.alternatives[k], alternatives.size()))
        return concat("choice point ", k, " has no such alternative");
      const std::vector<int>& partitions = alternatives[as_index(s_.alternatives[k])];
      wanted.insert(partitions.begin(), partitions.end());
    }
    std::vector<int> got;
    for (const SelectedPartition& partition : s_.partitions) got.push_back(partition.partition);
    if (!std::equal(got.begin(), got.end(), wanted.begin(), wanted.end()))
      return "its partitions are not those of the alternatives, in the order of the measurements";
    return {};
  }

  Complaint candidates() {
    for (const SelectedPartition& selected : s_.partitions) {
      const MeasuredPartition& partition = m_.partitions[as_index(selected.partition)];
      if (!within(selected.candidate, partition.candidates.size()))
        return concat("partition '", partition.name, "' has no such candidate");
      const MeasuredCandidate& candidate = partition.candidates[as_index(selected.candidate)];
      seconds_ += candidate.seconds;
      for (size_t k = 0; k < partition.reads.size(); ++k) read_[partition.reads[k]].insert(candidate.layouts[k]);
      for (size_t k = 0; k < partition.writes.size(); ++k) {
        if (!written_.emplace(partition.writes[k], candidate.layouts[partition.reads.size() + k]).second)
          return concat(name(partition.writes[k]), " is written twice");
      }
    }
    return {};
  }

  Complaint conversions() {
    for (const MeasuredConversion& known : m_.conversions)
      listed_[{known.tensor, known.from, known.to}] = known.seconds;
    for (const SelectedConversion& made : s_.conversions) {
      if (!within(made.tensor, m_.tensors.size())) return "it converts an unknown tensor";
      if (!was_measured(made)) return concat(name(made.tensor), " has a conversion that was not measured");
      if (!converted_[made.tensor].insert(made.to).second)
        return concat(name(made.tensor), " has the same conversion twice");
      const auto [from, fresh] = from_.emplace(made.tensor, made.from);
      if (!fresh && from->second != made.from) return concat(name(made.tensor), " is converted from two layouts");
      seconds_ += made.seconds;
    }
    return {};
  }

  bool was_measured(const SelectedConversion& made) const {
    double sum = 0;
    for (const auto& [from, to] : made.chain()) {
      const auto known = listed_.find({made.tensor, from, to});
      if (known == listed_.end()) return false;
      sum += known->second;
    }
    return std::abs(sum - made.seconds) <= kTolerance * sum;
  }

  // Every tensor that a selected partition touches exists in the layouts that it is needed in, and no other conversion
  // is made.
  Complaint layouts() {
    for (const auto& [tensor, layout] : written_) {
      const int pinned = m_.tensors[as_index(tensor)].pinned;
      if (pinned != kNoLayout) read_[tensor].insert(pinned);
    }
    for (const auto& [tensor, to] : converted_) {
      if (!read_.contains(tensor)) return concat(name(tensor), " is converted, but nothing reads it");
    }
    for (const auto& [tensor, needed] : read_) {
      std::set<int> rest = needed;
      if (const auto base = base_of(tensor)) {
        if (from_.contains(tensor) && from_.at(tensor) != *base)
          return concat(name(tensor), " is converted from a layout that it does not have");
        rest.erase(*base);
      } else if (some_partition_writes(tensor)) {
        return concat(name(tensor), " is read, but no selected partition writes it");
      } else if (from_.contains(tensor)) {
        if (rest.size() == 1)
          return concat(name(tensor), " is converted, but the caller could give it in the layout that is read");
        rest.erase(from_.at(tensor));
      } else if (rest.size() == 1) {
        rest.clear();
      }
      const auto made = converted_.find(tensor);
      if (made == converted_.end() ? !rest.empty() : made->second != rest)
        return concat(name(tensor), " is not converted to exactly the layouts that are needed");
    }
    return {};
  }

  Complaint cost() {
    if (!std::isfinite(s_.cost) || std::abs(s_.cost - seconds_) > kTolerance * std::max(s_.cost, seconds_))
      return concat("its partitions and conversions cost ", seconds_, " s together, not ", s_.cost, " s");
    double bound = 0;
    for (const MeasuredChoicePoint& choice_point : m_.choice_points) {
      double least = std::numeric_limits<double>::infinity();
      for (const std::vector<int>& alternative : choice_point.alternatives)
        least = std::min(least, fastest(alternative));
      bound += least;
    }
    if (!std::isfinite(s_.bound) || std::abs(s_.bound - bound) > kTolerance * std::max(s_.bound, bound))
      return concat("its bound is ", bound, " s, not ", s_.bound, " s");
    if (s_.bound > s_.cost * (1 + kTolerance)) return "it costs less than its bound";
    if (!(s_.lower_bound >= s_.bound * (1 - kTolerance) && s_.lower_bound <= s_.cost * (1 + kTolerance)))
      return concat("its lower bound of ", s_.lower_bound, " s is not between ", s_.bound, " s and its cost");
    if (s_.proven && s_.lower_bound < s_.cost * (1 - kTolerance)) return "it is not as cheap as its lower bound";
    return {};
  }

  double fastest(const std::vector<int>& alternative) const {
    double sum = 0;
    for (const int partition : alternative) {
      double least = std::numeric_limits<double>::infinity();
      for (const MeasuredCandidate& candidate : m_.partitions[as_index(partition)].candidates)
        least = std::min(least, candidate.seconds);
      sum += least;
    }
    return sum;
  }

  // The tensor's first layout, if the caller does not choose it.
  std::optional<int> base_of(int tensor) const {
    if (const auto written = written_.find(tensor); written != written_.end()) return written->second;
    const int pinned = m_.tensors[as_index(tensor)].pinned;
    if (some_partition_writes(tensor) || pinned == kNoLayout) return {};
    return pinned;
  }

  bool some_partition_writes(int tensor) const { return writable_.contains(tensor); }

  std::string name(int tensor) const { return concat("tensor '", m_.tensors[as_index(tensor)].name, "'"); }

  const Measurements& m_;
  const Selection& s_;
  std::set<int> writable_;                              // tensors that some partition writes, selected or not
  std::map<std::tuple<int, int, int>, double> listed_;  // measured conversions: tensor, from, to
  double seconds_ = 0;
  std::map<int, std::set<int>> read_;       // by tensor; the pinned layout of written ones too
  std::map<int, int> written_;              // by tensor
  std::map<int, std::set<int>> converted_;  // by tensor
  std::map<int, int> from_;                 // by tensor
};

}  // namespace

Result<Done> verify(const Measurements& measurements, const Selection& selection) {
  return Check(measurements, selection).run();
}

}  // namespace millrace
