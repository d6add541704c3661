#include "oracle/task_maker.h"

namespace millrace {

Walk row_major(const std::vector<int64_t>& extents, const std::vector<size_t>& indices) {
  Walk walk{std::vector<int64_t>(extents.size(), 0), 0};
  int64_t stride = 1;
  for (size_t k = indices.size(); k-- > 0;) {
    walk.strides[indices[k]] = stride;
    stride *= extents[indices[k]];
  }
  return walk;
}

int64_t points_of(const std::vector<int64_t>& extents, const std::vector<size_t>& indices) {
  int64_t points = 1;
  for (const size_t index : indices) points *= extents[index];
  return points;
}

oracle::Task make_task(int formula, const std::vector<int64_t>& extents, const std::vector<size_t>& outer,
                       const std::vector<size_t>& inner, const std::vector<Walk>& inputs,
                       const std::vector<Walk>& outputs) {
  oracle::Task task{};
  task.formula = formula;
  task.inputs = static_cast<int>(inputs.size());
  task.outputs = static_cast<int>(outputs.size());
  task.outer = static_cast<int>(outer.size());
  task.indices = static_cast<int>(outer.size() + inner.size());
  task.points = points_of(extents, outer);
  task.length = points_of(extents, inner);
  std::vector<size_t> order = outer;
  order.insert(order.end(), inner.begin(), inner.end());
  for (size_t k = 0; k < order.size(); ++k) task.extents[k] = extents[order[k]];
  const auto place = [&](const Walk& walk, oracle::Operand& operand) {
    operand.first = walk.first;
    for (size_t k = 0; k < order.size(); ++k) operand.strides[k] = walk.strides[order[k]];
  };
  for (size_t k = 0; k < inputs.size(); ++k) place(inputs[k], task.in[k]);
  for (size_t k = 0; k < outputs.size(); ++k) place(outputs[k], task.out[k]);
  return task;
}

oracle::Task make_flat_task(int formula, int64_t elements, size_t inputs, size_t outputs) {
  const Walk walk{{1}, 0};
  return make_task(formula, {elements}, {0}, {}, std::vector<Walk>(inputs, walk), std::vector<Walk>(outputs, walk));
}

}  // namespace millrace
