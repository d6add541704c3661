#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/pictures.h"
#include "report/make_report.h"
#include "report/report_sections.h"

namespace millrace {
namespace {

struct Compared {
  double seconds = 0;
  bool estimated = false;
  std::string implementation;  // the candidate in words
  std::string candidate;
  int order = 0;
};

std::map<std::string, Compared> launches_of(const ComparedPlan& compared) {
  std::map<std::string, Compared> launches;
  for (const PlanLaunch& launch : compared.plan.launches) {
    Compared& into = launches[name_of(launch)];
    into.seconds += launch.predicted_seconds;
    into.estimated = into.estimated || launch.estimated;
    into.implementation =
        launch.partition.empty() ? "layout conversion" : compared.words.of(launch.partition, launch.candidate);
    into.candidate = launch.candidate;
    into.order = static_cast<int>(launches.size());
  }
  return launches;
}

std::map<std::string, std::string> layouts_of(const StepPlan& plan) {
  std::map<std::string, std::set<std::string>> sets;
  for (const PlanBuffer& buffer : plan.buffers) sets[buffer.tensor].insert(buffer.layout);
  std::map<std::string, std::string> layouts;
  for (const auto& [tensor, set] : sets) layouts[tensor] = join(set, ", ");
  return layouts;
}

// A launch in both plans, or in one.
struct ComparedRow {
  std::string name;
  const Compared* a = nullptr;
  const Compared* b = nullptr;

  double left() const { return a != nullptr ? a->seconds : 0; }
  double right() const { return b != nullptr ? b->seconds : 0; }
  bool differs() const { return a == nullptr || b == nullptr || a->candidate != b->candidate; }
};

using ComparedLaunches = std::map<std::string, Compared>;

// The largest differences of time first.
std::vector<ComparedRow> compared_rows(const ComparedLaunches& in_a, const ComparedLaunches& in_b) {
  std::vector<ComparedRow> rows;
  for (const auto& [name, launch] : in_a) {
    const auto other = in_b.find(name);
    rows.push_back({name, &launch, other != in_b.end() ? &other->second : nullptr});
  }
  for (const auto& [name, launch] : in_b) {
    if (!in_a.contains(name)) rows.push_back({name, nullptr, &launch});
  }
  const auto change = [](const ComparedRow& row) { return std::abs(row.right() - row.left()); };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const ComparedRow& l, const ComparedRow& r) { return change(l) > change(r); });
  return rows;
}

DataTable compared_table(std::string id, std::string caption) {
  return {std::move(id),
          std::move(caption),
          {{"launch", "launch", false},
           {"a_seconds", "A"},
           {"b_seconds", "B"},
           {"difference", "B − A"},
           {"ratio", "B / A"},
           {"a_implementation", "implementation in A", false},
           {"b_implementation", "implementation in B", false},
           {"a_candidate", "candidate in A", false},
           {"b_candidate", "candidate in B", false}},
          {},
          false};
}

Cell compared_seconds(const Compared* launch) {
  if (launch == nullptr) return {"–"};
  Cell cell = seconds_cell(launch->seconds);
  if (launch->estimated) cell.text = concat("~", cell.text);
  return cell;
}

std::vector<Cell> compared_cells(const ComparedRow& row) {
  const double change = row.right() - row.left();
  const bool both = row.left() > 0 && row.right() > 0;
  return {row.name,
          compared_seconds(row.a),
          compared_seconds(row.b),
          Cell(concat(change < 0 ? "−" : "+", shown_seconds(std::abs(change))), change),
          both ? Cell(fixed(row.right() / row.left(), 2), row.right() / row.left()) : Cell("–"),
          row.a != nullptr ? row.a->implementation : "–",
          row.b != nullptr ? row.b->implementation : "–",
          row.a != nullptr ? row.a->candidate : "–",
          row.b != nullptr ? row.b->candidate : "–"};
}

DataTable layouts_table(const StepPlan& a, const StepPlan& b) {
  DataTable table{"compared_layouts",
                  "Tensors whose layouts differ, or that only one plan has.",
                  {{"tensor", "tensor", false}, {"a_layouts", "in A", false}, {"b_layouts", "in B", false}},
                  {},
                  false};
  std::map<std::string, std::pair<std::string, std::string>> both;
  for (const auto& [tensor, layouts] : layouts_of(a)) both[tensor].first = layouts;
  for (const auto& [tensor, layouts] : layouts_of(b)) both[tensor].second = layouts;
  for (const auto& [tensor, layouts] : both) {
    if (layouts.first == layouts.second) continue;
    table.rows.push_back(
        {tensor, layouts.first.empty() ? "–" : layouts.first, layouts.second.empty() ? "–" : layouts.second});
  }
  return table;
}

std::string shape_of(const PlanProgram& program) {
  return concat(program.sizes.empty() ? "the program's sizes" : join(program.sizes, ", "),
                program.dtype.empty() ? "" : concat(" ", program.dtype));
}

std::string shown_time(double seconds) { return seconds > 0 ? shown_seconds(seconds) : "not measured"; }

size_t estimates_in(const StepPlan& plan) {
  return static_cast<size_t>(std::count_if(plan.launches.begin(), plan.launches.end(),
                                           [](const PlanLaunch& launch) { return launch.estimated; }));
}

