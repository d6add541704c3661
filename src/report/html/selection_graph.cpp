#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/pictures.h"
#include "report/html/svg.h"

namespace millrace {
namespace {

constexpr double kColumn = 20;
constexpr double kGraphRow = 13;
constexpr double kGraphLeft = 20;
constexpr double kGraphTop = 16;
constexpr double kNames = 172;

// A tensor in the order in which launches write it.
struct Written {
  int tensor = 0;  // of the measurements
  std::string writer;
  bool backward = false;
  std::vector<double> fastest;  // of the writer for each layout; infinite: no way
  std::vector<int> taken;       // layouts that it lies in: as written, then as converted
};

std::vector<Written> written_tensors(const ReportArtefacts& of) {
  const Measurements& measurements = of.measurements;
  std::map<std::string, const MeasuredPart*> parts;
  for (const MeasuredPart& part : measurements.parts) parts[part.name] = &part;
  std::vector<Written> list;
  for (const PlanLaunch& launch : of.plan.launches) {
    const auto part = parts.find(launch.part);
    if (launch.part.empty() || part == parts.end()) continue;
    for (size_t k = 0; k < part->second->writes.size(); ++k) {
      Written written;
      written.tensor = part->second->writes[k];
      written.writer = launch.part;
      written.backward = launch.pass == Pass::backward;
      const MeasuredTensor& tensor = measurements.tensors[static_cast<size_t>(written.tensor)];
      written.fastest.assign(tensor.layouts.size(), std::numeric_limits<double>::infinity());
      for (const MeasuredWay& way : part->second->ways) {
        double& best = written.fastest[static_cast<size_t>(way.layouts[part->second->reads.size() + k])];
        best = std::min(best, way.seconds);
      }
      for (const PlanBuffer& buffer : of.plan.buffers) {
        const auto layout = std::find(tensor.layouts.begin(), tensor.layouts.end(), buffer.layout);
        if (buffer.tensor == tensor.name && layout != tensor.layouts.end())
          written.taken.push_back(static_cast<int>(layout - tensor.layouts.begin()));
      }
      list.push_back(std::move(written));
    }
  }
  return list;
}

// By how much slower the writer is for a layout than for its best one.
std::string shade_of(double times) {
  if (!std::isfinite(times)) return "dot none";
  if (times < 1.05) return "dot best";
  if (times < 1.5) return "dot good";
  return times < 3 ? "dot fair" : "dot poor";
}

}  // namespace

Picture selection_picture(const ReportArtefacts& artefacts) {
  const std::vector<Written> list = written_tensors(artefacts);
  size_t most = 1;
  for (const Written& written : list) most = std::max(most, written.fastest.size());
  const double feet = kGraphTop + kGraphRow * static_cast<double>(most);
  Svg svg(kGraphLeft * 2 + kColumn * static_cast<double>(std::max<size_t>(1, list.size())), feet + kNames,
          "layouts of every tensor that is written, and the path through them");
  const auto place = [&](size_t column, int layout) {
    return Point{kGraphLeft + kColumn * (static_cast<double>(column) + 0.5),
                 kGraphTop + kGraphRow * (static_cast<double>(layout) + 0.5)};
  };
  for (size_t k = 0; k < list.size(); ++k) {
    const double x = place(k, 0).x;
    if (k > 0 && list[k].backward && !list[k - 1].backward)
      svg.line({x - kColumn / 2, 4}, {x - kColumn / 2, feet + kNames - 4}, "fastest", 1.5, "backward begins here");
    if (k > 0 && !list[k].taken.empty() && !list[k - 1].taken.empty())
      svg.line(place(k - 1, list[k - 1].taken[0]), place(k, list[k].taken[0]), "path", 2);
    for (size_t more = 1; more < list[k].taken.size(); ++more)
      svg.line(place(k, list[k].taken[0]), place(k, list[k].taken[more]), "converted", 3,
               concat("converted once more, to ", artefacts.measurements.tensors[static_cast<size_t>(list[k].tensor)]
                                                      .layouts[static_cast<size_t>(list[k].taken[more])]));
  }
  for (size_t k = 0; k < list.size(); ++k) {
    const Written& written = list[k];
    const MeasuredTensor& tensor = artefacts.measurements.tensors[static_cast<size_t>(written.tensor)];
    const double best = *std::min_element(written.fastest.begin(), written.fastest.end());
    for (size_t layout = 0; layout < written.fastest.size(); ++layout) {
      const double times = written.fastest[layout] / best;
      const bool taken =
          std::find(written.taken.begin(), written.taken.end(), static_cast<int>(layout)) != written.taken.end();
      svg.circle(place(k, static_cast<int>(layout)), taken ? 5.5 : 3.5, concat(shade_of(times), taken ? " taken" : ""),
                 concat(tensor.name, " as ", tensor.layouts[layout], taken ? ": taken" : "", "\n", written.writer, ": ",
                        std::isfinite(times) ? concat(shown_seconds(written.fastest[layout]), ", ", fixed(times, 2),
                                                      " times its fastest")
                                             : std::string("no way was measured for it")));
    }
    const std::string taken = written.taken.empty() ? "" : tensor.layouts[static_cast<size_t>(written.taken[0])];
    svg.text({place(k, 0).x + 4, feet + 8}, shortened(concat(tensor.name, "  ", taken), 22), "label", "end", -90);
  }
  return {"selection",
          "One column a tensor, in the order in which the step writes them; one dot a layout. A dot's colour says how "
          "much slower the operator that writes the tensor is for this layout than for its best one: green at most 5 % "
          "slower, then sky blue, orange (from 1.5 times) and red (from 3 times); an empty ring was not measured. The "
          "line goes through the layouts that were selected; a thick vertical piece is a conversion.",
          std::move(svg).finish(), false};
}

}  // namespace millrace
