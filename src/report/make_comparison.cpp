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
  std::string candidate;
  int order = 0;
};

std::map<std::string, Compared> launches_of(const StepPlan& plan) {
  std::map<std::string, Compared> launches;
  for (const PlanLaunch& launch : plan.launches) {
    Compared& into = launches[name_of(launch)];
    into.seconds += launch.predicted_seconds;
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

DataTable times_table(const StepPlan& a, const StepPlan& b) {
  DataTable table{"compared_launches",
                  "Launches of both plans: those of A in order, then those that only B has.",
                  {{"launch", "launch", false},
                   {"a_seconds", "A"},
                   {"b_seconds", "B"},
                   {"ratio", "B / A"},
                   {"a_candidate", "candidate in A", false},
                   {"b_candidate", "candidate in B", false}},
                  {},
                  false};
  const std::map<std::string, Compared> in_a = launches_of(a);
  const std::map<std::string, Compared> in_b = launches_of(b);
  std::set<std::string> done;
  for (const StepPlan* plan : {&a, &b}) {
    for (const PlanLaunch& launch : plan->launches) {
      const std::string name = name_of(launch);
      if (!done.insert(name).second) continue;
      const auto of_a = in_a.find(name);
      const auto of_b = in_b.find(name);
      const double left = of_a != in_a.end() ? of_a->second.seconds : 0;
      const double right = of_b != in_b.end() ? of_b->second.seconds : 0;
      table.rows.push_back({name, seconds_cell(left), seconds_cell(right),
                            left > 0 && right > 0 ? Cell(fixed(right / left, 2), right / left) : Cell("–"),
                            of_a != in_a.end() ? of_a->second.candidate : "–",
                            of_b != in_b.end() ? of_b->second.candidate : "–"});
    }
  }
  return table;
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
  fact("step_seconds", "a step, as the sum of its launches", a.plan.cost, b.plan.cost, shown_seconds);
  fact("bound_seconds", "the lower bound, layouts ignored", a.plan.bound, b.plan.bound, shown_seconds);
  fact("launches", "launches", static_cast<double>(a.plan.launches.size()), static_cast<double>(b.plan.launches.size()),
       short_count);
  fact("arena_bytes", "arena", static_cast<double>(a.plan.arena_bytes), static_cast<double>(b.plan.arena_bytes),
       short_bytes);
  for (const auto& [name, plan] : {std::pair("A", &a.plan), std::pair("B", &b.plan)})
    document.origin.emplace_back(
        name, concat(plan->program.file, ", ", plan->device, ", millrace ", plan->version, ", ", plan->date));
  if (a.plan.version != b.plan.version)
    document.next.emplace_back("The plans were made by different versions of Millrace.");
  if (a.plan.device != b.plan.device)
    document.next.emplace_back(
        "The plans were measured on different machines, or with other libraries or threads: their times reflect that "
        "too.");
  Section times{"compared_times",
                "Times and candidates",
                "The time of every launch, measured when the plan was made. A launch that only one plan has "
                "exists because the other plan groups its operators differently.",
                {}};
  times.add(compared_timeline_picture(a.plan, b.plan));
  times.add(times_table(a.plan, b.plan));
  Section layouts{"compared_layouts", "Layouts", "The order of each tensor's axes in memory, outermost first.", {}};
  DataTable differing = layouts_table(a.plan, b.plan);
  if (differing.rows.empty()) layouts.add("All tensors have the same layouts in both.");
  layouts.add(std::move(differing));
  document.sections = {times, layouts};
  return document;
}

}  // namespace millrace
