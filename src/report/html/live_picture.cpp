#include <algorithm>

#include "base/text.h"
#include "report/html/pictures.h"
#include "report/html/svg.h"
#include "report/live_bytes.h"

namespace millrace {
namespace {

constexpr double kLiveWidth = 880;
constexpr double kLiveLeft = 84;
constexpr double kLiveRight = 870;
constexpr double kLiveTop = 26;
constexpr double kLiveBottom = 186;
constexpr int kLiveTicks = 4;

// Where launches and bytes are in the picture.
struct LiveScale {
  double launches;
  double most;

  double x(size_t launch) const {
    return kLiveLeft + (kLiveRight - kLiveLeft) * static_cast<double>(launch) / launches;
  }
  double y(int64_t bytes) const { return kLiveBottom - (kLiveBottom - kLiveTop) * static_cast<double>(bytes) / most; }
};

void draw_launch(Svg& svg, const LiveScale& scale, const StepPlan& plan, const LiveBytes& live, size_t k) {
  const double width = scale.x(k + 1) - scale.x(k);
  const std::string during = concat(" while ", name_of(plan.launches[k]), " runs");
  svg.rectangle({scale.x(k), scale.y(live.saved)}, width, kLiveBottom - scale.y(live.saved), "buffer kept",
                concat(short_bytes(static_cast<double>(live.saved)), " saved for backward", during));
  svg.rectangle({scale.x(k), scale.y(live.all())}, width, scale.y(live.saved) - scale.y(live.all()), "buffer",
                concat(short_bytes(static_cast<double>(live.temporary)), " of temporaries", during));
}

void draw_axis(Svg& svg, const LiveScale& scale) {
  double tick = 1;  // a power of two, so that bytes are round in their units
  while (tick * kLiveTicks < scale.most) tick *= 2;
  for (int k = 0; tick * k <= scale.most * 1.001; ++k) {
    const double y = scale.y(static_cast<int64_t>(tick * k));
    svg.line({kLiveLeft, y}, {kLiveRight, y}, "grid");
    svg.text({kLiveLeft - 6, y + 4}, short_bytes(tick * k), "label", "end");
  }
}

void draw_backward(Svg& svg, const LiveScale& scale, const StepPlan& plan) {
  const auto first = static_cast<size_t>(first_of_backward(plan));
  if (first == 0 || first >= plan.launches.size()) return;
  svg.line({scale.x(first), kLiveTop}, {scale.x(first), kLiveBottom + 6}, "fastest", 1.5, "backward begins here");
}

// The text is on the side of the line where there is room.
void draw_peak(Svg& svg, const LiveScale& scale, const StepPlan& plan, const LiveBytes& live, size_t peak) {
  const double x = scale.x(peak) + (scale.x(peak + 1) - scale.x(peak)) / 2;
  const bool left = x > (kLiveLeft + kLiveRight) / 2;
  svg.line({x, kLiveTop - 16}, {x, scale.y(live.all())}, "fastest", 1.5);
  svg.text({x + (left ? -6 : 6), kLiveTop - 8},
           concat("peak: ", short_bytes(static_cast<double>(live.all())), " in ",
                  shortened(name_of(plan.launches[peak]), 40)),
           "label strong", left ? "end" : "start");
}

}  // namespace

Picture live_picture(const StepPlan& plan) {
  const std::vector<LiveBytes> live = live_bytes(plan);
  const size_t peak = peak_of(live);
  const int64_t most = live.empty() ? 0 : live[peak].all();
  Svg svg(kLiveWidth, kLiveBottom + 30, "bytes of the arena that are alive, launch by launch");
  const LiveScale scale{static_cast<double>(std::max<size_t>(1, live.size())),
                        static_cast<double>(std::max<int64_t>(1, most))};
  if (most > 0) draw_axis(svg, scale);
  for (size_t k = 0; k < live.size(); ++k) draw_launch(svg, scale, plan, live[k], k);
  draw_backward(svg, scale, plan);
  if (most > 0) draw_peak(svg, scale, plan, live[peak], peak);
  svg.text({kLiveLeft, kLiveBottom + 20}, concat("launches of a step: 1 to ", plan.launches.size()), "label");
  return {"live_bytes",
          "Bytes that hold values while each launch runs. No arena can be smaller than the peak.",
          std::move(svg).finish(),
          false,
          {{LegendItem::Shape::box, "buffer kept", "saved by forward for backward"},
           {LegendItem::Shape::box, "buffer", "temporaries of one pass"},
           {LegendItem::Shape::bar, "fastest", "backward begins"}}};
}

}  // namespace millrace
