#include "report/report_sections.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/pictures.h"
#include "report/layout_reasons.h"

namespace millrace {
namespace {

Cell count_cell(double count) { return {short_count(count), count}; }
Cell percent_cell(double fraction) { return fraction > 0 ? Cell(fixed(100 * fraction, 1), 100 * fraction) : Cell("–"); }

std::string class_name(const Piece& piece) {
  return piece.conversion ? "conversion" : std::string(name_of(piece.operator_class));
}

Cell limit_cell(const Piece& piece, const Peaks& peaks) {
  const std::optional<Limit> limit = limit_of(piece, peaks);
  return limit ? concat(limit->flop ? "flop, " : "memory, ", fixed(100 * limit->fraction, 0), " %") : "–";
}

DataTable operators_table(const ReportArtefacts& artefacts, const StepMetrics& metrics) {
  DataTable table{
      "operators",
      "Every operator of the program as its own kernel: nothing is fused, and every tensor is laid out as the "
      "program writes it.",
      {{"operator", "operator", false},
       {"pass", "pass", false},
       {"class", "class", false},
       {"flop", "flop"},
       {"input_words", "words in"},
       {"output_words", "words out"},
       {"flop_per_word", "flop per word"},
       {"seconds", "time unfused"},
       {"percent_of_peak", "% of peak"},
       {"mue", "MUE %"},
       {"limit", "limited by", false},
       {"launch", "launched in", false}},
      {},
      true};
  for (const Piece& piece : metrics.before) {
    const int launch = metrics.launch_of[piece.operators.front().at()];
    table.rows.push_back(
        {piece.name, name_of(piece.pass), class_name(piece), count_cell(static_cast<double>(piece.flop)),
         count_cell(static_cast<double>(piece.input_words)), count_cell(static_cast<double>(piece.output_words)),
         Cell(fixed(piece.flop_per_word(), 2), piece.flop_per_word()), seconds_cell(piece.seconds),
         percent_cell(fraction_of_peak(piece, metrics.peaks)), percent_cell(mue(piece, metrics.peaks)),
         limit_cell(piece, metrics.peaks),
         launch < 0 ? Cell("–") : Cell(name_of(artefacts.plan.launches[as_index(launch)]))});
  }
  return table;
}

Cell bytes_cell(double bytes) { return bytes > 0 ? Cell(short_bytes(bytes), bytes) : Cell("–"); }

// The sum over a launch's operators, each as its own kernel; 0 if not all were measured.
double unfused_seconds(const StepMetrics& metrics, const Piece& launch) {
  double unfused = 0;
  for (const OperatorId op : launch.operators) {
    const Piece& alone = metrics.operators[op.at()];
    if (alone.added) continue;
    if (alone.seconds <= 0) return 0;
    unfused += alone.seconds;
  }
  return unfused;
}

std::vector<Cell> launch_row(const StepMetrics& metrics, size_t k) {
  const Piece& piece = metrics.after[k];
  std::vector<std::string> names;
  for (const OperatorId op : piece.operators) names.push_back(metrics.operators[op.at()].name);
  Cell name(piece.name);
  if (names.size() > 1) name.more = join(names, ", ");
  const double unfused = unfused_seconds(metrics, piece);
  const double speed_up = piece.seconds > 0 ? unfused / piece.seconds : 0;
  return {
      name,
      Cell(concat(k + 1), static_cast<double>(k + 1)),
      name_of(piece.pass),
      class_name(piece),
      count_cell(static_cast<double>(piece.flop)),
      count_cell(static_cast<double>(piece.input_words)),
      count_cell(static_cast<double>(piece.output_words)),
      bytes_cell(piece.bytes),
      seconds_cell(unfused),
      piece.estimated ? Cell(concat("~", shown_seconds(piece.seconds)), piece.seconds) : seconds_cell(piece.seconds),
      percent_cell(step_seconds(metrics) > 0 ? piece.seconds / step_seconds(metrics) : 0),
      speed_up > 0 ? Cell(fixed(speed_up, 2), speed_up) : Cell("–"),
      percent_cell(fraction_of_peak(piece, metrics.peaks)),
      percent_cell(mue(piece, metrics.peaks)),
      limit_cell(piece, metrics.peaks)};
}

DataTable launches_table(const ReportArtefacts& artefacts, const StepMetrics& metrics) {
  DataTable table{
      "launches",
      "Every launch of the plan and its operators; its number is its place in the step. Unfused time is the "
      "sum over those operators; ~ marks the estimate of a launch that was not timed alone. Click a heading to sort.",
      {{"launch", "launch", false},
       {"number", "#"},
       {"pass", "pass", false},
       {"class", "class", false},
       {"flop", "flop"},
       {"input_words", "words in"},
       {"output_words", "words out"},
       {"bytes", "bytes, modelled"},
       {"seconds_unfused", "time unfused"},
       {"seconds", "time"},
       {"percent_of_step", "% of step"},
       {"speed_up", "speed-up"},
       {"percent_of_peak", "% of peak"},
       {"mue", "MUE %"},
       {"limit", "limited by", false}},
      {},
      false};
  const bool counted = artefacts.counted_bytes.size() == metrics.after.size();
  const bool timed = artefacts.bench_seconds.size() == metrics.after.size();
  if (counted) table.columns.push_back({"counted_bytes", "bytes, counted by ncu"});
  if (timed) table.columns.push_back({"bench_seconds", "time in the step"});
  for (size_t k = 0; k < metrics.after.size(); ++k) {
    std::vector<Cell> row = launch_row(metrics, k);
    if (counted) row.push_back(bytes_cell(artefacts.counted_bytes[k]));
    if (timed) row.push_back(seconds_cell(artefacts.bench_seconds[k]));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<std::string> layouts_in(const StepPlan& plan, const PlanLaunch& launch, size_t from, size_t to) {
  std::vector<std::string> texts;
  for (size_t k = from; k < std::min(to, launch.buffers.size()); ++k) {
    if (launch.buffers[k] == kNoBuffer) {
      texts.emplace_back("a mask, regenerated");
      continue;
    }
    const PlanBuffer& buffer = plan.buffers[as_index(launch.buffers[k])];
    texts.push_back(concat(buffer.tensor, " ", buffer.layout));
  }
  return texts;
}

DataTable path_table(const ReportArtefacts& artefacts) {
  DataTable table{
      "path",
      "The selected path: every launch in order, the layouts that it reads and writes (axes outermost first), "
      "and its implementation.",
      {{"launch", "launch", false},
       {"pass", "pass", false},
       {"reads", "reads", false},
       {"writes", "writes", false},
       {"seconds", "time"},
       {"fastest_seconds", "its fastest candidate"},
       {"implementation", "implementation", false},
       {"candidate", "candidate", false}},
      {},
      true};
  const CandidateWords words(artefacts.training.graph, artefacts.candidates);
  std::map<std::string, const Partition*> partitions;
  for (const PartitionCandidates& candidates : artefacts.candidates.partitions)
    partitions[candidates.partition.name] = &candidates.partition;
  std::map<std::string, double> fastest;
  for (const MeasuredPartition& partition : artefacts.measurements.partitions) {
    for (const MeasuredCandidate& candidate : partition.candidates) {
      const auto [known, fresh] = fastest.try_emplace(partition.name, candidate.seconds);
      if (!fresh) known->second = std::min(known->second, candidate.seconds);
    }
  }
  for (const PlanLaunch& launch : artefacts.plan.launches) {
    const auto partition = partitions.find(launch.partition);
    const size_t reads = partition != partitions.end() ? partition->second->reads.size() : 1;
    table.rows.push_back({name_of(launch), name_of(launch.pass),
                          join(layouts_in(artefacts.plan, launch, 0, reads), ", "),
                          join(layouts_in(artefacts.plan, launch, reads, launch.buffers.size()), ", "),
                          seconds_cell(launch.predicted_seconds),
                          seconds_cell(fastest.contains(launch.partition) ? fastest[launch.partition] : 0),
                          launch.partition.empty() ? "layout conversion" : words.of(launch.partition, launch.candidate),
                          launch.candidate});
  }
  return table;
}

DataTable layout_table(const ReportArtefacts& artefacts) {
  DataTable table{
      "layouts",
      "Why each tensor has its layout. The times are those of all launches that touch the tensor, each with its "
      "fastest candidate for that layout, whatever the layouts of its other tensors: the least that a layout can cost.",
      {{"tensor", "tensor", false},
       {"layout", "layout", false},
       {"also", "also as", false},
       {"launches", "launches"},
       {"seconds", "at best"},
       {"other", "best other layout", false},
       {"other_seconds", "at best"},
       {"why", "why", false}},
      {},
      true};
  const auto time = [](double seconds) { return seconds_cell(seconds == kNoTime ? 0 : seconds); };
  for (const LayoutReason& reason : layout_reasons(artefacts.plan, artefacts.measurements)) {
    if (reason.why.empty()) continue;
    table.rows.push_back({reason.tensor, reason.layout, reason.also,
                          Cell(concat(reason.launches), static_cast<double>(reason.launches)), time(reason.seconds),
                          reason.other, time(reason.other_seconds), reason.why});
  }
  return table;
}

DataTable conversions_table(const ReportArtefacts& artefacts) {
  DataTable table{"conversions",
                  "Layout conversions: a tensor is copied into a second layout because that costs less than "
                  "its readers would lose otherwise.",
                  {{"tensor", "tensor", false}, {"from", "from", false}, {"to", "to", false}, {"seconds", "time"}},
                  {},
                  false};
  for (const PlanLaunch& launch : artefacts.plan.launches) {
    if (launch.conversion_of.empty() || launch.buffers.size() != 2) continue;
    table.rows.push_back({launch.conversion_of, artefacts.plan.buffers[as_index(launch.buffers[0])].layout,
                          artefacts.plan.buffers[as_index(launch.buffers[1])].layout,
                          seconds_cell(launch.predicted_seconds)});
  }
  return table;
}

DataTable tried_table(const ReportArtefacts& artefacts) {
  DataTable table{
      "exploration",
      "Every partition that an alternative of the program can launch: how many candidates it has, how many were "
      "tried, and with what result.",
      {{"partition", "partition", false},
       {"candidates", "candidates"},
       {"tried", "tried"},
       {"correct", "correct"},
       {"failed", "failed"},
       {"launched", "in the plan", false}},
      {},
      true};
  std::map<std::string, const TriedPartition*> tried;
  for (const TriedPartition& partition : artefacts.exploration.partitions) tried[partition.name] = &partition;
  std::map<std::string, bool> launched;
  for (const PlanLaunch& launch : artefacts.plan.launches) launched[launch.partition] = true;
  for (const PartitionCandidates& candidates : artefacts.candidates.partitions) {
    double right = 0;
    double refused = 0;
    if (const auto found = tried.find(candidates.partition.name); found != tried.end()) {
      for (const TriedCandidate& candidate : found->second->tried) (candidate.seconds > 0 ? right : refused) += 1;
    }
    const auto count = [](double number) { return Cell(with_commas(number), number); };
    table.rows.push_back({candidates.partition.name, count(candidates.configurations), count(right + refused),
                          count(right), count(refused),
                          Cell(launched.contains(candidates.partition.name) ? "yes" : "no")});
  }
  return table;
}

std::string tried_line(const Exploration& exploration) {
  const std::string outcomes = outcomes_text(exploration);
  return concat(with_commas(exploration.tried + exploration.known), " of ",
                with_commas(exploration.configurations + exploration.conversions), " candidates were tried",
                outcomes.empty() ? "" : concat(": ", outcomes));
}

DataTable refused_table(const ReportArtefacts& artefacts) {
  DataTable table{"refused",
                  "Candidates that were tried and failed: their results were wrong, or they did not run.",
                  {{"partition", "partition", false},
                   {"implementation", "implementation", false},
                   {"outcome", "outcome", false},
                   {"detail", "why", false},
                   {"candidate", "candidate", false}},
                  {},
                  true};
  const CandidateWords words(artefacts.training.graph, artefacts.candidates);
  for (const TriedPartition& partition : artefacts.exploration.partitions) {
    for (const TriedCandidate& candidate : partition.tried) {
      if (candidate.seconds <= 0)
        table.rows.push_back({partition.name, words.of(partition.name, candidate.candidate), candidate.outcome,
                              candidate.detail, candidate.candidate});
    }
  }
  return table;
}

DataTable rejected_table(const ReportArtefacts& artefacts) {
  DataTable table{"rejected",
                  "Combinations that were rejected before they became candidates, and why.",
                  {{"partition", "partition", false}, {"count", "combinations"}, {"reason", "why", false}},
                  {},
                  true};
  for (const PartitionCandidates& candidates : artefacts.candidates.partitions) {
    for (const Rejected& rejected : candidates.rejected)
      table.rows.push_back(
          {candidates.partition.name, Cell(with_commas(rejected.count), rejected.count), rejected.reason});
  }
  for (const Rejected& rejected : artefacts.candidates.rejected)
    table.rows.push_back(
        {std::string("(an alternative)"), Cell(with_commas(rejected.count), rejected.count), rejected.reason});
  return table;
}

DataTable buffers_table(const ReportArtefacts& artefacts) {
  DataTable table{"buffers",
                  "Every buffer of the plan. The caller's buffers are outside the arena.",
                  {{"tensor", "tensor", false},
                   {"layout", "layout", false},
                   {"place", "place", false},
                   {"bytes", "size"},
                   {"offset", "offset"},
                   {"first", "first launch"},
                   {"last", "last launch"}},
                  {},
                  true};
  for (const PlanBuffer& buffer : artefacts.plan.buffers) {
    const auto number = [](int64_t value) { return Cell(concat(value), static_cast<double>(value)); };
    table.rows.push_back({buffer.tensor, buffer.layout, std::string(name_of(buffer.location)),
                          Cell(short_bytes(static_cast<double>(buffer.bytes)), static_cast<double>(buffer.bytes)),
                          buffer.location == BufferLocation::arena ? number(buffer.offset) : Cell("–"),
                          buffer.first < 0 ? Cell("–") : number(buffer.first + 1),
                          buffer.last < 0 ? Cell("–") : number(buffer.last + 1)});
  }
  return table;
}

DataTable traffic_table(const std::vector<TensorTraffic>& traffic) {
  DataTable table{"traffic",
                  "The bytes that the launches of a step move of each tensor, most first.",
                  {{"tensor", "tensor", false},
                   {"bytes", "moved"},
                   {"read_bytes", "read"},
                   {"written_bytes", "written"},
                   {"reads", "launches that read it"},
                   {"writes", "launches that write it"},
                   {"percent", "% of all"}},
                  {},
                  true};
  double all = 0;
  for (const TensorTraffic& tensor : traffic) all += static_cast<double>(tensor.bytes());
  const auto bytes = [](int64_t count) {
    return Cell(short_bytes(static_cast<double>(count)), static_cast<double>(count));
  };
  for (const TensorTraffic& tensor : traffic)
    table.rows.push_back({tensor.tensor, bytes(tensor.bytes()), bytes(tensor.read_bytes), bytes(tensor.written_bytes),
                          Cell(concat(tensor.reads), tensor.reads), Cell(concat(tensor.writes), tensor.writes),
                          percent_cell(all > 0 ? static_cast<double>(tensor.bytes()) / all : 0)});
  return table;
}

}  // namespace

Cell seconds_cell(double seconds) { return seconds > 0 ? Cell(shown_seconds(seconds), seconds) : Cell("–"); }

Section dataflow_section(const ReportArtefacts& artefacts, const StepMetrics& metrics) {
  Section section{
      "dataflow",
      "The dataflow, before and after",
      "A training step as a graph. Boxes are operators, before, or launches, after. Lines are tensors that go through "
      "memory. The numbers in a box are its flop per word, the words that it moves and its time: an operator with few "
      "flop per word is bound by memory, however fast the machine computes. Fusion makes boxes larger and lines fewer: "
      "values inside a box never go to memory. Select a box or a line: its details, its layouts and the source of its "
      "kernel appear beside the graph, and its rows in the tables are marked.",
      {}};
  GraphLayout layout;
  section.add(dataflow_picture(artefacts, metrics, FlowOf::launches, Pass::forward, layout));
  section.add(dataflow_picture(artefacts, metrics, FlowOf::launches, Pass::backward, layout));
  section.add(dataflow_picture(artefacts, metrics, FlowOf::operators, Pass::forward, layout));
  section.add(dataflow_picture(artefacts, metrics, FlowOf::operators, Pass::backward, layout));
  section.add(layout.note());
  const std::vector<TensorTraffic> traffic = tensor_traffic(artefacts.plan, artefacts.candidates);
  section.add(traffic_picture(traffic));
  section.add(traffic_table(traffic));
  return section;
}

Section operators_section(const ReportArtefacts& artefacts, const StepMetrics& metrics) {
  Section section{
      "operators",
      "All operators",
      concat(
          "% of peak is an operator's flop per second against the most that any candidate reached here (",
          short_count(metrics.peaks.flop_per_second),
          "flop/s). MUE, the paper's memory usage efficiency, is the words "
          "that any implementation must move over those that this one moves, times the bandwidth that it reaches over "
          "the highest seen here (",
          short_bytes(metrics.peaks.bytes_per_second),
          "/s): 100 % means that no word moves needlessly and memory is never idle. The moved words are "
          "modelled from tensors and cache, not counted by hardware. \"Limited by\" says which limit, arithmetic "
          "or memory, explains more of the time, and how much of it; the rest is overhead."),
      {}};
  section.add(timeline_picture(metrics));
  section.add(launches_table(artefacts, metrics));
  section.add(operators_table(artefacts, metrics));
  return section;
}

Section roofline_section(const ReportArtefacts& artefacts, const StepMetrics& metrics) {
  Section section{"roofline",
                  "Roofline",
                  "How fast each operator computes (upwards) against how much it computes per byte that it moves (to "
                  "the right). Nothing can be above the roof: memory limits what is below its slope, and arithmetic "
                  "limits what is below its flat part. "
                  "Fusion moves operators to the right, a better layout moves them up. Copies compute nothing and are "
                  "not drawn.",
                  {}};
  if (metrics.peaks.flop_per_second > 0) {
    section.add(roofline_picture(artefacts, metrics));
  } else {
    section.add("No launch was timed alone, so no rates are known: a larger --budget times them.");
  }
  return section;
}

Section selection_section(const ReportArtefacts& artefacts) {
  const StepPlan& plan = artefacts.plan;
  Section section{
      "selection",
      "The selection",
      concat("An operator's fastest candidate may need a tensor in a layout (order of its axes in memory) that makes "
             "its neighbours slow. Selection picks one measured candidate for every launch, and the layouts of every "
             "tensor, so that the whole step costs least. It costs ",
             shown_seconds(plan.cost), "; if layouts did not have to agree, it would cost ", shown_seconds(plan.bound),
             artefacts.method.empty() ? "" : concat(" (", artefacts.method, ")"), "."),
      {}};
  section.add(selection_picture(artefacts));
  DataTable conversions = conversions_table(artefacts);
  if (conversions.rows.empty()) section.add("There is no layout conversion: all launches agree on the layouts.");
  section.add(std::move(conversions));
  section.add(layout_table(artefacts));
  section.add(path_table(artefacts));
  return section;
}

Section memory_section(const ReportArtefacts& artefacts) {
  Section section{"memory",
                  "Memory over the step",
                  "All temporaries share one block of memory, the arena. A tensor occupies its bytes from the first "
                  "launch that touches it to the last; other tensors use the same bytes before and after.",
                  {}};
  section.add(live_picture(artefacts.plan));
  section.add(memory_picture(artefacts));
  section.add(buffers_table(artefacts));
  return section;
}

// Follows another sentence.
static std::string certificate_sentence(const Exploration& exploration) {
  std::string line = certificate_line(exploration);
  if (line.empty()) return "";
  line[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(line[0])));
  return concat(" ", line, ".");
}

Section exploration_section(const ReportArtefacts& artefacts) {
  Section section{
      "exploration",
      "What was explored",
      concat("A candidate is one implementation of one partition of the step, with given layouts of its tensors. Each "
             "one was first checked against a reference, then timed. ",
             tried_line(artefacts.exploration), ".", certificate_sentence(artefacts.exploration)),
      {}};
  section.add(tried_table(artefacts));
  DataTable refused = refused_table(artefacts);
  if (refused.rows.empty()) section.add("No candidate that was tried failed.");
  section.add(std::move(refused));
  section.add(rejected_table(artefacts));
  return section;
}

}  // namespace millrace
