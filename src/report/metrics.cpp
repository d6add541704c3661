#include "report/metrics.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>

namespace millrace {
namespace {

struct Traffic {
  int64_t words = 0;
  double bytes = 0;
};

Traffic traffic_of(const Graph& graph, const std::vector<TensorId>& tensors) {
  Traffic traffic;
  for (const TensorId tensor : std::set<TensorId>(tensors.begin(), tensors.end())) {
    const int64_t words = words_of(graph, tensor);
    traffic.words += words;
    traffic.bytes += static_cast<double>(words) * static_cast<double>(bytes_of(graph.tensor(tensor).dtype));
  }
  return traffic;
}

std::vector<TensorId> tensors_of(const std::vector<Access>& accesses) {
  std::vector<TensorId> tensors;
  for (const Access& access : accesses) tensors.push_back(access.tensor);
  return tensors;
}

void set_traffic(Piece& piece, const Traffic& in, const Traffic& out) {
  piece.input_words = in.words;
  piece.output_words = out.words;
  piece.moved_words = static_cast<double>(in.words + out.words);
  piece.least_words = piece.moved_words;
  piece.bytes = in.bytes + out.bytes;
}

// The words of a mask that do not go through memory because it is stored as bits or regenerated.
Traffic spared(const Graph& graph, TensorId tensor, const Layout& layout) {
  if (layout.storage == MaskStorage::words) return {};
  const Traffic as_words = traffic_of(graph, {tensor});
  const int64_t kept = layout.storage == MaskStorage::bits ? stored_bytes(graph, tensor, layout) : 0;
  const auto word = static_cast<int64_t>(bytes_of(graph.tensor(tensor).dtype));
  return {as_words.words - (kept + word - 1) / word, as_words.bytes - static_cast<double>(kept)};
}

// More words than its tensors have: a product that does not fit into fast memory, or a kernel that reads a row again.
void set_moved(Piece& piece, double moved) {
  if (moved <= piece.moved_words || piece.moved_words <= 0) return;
  piece.bytes *= moved / piece.moved_words;
  piece.moved_words = moved;
}

class Metrics {
 public:
  explicit Metrics(const ReportArtefacts& artefacts) : artefacts_(artefacts), graph_(artefacts.training.graph) {
    for (const MeasuredPartition& partition : artefacts.measurements.partitions) measured_[partition.name] = &partition;
    for (const TriedPartition& partition : artefacts.exploration.partitions) tried_[partition.name] = &partition;
    for (const PartitionCandidates& candidates : artefacts.candidates.partitions)
      partitions_[candidates.partition.name] = &candidates.partition;
    for (size_t k = 0; k < graph_.tensors.size(); ++k) tensors_[graph_.tensors[k].name] = TensorId(k);
    for (const FusedOperator& group : artefacts.fused.groups) moved_by_group_[group.members] = group.words_after;
  }

  StepMetrics make() {
    for (size_t k = 0; k < graph_.operators.size(); ++k) made_.operators.push_back(alone(OperatorId(k)));
    for (const std::vector<OperatorId>* added :
         {&artefacts_.training.repeated, &artefacts_.training.predicates, &artefacts_.training.statistics}) {
      for (const OperatorId op : *added) made_.operators[op.at()].added = true;
    }
    std::copy_if(made_.operators.begin(), made_.operators.end(), std::back_inserter(made_.before),
                 [](const Piece& piece) { return !piece.added; });
    made_.launch_of.assign(graph_.operators.size(), -1);
    for (const PlanLaunch& launch : artefacts_.plan.launches) {
      made_.after.push_back(after(launch));
      for (const OperatorId op : made_.after.back().operators)
        made_.launch_of[op.at()] = static_cast<int>(made_.after.size()) - 1;
    }
    for (const Piece& piece : made_.before) {
      made_.words_before += static_cast<double>(piece.input_words + piece.output_words);
      made_.bytes_before += piece.bytes;
    }
    for (const Piece& piece : made_.after) {
      made_.words_after += static_cast<double>(piece.input_words + piece.output_words);
      made_.bytes_after += piece.bytes;
    }
    find_peaks();
    return std::move(made_);
  }

