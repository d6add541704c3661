#include "reference/contraction.h"

namespace millrace {

void OffsetTable::add(int64_t extent, const Offsets<3>& strides) {
  const std::vector<Offsets<3>> before = std::move(offsets);
  offsets.clear();
  offsets.reserve(before.size() * static_cast<size_t>(extent));
  for (const Offsets<3>& offset : before) {
    for (int64_t i = 0; i < extent; ++i)
      offsets.push_back({offset[0] + i * strides[0], offset[1] + i * strides[1], offset[2] + i * strides[2]});
  }
}

ProductTables::ProductTables(const Graph& graph, const Operator& op) {
  for (size_t index = 0; index < op.space.size(); ++index) {
    const Offsets<3> strides = {stride_along(graph, op.inputs[0], index), stride_along(graph, op.inputs[1], index),
                                stride_along(graph, op.outputs[0], index)};
    OffsetTable& table = op.reduced[index] ? inner : strides[1] == 0 ? rows : strides[0] == 0 ? columns : batches;
    table.add(graph.extent(op.space[index]), strides);
  }
}

bool is_large_product(const Graph& graph, const Operator& op) {
  constexpr int64_t kFewestPoints = 1 << 18;  // for fewer, loops are as fast, and sum in the usual order
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t inner = 1;
  for (size_t index = 0; index < op.space.size(); ++index) {
    const int64_t extent = graph.extent(op.space[index]);
    if (op.reduced[index])
      inner *= extent;
    else if (stride_along(graph, op.inputs[1], index) == 0)
      rows *= extent;
    else if (stride_along(graph, op.inputs[0], index) == 0)
      columns *= extent;
  }
  return rows >= kPanelRows && columns >= kPanelColumns && inner >= 8 && points_of(graph, op) >= kFewestPoints;
}

}  // namespace millrace