// A plan with estimates was made in too short a time, so its sum may be far below a measured one.
void warn_of_estimates(const char* name, const StepPlan& plan, std::vector<NextStep>& warnings) {
  const size_t estimates = estimates_in(plan);
  if (estimates == 0) return;
  warnings.emplace_back(concat("Warning: ", estimates, " of the ", plan.launches.size(), " launches of ", name,
                               " were never timed alone. Their times, marked by ~, are estimates, and so is the sum. "
                               "Compare the measured steps, or optimize again with a larger --budget."));
}

std::vector<NextStep> warnings_of(const ComparedPlan& a, const ComparedPlan& b) {
  std::vector<NextStep> warnings;
  const PlanProgram& of_a = a.plan.program;
  const PlanProgram& of_b = b.plan.program;
  if (of_a.text != of_b.text || of_a.entry != of_b.entry)
    warnings.emplace_back(
        "Warning: these are plans of different programs. Their times are comparable only if the programs compute the "
        "same.");
  else if (of_a.sizes != of_b.sizes || of_a.dtype != of_b.dtype)
    warnings.emplace_back(concat("Warning: the plans have different sizes or storage types: ", shape_of(of_a), " and ",
                                 shape_of(of_b), "."));
  if (of_a.layouts != of_b.layouts) warnings.emplace_back("The caller's tensors have different layouts in the plans.");
  if (a.plan.version != b.plan.version) warnings.emplace_back("The plans were made by different versions of Millrace.");
  if (a.plan.device != b.plan.device)
    warnings.emplace_back(
        "The plans were measured on different machines, or with other libraries or threads: their times reflect that "
        "too.");
  warn_of_estimates("A", a.plan, warnings);
  warn_of_estimates("B", b.plan, warnings);
  if (a.step_seconds <= 0 || b.step_seconds <= 0)
    warnings.emplace_back("Not both steps were measured: millrace bench PLAN --json > PLAN/times.json measures one.");
  return warnings;
}

Section differences_section(const ComparedPlan& a, const ComparedPlan& b) {
  Section section{
      "differences",
      "What differs",
      "Launches whose candidates differ or that only one plan has, and tensors whose layouts differ. A launch "
      "that only one plan has exists because the other plan groups its operators differently.",
      {}};
  section.add(compared_timeline_picture(a.plan, b.plan));
  const ComparedLaunches in_a = launches_of(a);
  const ComparedLaunches in_b = launches_of(b);
  DataTable table = compared_table("compared_launches", "Launches that differ, the largest change of time first.");
  for (const ComparedRow& row : compared_rows(in_a, in_b)) {
    if (row.differs()) table.rows.push_back(compared_cells(row));
  }
  if (table.rows.empty()) section.add("All launches have the same candidates in both plans.");
  section.add(std::move(table));
  DataTable layouts = layouts_table(a.plan, b.plan);
  if (layouts.rows.empty()) section.add("All tensors have the same layouts in both plans.");
  section.add(std::move(layouts));
  return section;
}

Section same_section(const ComparedPlan& a, const ComparedPlan& b) {
  Section section{"same", "What is the same", "Launches that have the same candidate in both plans.", {}};
  const ComparedLaunches in_a = launches_of(a);
  const ComparedLaunches in_b = launches_of(b);
  DataTable table = compared_table("same_launches", "Their times differ only as two measurements of one launch do.");
  table.folded = true;
  for (const ComparedRow& row : compared_rows(in_a, in_b)) {
    if (!row.differs()) table.rows.push_back(compared_cells(row));
  }
  if (table.rows.empty()) section.add("There is none.");
  section.add(std::move(table));
  return section;
}

}  // namespace

Document make_comparison(const ComparedPlan& a, const ComparedPlan& b) {
  Document document;
  document.title = "Two plans side by side";
  document.before = "A";
  document.after = "B";
  document.next_title = "Keep in mind:";
  document.subtitle = concat("A: ", a.name, "; B: ", b.name);
  const auto fact = [&](const char* key, const char* title, double left, double right, const auto& show) {
    document.facts.push_back({key, title, show(left), show(right),
                              left > 0 && right > 0 ? concat("B is ", fixed(right / left, 3), " times A") : "", left,
                              right});
  };
  if (a.step_seconds > 0 || b.step_seconds > 0)
    fact("measured_step_seconds", "a step, measured", a.step_seconds, b.step_seconds, shown_time);
  fact("step_seconds", "a step, as the sum of its launches", a.plan.cost, b.plan.cost, shown_seconds);
  if (estimates_in(a.plan) + estimates_in(b.plan) == 0)  // estimates bound nothing
    fact("bound_seconds", "the lower bound, layouts ignored", a.plan.bound, b.plan.bound, shown_seconds);
  fact("launches", "launches", static_cast<double>(a.plan.launches.size()), static_cast<double>(b.plan.launches.size()),
       short_count);
  fact("arena_bytes", "arena", static_cast<double>(a.plan.arena_bytes), static_cast<double>(b.plan.arena_bytes),
       short_bytes);
  for (const auto& [name, plan] : {std::pair("A", &a.plan), std::pair("B", &b.plan)})
    document.origin.emplace_back(
        name, concat(plan->program.file, ", ", plan->device, ", millrace ", plan->version, ", ", plan->date));
  document.next = warnings_of(a, b);
  document.sections = {differences_section(a, b), same_section(a, b)};
  return document;
}

}  // namespace millrace