 private:
  Piece alone(OperatorId id) const {
    const Operator& op = graph_.operators[id.at()];
    const OperatorAnalysis& analysis = artefacts_.analysis.operators[id.at()];
    Piece piece;
    piece.name = op.name;
    piece.pass = op.pass;
    piece.operator_class = analysis.operator_class;
    piece.operators = {id};
    piece.flop = analysis.flop;
    set_traffic(piece, traffic_of(graph_, tensors_of(op.inputs)), traffic_of(graph_, tensors_of(op.outputs)));
    piece.least_words = static_cast<double>(analysis.io_lower_bound);
    set_moved(piece, piece.least_words);
    for (const auto& [name, partition] : partitions_) {
      if (partition->operators.size() != 1 || partition->operators[0] != id) continue;
      const auto found = measured_.find(name);
      if (found == measured_.end()) continue;
      piece.seconds = seconds_as_written(artefacts_.measurements, *found->second).value_or(0);
    }
    return piece;
  }

  // The cost of a partition: the sums over its operators, with each of its tensors once and masks as the candidate
  // stores them.
  Piece piece_of(const Partition& partition, const std::string& candidate) const {
    Piece piece = piece_of(partition);
    const std::optional<Candidate> parsed = parse_candidate(artefacts_.candidates.domains, partition, candidate);
    if (!parsed) return piece;
    const std::vector<TensorId> tensors = millrace::tensors_of(partition);
    const std::vector<Layout> layouts = layouts_of(artefacts_.candidates.domains, partition, *parsed);
    for (size_t k = 0; k < tensors.size(); ++k) {
      const Traffic less = spared(graph_, tensors[k], layouts[k]);
      (k < partition.reads.size() ? piece.input_words : piece.output_words) -= less.words;
      piece.moved_words -= static_cast<double>(less.words);
      piece.least_words -= static_cast<double>(less.words);
      piece.bytes -= less.bytes;
    }
    return piece;
  }

  Piece piece_of(const Partition& partition) const {
    Piece piece;
    piece.name = partition.name;
    piece.pass = partition.pass;
    piece.operators = partition.operators;
    bool contraction = partition.kind == PartitionKind::contraction;
    bool normalization = false;
    for (const OperatorId op : partition.operators) {
      const OperatorAnalysis& analysis = artefacts_.analysis.operators[op.at()];
      piece.flop += analysis.flop;
      contraction = contraction || analysis.operator_class == OperatorClass::contraction;
      normalization = normalization || analysis.operator_class == OperatorClass::normalization;
    }
    piece.operator_class = contraction     ? OperatorClass::contraction
                           : normalization ? OperatorClass::normalization
                                           : OperatorClass::elementwise;
    set_traffic(piece, traffic_of(graph_, partition.reads), traffic_of(graph_, partition.writes));
    if (contraction &&
        // Fused attention keeps no matrices between its products in memory.
        partition.kind != PartitionKind::attention) {
      double least = 0;
      for (const OperatorId op : partition.operators) {
        const OperatorAnalysis& analysis = artefacts_.analysis.operators[op.at()];
        if (analysis.io_lower_bound > analysis.words()) least += static_cast<double>(analysis.io_lower_bound);
      }
      piece.least_words = std::max(piece.least_words, least);
      set_moved(piece, piece.least_words);
    } else if (const auto group = moved_by_group_.find(partition.operators); group != moved_by_group_.end()) {
      set_moved(piece, static_cast<double>(group->second));
    }
    return piece;
  }

  Piece after(const PlanLaunch& launch) const {
    Piece piece;
    if (const auto partition = partitions_.find(launch.partition);
        !launch.partition.empty() && partition != partitions_.end()) {
      piece = piece_of(*partition->second, launch.candidate);
    } else if (const auto tensor = tensors_.find(launch.conversion_of); tensor != tensors_.end()) {
      const Traffic once = traffic_of(graph_, {tensor->second});
      set_traffic(piece, once, once);
      piece.conversion = true;
    }
    piece.name = name_of(launch);
    piece.pass = launch.pass;
    piece.candidate = launch.candidate;
    piece.seconds = launch.predicted_seconds;
    piece.estimated = is_estimated(launch);
    return piece;
  }

  // The launches of a plan from another machine, about which nothing is known here, count as measured.
  bool is_estimated(const PlanLaunch& launch) const {
    if (launch.estimated) return true;
    const auto tried = tried_.find(launch.partition);
    if (launch.partition.empty() || tried == tried_.end()) return false;
    const std::vector<TriedCandidate>& all = tried->second->tried;
    return std::none_of(all.begin(), all.end(), [&](const TriedCandidate& candidate) {
      return candidate.seconds > 0 && candidate.candidate == launch.candidate;
    });
  }

