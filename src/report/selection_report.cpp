#include "report/selection_report.h"

#include <nlohmann/json.hpp>

#include "base/id.h"
#include "base/text.h"
#include "report/json_text.h"
#include "report/table.h"
#include "report/units.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSelectionVersion = 2;

const std::string& layout_name(const Measurements& measurements, int tensor, int layout) {
  return measurements.tensors[as_index(tensor)].layouts[as_index(layout)];
}

// How much the selection costs above the bound, as a fraction of the bound.
double gap(const Selection& selection) { return selection.bound > 0 ? selection.cost / selection.bound - 1 : 0.0; }

std::string named_layouts(const Measurements& measurements, const std::vector<int>& tensors,
                          const std::vector<int>& layouts, size_t first) {
  std::vector<std::string> texts;
  for (size_t k = 0; k < tensors.size(); ++k) {
    texts.push_back(concat(measurements.tensors[as_index(tensors[k])].name, " ",
                           layout_name(measurements, tensors[k], layouts[first + k])));
  }
  return join(texts, ", ");
}

std::string layouts_of(const Measurements& measurements, const MeasuredPartition& partition,
                       const MeasuredCandidate& candidate) {
  return concat(named_layouts(measurements, partition.reads, candidate.layouts, 0), " → ",
                named_layouts(measurements, partition.writes, candidate.layouts, partition.reads.size()));
}

std::string partitions_table(const Measurements& measurements, const Selection& selection, const CandidateWords& words,
                             size_t width) {
  Table table({Align::left, Align::left, Align::right});
  for (const bool backward : {false, true}) {
    if (backward) table.line("");
    table.row({backward ? "backward" : "forward", "candidate", "time"});
    for (const SelectedPartition& selected : selection.partitions) {
      const MeasuredPartition& partition = measurements.partitions[as_index(selected.partition)];
      if (partition.backward != backward) continue;
      const MeasuredCandidate& candidate = partition.candidates[as_index(selected.candidate)];
      table.row({concat("  ", partition.name), words.of(partition.name, candidate.candidate),
                 shown_seconds(candidate.seconds)});
      table.line(concat("      ", layouts_of(measurements, partition, candidate)));
    }
  }
  return table.text(width);
}

// "jb", or "jb via bj, …" for a chain.
std::string shown_target(const Measurements& measurements, const SelectedConversion& conversion) {
  std::vector<std::string> via;
  for (const int layout : conversion.via) via.push_back(layout_name(measurements, conversion.tensor, layout));
  return concat(layout_name(measurements, conversion.tensor, conversion.to), via.empty() ? "" : " via ",
                join(via, ", "));
}

std::string conversions_table(const Measurements& measurements, const Selection& selection, size_t width) {
  Table table({Align::left, Align::left, Align::left, Align::right});
  table.row({"conversions", "from", "to", "time"});
  for (const SelectedConversion& conversion : selection.conversions) {
    table.row({concat("  ", measurements.tensors[as_index(conversion.tensor)].name),
               layout_name(measurements, conversion.tensor, conversion.from), shown_target(measurements, conversion),
               shown_seconds(conversion.seconds)});
  }
  if (selection.conversions.empty()) table.line("  none");
  return table.text(width);
}

std::string partition_names(const Measurements& measurements, const std::vector<int>& partitions) {
  std::vector<std::string> names;
  for (const int partition : partitions) names.push_back(measurements.partitions[as_index(partition)].name);
  return names.empty() ? "nothing" : join(names, ", ");
}

std::string alternatives_lines(const Measurements& measurements, const Selection& selection) {
  std::string text;
  for (size_t s = 0; s < selection.alternatives.size(); ++s) {
    if (selection.alternatives[s] == 0) continue;
    const auto& alternatives = measurements.choice_points[s].alternatives;
    text += concat("  ", partition_names(measurements, alternatives[as_index(selection.alternatives[s])]),
                   "\n      instead of ", partition_names(measurements, alternatives[0]), "\n");
  }
  return text.empty() ? text : concat("alternatives that differ from the default\n", text, "\n");
}

