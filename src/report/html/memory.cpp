#include <algorithm>

#include "base/text.h"
#include "report/html/pictures.h"
#include "report/html/svg.h"

namespace millrace {
namespace {

constexpr double kMemoryLeft = 84;
constexpr double kMemoryTop = 20;
constexpr double kMemoryHeight = 300;
constexpr double kMemoryWidth = 880;

}  // namespace

Picture memory_picture(const ReportArtefacts& artefacts) {
  const StepPlan& plan = artefacts.plan;
  const auto launches = static_cast<double>(std::max<size_t>(1, plan.launches.size()));
  const auto bytes = static_cast<double>(std::max<int64_t>(1, plan.arena_bytes));
  const double across = (kMemoryWidth - kMemoryLeft - 10) / launches;
  const auto y = [&](int64_t offset) {
    return kMemoryTop + kMemoryHeight - kMemoryHeight * static_cast<double>(offset) / bytes;
  };
  Svg svg(kMemoryWidth, kMemoryTop + kMemoryHeight + 40, "the arena, launch by launch");
  if (plan.arena_bytes == 0)
    svg.text({kMemoryLeft, kMemoryTop + kMemoryHeight / 2}, "nothing: all that the step writes is the caller's",
             "label");
  constexpr int kMemoryTicks = 5;
  int64_t tick = 1;  // a power of two, so that bytes are round in their units
  while (tick * kMemoryTicks < plan.arena_bytes) tick *= 2;
  for (int64_t offset = 0; offset <= plan.arena_bytes && plan.arena_bytes > 0; offset += tick) {
    svg.line({kMemoryLeft, y(offset)}, {kMemoryWidth - 10, y(offset)}, "grid");
    svg.text({kMemoryLeft - 6, y(offset) + 4}, short_bytes(static_cast<double>(offset)), "label", "end");
  }
  for (size_t k = 1; k < plan.launches.size(); ++k) {
    if (plan.launches[k].pass == plan.launches[k - 1].pass) continue;
    const double x = kMemoryLeft + across * static_cast<double>(k);
    svg.line({x, kMemoryTop - 6}, {x, kMemoryTop + kMemoryHeight}, "fastest", 1.5, "backward begins here");
  }
  for (const PlanBuffer& buffer : plan.buffers) {
    if (buffer.location != BufferLocation::arena || buffer.first < 0) continue;
    const bool crosses = plan.launches[as_index(buffer.first)].pass != plan.launches[as_index(buffer.last)].pass;
    const double left = kMemoryLeft + across * buffer.first;
    const double width = across * (buffer.last - buffer.first + 1);
    const double top = y(buffer.offset + buffer.bytes);
    const double height = y(buffer.offset) - top;
    svg.rectangle(
        {left, top}, width, height, crosses ? "buffer kept" : "buffer",
        concat(buffer.tensor, " as ", buffer.layout, ": ", short_bytes(static_cast<double>(buffer.bytes)), "\nfrom ",
               name_of(plan.launches[as_index(buffer.first)]), " to ", name_of(plan.launches[as_index(buffer.last)])));
    const auto room = static_cast<size_t>(std::max(0.0, (width - 6) / 7));
    if (height >= 13 && room >= 4)
      svg.text({left + width / 2, top + height / 2 + 4}, shortened(buffer.tensor, room), "label on-node", "middle");
  }
  if (plan.scratch_bytes > 0) {
    svg.rectangle({kMemoryLeft, y(plan.arena_bytes)}, kMemoryWidth - 10 - kMemoryLeft,
                  y(plan.scratch_offset) - y(plan.arena_bytes), "scratch",
                  concat("scratch that launches share: ", short_bytes(static_cast<double>(plan.scratch_bytes))));
  }
  svg.text({kMemoryLeft, kMemoryTop + kMemoryHeight + 20}, concat("launches of a step: 1 to ", plan.launches.size()),
           "label");
  return {"memory",
          concat("Each box is a tensor in the arena. It extends from the launch that first touches it to the "
                 "last one; its height shows its bytes. Without reuse they would take ",
                 short_bytes(static_cast<double>(plan.sum_bytes)), "; the arena takes ",
                 short_bytes(static_cast<double>(plan.arena_bytes)),
                 plan.scratch_bytes > 0 ? concat(", of which ", short_bytes(static_cast<double>(plan.scratch_bytes)),
                                                 " are scratch space of running launches")
                                        : "",
                 "."),
          std::move(svg).finish(),
          false,
          {{LegendItem::Shape::box, "buffer kept", "saved by forward for backward"},
           {LegendItem::Shape::box, "buffer", "temporary of one pass"},
           {LegendItem::Shape::box, "scratch", "scratch space of running launches"},
           {LegendItem::Shape::bar, "fastest", "backward begins"}}};
}

}  // namespace millrace