  void note(const Piece& piece, double seconds) {
    if (!(seconds > 0)) return;
    Peaks& peaks = made_.peaks;
    const double flop = static_cast<double>(piece.flop) / seconds;
    const double bytes = piece.bytes / seconds;
    if (flop > peaks.flop_per_second) {
      peaks.flop_per_second = flop;
      peaks.flop_of = piece.name;
    }
    if (bytes > peaks.bytes_per_second) {
      peaks.bytes_per_second = bytes;
      peaks.bytes_of = piece.name;
    }
  }

  void find_peaks() {
    for (const TriedPartition& tried : artefacts_.exploration.partitions) {
      const auto partition = partitions_.find(tried.name);
      if (partition == partitions_.end()) continue;
      for (const TriedCandidate& candidate : tried.tried) {
        if (candidate.seconds > 0) note(piece_of(*partition->second, candidate.candidate), candidate.seconds);
      }
    }
    for (const Piece& piece : made_.after) {
      if (!piece.estimated) note(piece, piece.seconds);
    }
  }

  const ReportArtefacts& artefacts_;
  const Graph& graph_;
  std::map<std::string, const MeasuredPartition*> measured_;
  std::map<std::string, const TriedPartition*> tried_;
  std::map<std::string, const Partition*> partitions_;
  std::map<std::string, TensorId> tensors_;
  std::map<std::vector<OperatorId>, int64_t> moved_by_group_;
  StepMetrics made_;
};

}  // namespace

double Piece::flop_per_word() const {
  const double words = static_cast<double>(input_words) + static_cast<double>(output_words);
  return words > 0 ? static_cast<double>(flop) / words : 0;
}

std::optional<double> seconds_as_written(const Measurements& measurements, const MeasuredPartition& partition) {
  std::vector<int> tensors = partition.reads;
  tensors.insert(tensors.end(), partition.writes.begin(), partition.writes.end());
  std::optional<double> best;
  for (const MeasuredCandidate& candidate : partition.candidates) {
    bool written = true;
    for (size_t k = 0; k < tensors.size(); ++k)
      written = written && candidate.layouts[k] == std::max(0, measurements.tensors[as_index(tensors[k])].pinned);
    if (written && (!best || candidate.seconds < *best)) best = candidate.seconds;
  }
  return best;
}

std::vector<const Piece*> slowest_first(const std::vector<Piece>& pieces) {
  std::vector<const Piece*> slowest;
  for (const Piece& piece : pieces) slowest.push_back(&piece);
  std::stable_sort(slowest.begin(), slowest.end(),
                   [](const Piece* l, const Piece* r) { return l->seconds > r->seconds; });
  return slowest;
}

size_t estimated_launches(const StepMetrics& metrics) {
  return static_cast<size_t>(
      std::count_if(metrics.after.begin(), metrics.after.end(), [](const Piece& piece) { return piece.estimated; }));
}

double step_seconds(const StepMetrics& metrics) {
  double sum = 0;
  for (const Piece& piece : metrics.after) sum += piece.seconds;
  return sum;
}

StepMetrics measure_step(const ReportArtefacts& artefacts) { return Metrics(artefacts).make(); }

double fraction_of_peak(const Piece& piece, const Peaks& peaks) {
  if (piece.seconds <= 0 || piece.estimated || peaks.flop_per_second <= 0) return 0;
  return static_cast<double>(piece.flop) / piece.seconds / peaks.flop_per_second;
}

double mue(const Piece& piece, const Peaks& peaks) {
  if (piece.seconds <= 0 || piece.estimated || peaks.bytes_per_second <= 0 || piece.moved_words <= 0) return 0;
  return piece.least_words / piece.moved_words * (piece.bytes / piece.seconds / peaks.bytes_per_second);
}

std::optional<Limit> limit_of(const Piece& piece, const Peaks& peaks) {
  if (piece.seconds <= 0 || piece.estimated || peaks.flop_per_second <= 0 || peaks.bytes_per_second <= 0)
    return std::nullopt;
  const double flop = static_cast<double>(piece.flop) / peaks.flop_per_second;
  const double memory = piece.bytes / peaks.bytes_per_second;
  return Limit{flop > memory, std::max(flop, memory) / piece.seconds};
}

}  // namespace millrace
