#include "measure/verify.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/text.h"

namespace millrace {
namespace {

using Complaint = std::optional<std::string>;

size_t index(int id) { return static_cast<size_t>(id); }
bool within(int id, size_t count) { return id >= 0 && index(id) < count; }
bool is_time(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

// Complaints begin with the position, as a path into the JSON file.
class Check {
 public:
  explicit Check(const Measurements& measurements) : m_(measurements) {}

  Complaint run() {
    for (auto step : {&Check::tensors, &Check::partitions, &Check::choice_points, &Check::writers, &Check::order,
                      &Check::conversions}) {
      if (Complaint complaint = (this->*step)()) return complaint;
    }
    return {};
  }

 private:
  Complaint tensors() {
    std::set<std::string> names;
    for (size_t t = 0; t < m_.tensors.size(); ++t) {
      const MeasuredTensor& tensor = m_.tensors[t];
      const std::string place = concat("tensors[", t, "]");
      if (tensor.name.empty()) return concat(place, ".name: it is empty; every tensor needs a name");
      if (!names.insert(tensor.name).second)
        return concat(place, ".name: another tensor is named '", tensor.name, "' too; names must differ");
      if (tensor.layouts.empty()) return concat(place, ".layouts: it is empty; a tensor needs at least one layout");
      std::set<std::string> layouts;
      for (size_t l = 0; l < tensor.layouts.size(); ++l) {
        if (!layouts.insert(tensor.layouts[l]).second)
          return concat(place, ".layouts[", l, "]: '", tensor.layouts[l], "' is listed twice; layouts must differ");
      }
      if (tensor.pinned != kNoLayout && !within(tensor.pinned, tensor.layouts.size()))
        return concat(place, ".pinned: ", tensor.pinned, " is not one of the ", tensor.layouts.size(),
                      " layouts; count from 0, or leave it out");
    }
    return {};
  }

  Complaint partitions() {
    std::set<std::string> names;
    for (size_t p = 0; p < m_.partitions.size(); ++p) {
      const MeasuredPartition& partition = m_.partitions[p];
      const std::string place = concat("partitions[", p, "]");
      if (partition.name.empty()) return concat(place, ".name: it is empty; every partition needs a name");
      if (!names.insert(partition.name).second)
        return concat(place, ".name: another partition is named '", partition.name, "' too; names must differ");
      std::vector<int> touched;
      for (const auto& [list, key] :
           {std::pair(&partition.reads, ".reads["), std::pair(&partition.writes, ".writes[")}) {
        for (size_t k = 0; k < list->size(); ++k) {
          const int t = (*list)[k];
          if (!within(t, m_.tensors.size()))
            return concat(place, key, k, "]: there is no tensor ", t, "; there are ", m_.tensors.size());
          if (std::find(touched.begin(), touched.end(), t) != touched.end())
            return concat(place, key, k, "]: the partition touches tensor ", t, " twice; list it once");
          touched.push_back(t);
        }
      }
      for (size_t w = 0; w < partition.candidates.size(); ++w) {
        if (Complaint complaint = candidate(partition.candidates[w], touched, concat(place, ".candidates[", w, "]")))
          return complaint;
      }
    }
    return {};
  }

  Complaint candidate(const MeasuredCandidate& candidate, const std::vector<int>& touched,
                      const std::string& place) const {
    if (candidate.layouts.size() != touched.size())
      return concat(place, ".layouts: ", candidate.layouts.size(), " layouts for ", touched.size(),
                    " tensors; give one for each read, then one for each write");
    for (size_t k = 0; k < touched.size(); ++k) {
      const size_t count = m_.tensors[index(touched[k])].layouts.size();
      if (!within(candidate.layouts[k], count))
        return concat(place, ".layouts[", k, "]: ", candidate.layouts[k], " is not one of the tensor's ", count,
                      " layouts; count from 0");
    }
    for (const auto& [seconds, key] : {std::pair(candidate.seconds, ".seconds"), std::pair(candidate.low, ".low"),
                                       std::pair(candidate.high, ".high")}) {
      if (!is_time(seconds)) return concat(place, key, ": ", seconds, " is not a time; give seconds, zero or more");
    }
    if (candidate.low > candidate.seconds || candidate.seconds > candidate.high)
      return concat(place, ".low: the interval does not hold the median; low <= seconds <= high must hold");
    return {};
  }

  Complaint choice_points() {
    std::vector<int> choice_point_of(m_.partitions.size(), -1);
    for (size_t s = 0; s < m_.choice_points.size(); ++s) {
      const auto& alternatives = m_.choice_points[s].alternatives;
      const std::string place = concat("choice_points[", s, "].alternatives");
      if (alternatives.empty()) return concat(place, ": it is empty; a choice point needs at least one alternative");
      for (size_t a = 0; a < alternatives.size(); ++a) {
        std::set<int> known;
        for (size_t k = 0; k < alternatives[a].size(); ++k) {
          const int p = alternatives[a][k];
          const std::string at = concat(place, "[", a, "][", k, "]");
          if (!within(p, m_.partitions.size()))
            return concat(at, ": there is no partition ", p, "; there are ", m_.partitions.size());
          if (!known.insert(p).second) return concat(at, ": partition ", p, " is listed twice; list it once");
          int& choice_point = choice_point_of[index(p)];
          if (choice_point >= 0 && index(choice_point) != s)
            return concat(at, ": partition ", p, " is in choice point ", choice_point,
                          " too; a partition belongs to one choice point");
          choice_point = static_cast<int>(s);
        }
      }
    }
    for (size_t p = 0; p < choice_point_of.size(); ++p) {
      if (choice_point_of[p] < 0)
        return concat("partitions[", p, "]: it is in no choice point; add it to an alternative of a choice point");
    }
    choice_point_of_ = std::move(choice_point_of);
    return {};
  }

  // Every selection has at most one writer of a tensor, and exactly one of a pinned tensor that is written.
  Complaint writers() {
    std::map<int, int> choice_point_of_writers;
    for (size_t p = 0; p < m_.partitions.size(); ++p) {
      for (const int t : m_.partitions[p].writes) {
        const auto [choice_point, fresh] = choice_point_of_writers.emplace(t, choice_point_of_[p]);
        if (!fresh && choice_point->second != choice_point_of_[p])
          return concat("partitions[", p, "].writes: tensor ", t, " is written in choice point ", choice_point->second,
                        " too; only one choice point may write it");
      }
    }
    for (const auto& [t, s] : choice_point_of_writers) {
      const auto& alternatives = m_.choice_points[index(s)].alternatives;
      for (size_t a = 0; a < alternatives.size(); ++a) {
        int count = 0;
        for (const int p : alternatives[a]) {
          for (const int written : m_.partitions[index(p)].writes) count += written == t ? 1 : 0;
        }
        const std::string place = concat("choice_points[", s, "].alternatives[", a, "]");
        if (count > 1) return concat(place, ": two of its partitions write tensor ", t, "; only one of them may");
        if (count == 0 && m_.tensors[index(t)].pinned != kNoLayout)
          return concat(place, ": none of its partitions writes tensor ", t, ", which is pinned; one of them must");
      }
    }
    return {};
  }

  // Every selection can run in the order of the partitions: tensors are written before they are read.
  Complaint order() {
    std::map<int, size_t> last;
    for (size_t p = 0; p < m_.partitions.size(); ++p) {
      for (const int t : m_.partitions[p].writes) last[t] = p;
    }
    for (size_t p = 0; p < m_.partitions.size(); ++p) {
      for (const int t : m_.partitions[p].reads) {
        const auto writer = last.find(t);
        if (writer == last.end() || writer->second <= p || excluded(p, t)) continue;
        return concat("partitions[", p, "].reads: tensor ", t, " is written by partitions[", writer->second,
                      "], which comes later; order the partitions so that writers come first");
      }
    }
    return {};
  }

  // Whether no alternative contains both the reader and a writer that comes later.
  bool excluded(size_t reader, int tensor) const {
    for (size_t p = reader + 1; p < m_.partitions.size(); ++p) {
      const auto& writes = m_.partitions[p].writes;
      if (std::find(writes.begin(), writes.end(), tensor) == writes.end()) continue;
      if (choice_point_of_[p] != choice_point_of_[reader]) return false;
      for (const auto& alternative : m_.choice_points[index(choice_point_of_[p])].alternatives) {
        const auto has = [&](size_t partition) {
          return std::find(alternative.begin(), alternative.end(), static_cast<int>(partition)) != alternative.end();
        };
        if (has(p) && has(reader)) return false;
      }
    }
    return true;
  }

  Complaint conversions() {
    std::set<std::tuple<int, int, int>> known;
    for (size_t k = 0; k < m_.conversions.size(); ++k) {
      const MeasuredConversion& conversion = m_.conversions[k];
      const std::string place = concat("conversions[", k, "]");
      if (!within(conversion.tensor, m_.tensors.size()))
        return concat(place, ".tensor: there is no tensor ", conversion.tensor, "; there are ", m_.tensors.size());
      const size_t count = m_.tensors[index(conversion.tensor)].layouts.size();
      for (const auto& [layout, key] : {std::pair(conversion.from, ".from"), std::pair(conversion.to, ".to")}) {
        if (!within(layout, count))
          return concat(place, key, ": ", layout, " is not one of the tensor's ", count, " layouts; count from 0");
      }
      if (conversion.from == conversion.to) return concat(place, ".to: it equals .from; remove the conversion");
      if (!is_time(conversion.seconds))
        return concat(place, ".seconds: ", conversion.seconds, " is not a time; give seconds, zero or more");
      if (!known.emplace(conversion.tensor, conversion.from, conversion.to).second)
        return concat(place, ": this conversion is listed twice; list it once");
    }
    return {};
  }

  const Measurements& m_;
  std::vector<int> choice_point_of_;  // by partition
};

}  // namespace

Result<Done> verify(const Measurements& measurements) {
  if (const Complaint complaint = Check(measurements).run()) {
    const size_t split = complaint->rfind("; ");
    return Error::make(ErrorKind::bad_input, concat("invalid measurements: ", complaint->substr(0, split)),
                       complaint->substr(split + 2));
  }
  return Done{};
}

}  // namespace millrace
