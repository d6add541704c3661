#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "base/position.h"
#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/legend.h"
#include "report/html/pictures.h"
#include "report/html/svg.h"

namespace millrace {
namespace {

constexpr double kColumn = 20;
constexpr double kGraphRow = 13;
constexpr double kGraphLeft = 20;
constexpr double kGraphTop = 16;
constexpr double kNames = 172;
constexpr size_t kMostRows = 26;  // the layouts of a mask with four axes

// Tensors in the order in which launches write them.
struct Written {
  int tensor = 0;  // index in the measurements
  std::string writer;
  bool backward = false;
  std::vector<double> fastest;  // of the writer for each layout; infinite: not measured
  std::vector<int> taken;       // the layouts that it has: as written, then as converted
  std::vector<int> drawn;       // layouts, from top to bottom

  bool is_taken(int layout) const { return std::find(taken.begin(), taken.end(), layout) != taken.end(); }
};

// All layouts, or if there are many, the selected and the fastest ones.
std::vector<int> drawn_layouts(const Written& written) {
  std::vector<int> layouts(written.fastest.size());
  std::iota(layouts.begin(), layouts.end(), 0);
  if (layouts.size() <= kMostRows) return layouts;
  const auto key = [&](int layout) {
    return std::tuple(!written.is_taken(layout), written.fastest[as_index(layout)], layout);
  };
  std::sort(layouts.begin(), layouts.end(), [&](int l, int r) { return key(l) < key(r); });
  layouts.resize(kMostRows - 1);  // one row says that there are more
  std::sort(layouts.begin(), layouts.end());
  return layouts;
}

std::vector<Written> written_tensors(const ReportArtefacts& artefacts) {
  const Measurements& measurements = artefacts.measurements;
  std::map<std::string, const MeasuredPartition*> partitions;
  for (const MeasuredPartition& partition : measurements.partitions) partitions[partition.name] = &partition;
  std::vector<Written> list;
  for (const PlanLaunch& launch : artefacts.plan.launches) {
    const auto partition = partitions.find(launch.partition);
    if (launch.partition.empty() || partition == partitions.end()) continue;
    for (size_t k = 0; k < partition->second->writes.size(); ++k) {
      Written written;
      written.tensor = partition->second->writes[k];
      written.writer = launch.partition;
      written.backward = launch.pass == Pass::backward;
      const MeasuredTensor& tensor = measurements.tensors[as_index(written.tensor)];
      written.fastest.assign(tensor.layouts.size(), std::numeric_limits<double>::infinity());
      for (const MeasuredCandidate& candidate : partition->second->candidates) {
        double& best = written.fastest[as_index(candidate.layouts[partition->second->reads.size() + k])];
        best = std::min(best, candidate.seconds);
      }
      for (const PlanBuffer& buffer : artefacts.plan.buffers) {
        const auto layout = std::find(tensor.layouts.begin(), tensor.layouts.end(), buffer.layout);
        if (buffer.tensor == tensor.name && layout != tensor.layouts.end())
          written.taken.push_back(static_cast<int>(layout - tensor.layouts.begin()));
      }
      written.drawn = drawn_layouts(written);
      list.push_back(std::move(written));
    }
  }
  return list;
}

// How much slower the writer is for a layout than for its best one.
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
  for (const Written& written : list) most = std::max(most, std::min(kMostRows, written.fastest.size()));
  const double feet = kGraphTop + kGraphRow * static_cast<double>(most);
  Svg svg(kGraphLeft * 2 + kColumn * static_cast<double>(std::max<size_t>(1, list.size())), feet + kNames,
          "layouts of every written tensor, and the selected path through them");
  const auto in_row = [&](size_t column, size_t row) {
    return Point{kGraphLeft + kColumn * (static_cast<double>(column) + 0.5),
                 kGraphTop + kGraphRow * (static_cast<double>(row) + 0.5)};
  };
  const auto place = [&](size_t column, int layout) {
    const std::vector<int>& drawn = list[column].drawn;
    return in_row(column, position_in(drawn, layout));
  };
  for (size_t k = 0; k < list.size(); ++k) {
    const double x = in_row(k, 0).x;
    if (k > 0 && list[k].backward && !list[k - 1].backward)
      svg.line({x - kColumn / 2, 4}, {x - kColumn / 2, feet + kNames - 4}, "fastest", 1.5, "backward begins here");
    if (k > 0 && !list[k].taken.empty() && !list[k - 1].taken.empty())
      svg.line(place(k - 1, list[k - 1].taken[0]), place(k, list[k].taken[0]), "path", 2);
    for (size_t more = 1; more < list[k].taken.size(); ++more)
      svg.line(place(k, list[k].taken[0]), place(k, list[k].taken[more]), "converted", 3,
               concat("converted once more, to ",
                      artefacts.measurements.tensors[as_index(list[k].tensor)].layouts[as_index(list[k].taken[more])]));
  }
  for (size_t k = 0; k < list.size(); ++k) {
    const Written& written = list[k];
    const MeasuredTensor& tensor = artefacts.measurements.tensors[as_index(written.tensor)];
    const double best = *std::min_element(written.fastest.begin(), written.fastest.end());
    for (const int drawn : written.drawn) {
      const auto layout = static_cast<size_t>(drawn);
      const double times = written.fastest[layout] / best;
      const bool taken = written.is_taken(drawn);
      svg.circle(
          place(k, drawn), taken ? 5.5 : 3.5, concat(shade_of(times), taken ? " taken" : ""),
          concat(tensor.name, " as ", tensor.layouts[layout], taken ? ": selected" : "", "\n", written.writer, ": ",
                 std::isfinite(times)
                     ? concat(shown_seconds(written.fastest[layout]), ", ", fixed(times, 2), " times its fastest")
                     : std::string("no candidate was measured for it")));
    }
    if (written.drawn.size() < written.fastest.size())
      svg.text({in_row(k, 0).x, in_row(k, written.drawn.size()).y + 4}, "⋮", "label", "middle");
    const std::string taken = written.taken.empty() ? "" : tensor.layouts[as_index(written.taken[0])];
    svg.text({in_row(k, 0).x + 4, feet + 8}, shortened(concat(tensor.name, "  ", taken), 22), "label", "end", -90);
  }
  Picture picture{"selection",
                  "One column per tensor, in the order in which the step writes them; one dot per layout. A dot's "
                  "colour shows how much longer the launch that writes the tensor takes for this layout than for its "
                  "best one. Below are the selected layouts. Three dots stand for further layouts, slower or not "
                  "measured. Right of the long vertical line is the backward pass.",
                  std::move(svg).finish(), false};
  using Shape = LegendItem::Shape;
  picture.legend = {{Shape::disc, "dot best", "at most 1.05 times its fastest"},
                    {Shape::disc, "dot good", "below 1.5 times"},
                    {Shape::disc, "dot fair", "below 3 times"},
                    {Shape::disc, "dot poor", "3 times or more"},
                    {Shape::disc, "dot none", "not measured"},
                    {Shape::disc, "dot best taken", "thick edge: selected"},
                    {Shape::line, "path", "from one selected layout to the next"},
                    {Shape::line, "converted", "layout conversion"}};
  return picture;
}

}  // namespace millrace