std::string method_line(const Selection& selection) {
  const std::string within = concat("within ", fixed(100 * selection.proven_gap(), 2), " % of the optimum (proven)");
  if (selection.method == SelectMethod::sssp) return concat("Found by the paper's shortest path: ", within, ".\n");
  if (selection.proven) return "Optimal (proven): no selection of these measurements costs less.\n";
  return concat("Found in the time given: ", within, ". A larger --seconds may find a cheaper one.\n");
}

Json names_json(const Measurements& measurements, const std::vector<int>& tensors, const std::vector<int>& layouts,
                size_t first) {
  Json json = Json::array();
  for (size_t k = 0; k < tensors.size(); ++k) {
    json.push_back({{"tensor", measurements.tensors[as_index(tensors[k])].name},
                    {"layout", layout_name(measurements, tensors[k], layouts[first + k])}});
  }
  return json;
}

Json partition_json(const Measurements& measurements, const SelectedPartition& selected) {
  const MeasuredPartition& partition = measurements.partitions[as_index(selected.partition)];
  const MeasuredCandidate& candidate = partition.candidates[as_index(selected.candidate)];
  return {{"partition", partition.name},
          {"pass", partition.backward ? "backward" : "forward"},
          {"candidate", candidate.candidate},
          {"reads", names_json(measurements, partition.reads, candidate.layouts, 0)},
          {"writes", names_json(measurements, partition.writes, candidate.layouts, partition.reads.size())},
          {"seconds", candidate.seconds},
          {"low", candidate.low},
          {"high", candidate.high}};
}

}  // namespace

std::string selection_text(const Measurements& measurements, const Selection& selection, size_t width,
                           const CandidateWords& words) {
  Table totals({Align::left, Align::right});
  totals.row({"in total", "time"});
  totals.row({"  cost of a step", shown_seconds(selection.cost)});
  totals.row({"  lower bound, layouts ignored", shown_seconds(selection.bound)});
  totals.row({"  gap", fixed(100 * gap(selection), 2) + " %"});
  return concat(partitions_table(measurements, selection, words, width), "\n",
                conversions_table(measurements, selection, width), "\n", alternatives_lines(measurements, selection),
                totals.text(width), "\n", method_line(selection));
}

std::string selection_json(const Measurements& measurements, const Selection& selection) {
  JsonText text;
  text.field("schema_version", kSelectionVersion);
  text.field("method", selection.method == SelectMethod::sssp ? "sssp" : "exact");
  text.field("proven", selection.proven);
  text.field("cost", selection.cost);
  text.field("bound", selection.bound);
  text.field("lower_bound", selection.lower_bound);
  text.field("proven_gap", selection.proven_gap());
  text.field("gap", gap(selection));
  text.list("alternatives", selection.alternatives.size(), [&](size_t s) {
    const auto& alternatives = measurements.choice_points[s].alternatives;
    Json partitions = Json::array();
    for (const int partition : alternatives[as_index(selection.alternatives[s])])
      partitions.push_back(measurements.partitions[as_index(partition)].name);
    return Json{
        {"taken", selection.alternatives[s]}, {"of", alternatives.size()}, {"partitions", std::move(partitions)}};
  });
  text.list("partitions", selection.partitions.size(),
            [&](size_t k) { return partition_json(measurements, selection.partitions[k]); });
  text.list("conversions", selection.conversions.size(), [&](size_t k) {
    const SelectedConversion& conversion = selection.conversions[k];
    Json via = Json::array();
    for (const int layout : conversion.via) via.push_back(layout_name(measurements, conversion.tensor, layout));
    return Json{{"tensor", measurements.tensors[as_index(conversion.tensor)].name},
                {"from", layout_name(measurements, conversion.tensor, conversion.from)},
                {"via", std::move(via)},
                {"to", layout_name(measurements, conversion.tensor, conversion.to)},
                {"seconds", conversion.seconds}};
  });
  return std::move(text).finish();
}

}  // namespace millrace
