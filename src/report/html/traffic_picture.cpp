#include <algorithm>

#include "base/text.h"
#include "report/html/pictures.h"
#include "report/html/svg.h"

namespace millrace {
namespace {

constexpr double kTrafficWidth = 880;
constexpr double kTrafficLeft = 190;  // where bars begin
constexpr double kTrafficRight = 770;
constexpr double kTrafficRow = 22;
constexpr size_t kMostTensors = 12;
constexpr size_t kNameLetters = 25;

void draw_bar(Svg& svg, const TensorTraffic& tensor, double top, double scale) {
  const double read = scale * static_cast<double>(tensor.read_bytes);
  const double written = scale * static_cast<double>(tensor.written_bytes);
  svg.text({kTrafficLeft - 6, top + 13}, shortened(tensor.tensor, kNameLetters), "label", "end");
  svg.rectangle({kTrafficLeft, top + 2}, read, kTrafficRow - 6, "buffer",
                concat(tensor.tensor, ": ", short_bytes(static_cast<double>(tensor.read_bytes)), " read by ",
                       tensor.reads, " launches"));
  svg.rectangle({kTrafficLeft + read, top + 2}, written, kTrafficRow - 6, "buffer kept",
                concat(tensor.tensor, ": ", short_bytes(static_cast<double>(tensor.written_bytes)), " written by ",
                       tensor.writes, " launches"));
  svg.text({kTrafficLeft + read + written + 6, top + 13}, short_bytes(static_cast<double>(tensor.bytes())), "label");
}

}  // namespace

Picture traffic_picture(const std::vector<TensorTraffic>& traffic) {
  const size_t shown = std::min(traffic.size(), kMostTensors);
  const double most = traffic.empty() ? 1 : std::max(1.0, static_cast<double>(traffic.front().bytes()));
  Svg svg(kTrafficWidth, 16 + kTrafficRow * static_cast<double>(std::max<size_t>(shown, 1)),
          "bytes that the launches of a step move of each tensor");
  for (size_t k = 0; k < shown; ++k)
    draw_bar(svg, traffic[k], 8 + kTrafficRow * static_cast<double>(k), (kTrafficRight - kTrafficLeft) / most);
  return {"traffic_bars",
          concat("The tensors that move most bytes. A tensor counts once for every launch "
                 "that touches it",
                 traffic.size() > shown ? concat("; the table below has all ", traffic.size()) : "", "."),
          std::move(svg).finish(),
          false,
          {{LegendItem::Shape::box, "buffer", "read"}, {LegendItem::Shape::box, "buffer kept", "written"}}};
}

}  // namespace millrace
