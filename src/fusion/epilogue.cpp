#include <algorithm>

#include "base/text.h"
#include "fusion/alternatives.h"
#include "ir/label.h"

namespace millrace {
namespace {

bool is_epilogue(const Graph& graph, const Operator& op) {
  switch (op.kind) {
    case OperatorKind::relu:
    case OperatorKind::gelu:
    case OperatorKind::gelu_tanh:
    case OperatorKind::relu_dx:
    case OperatorKind::gelu_dx:
    case OperatorKind::gelu_tanh_dx: return true;
    case OperatorKind::add: {
      const std::string_view label = label_of(graph, op);
      return label == "bias" || label == "residual";
    }
    default: return false;
  }
}

// Follows the result of a contraction through maps that keep its shape; each prefix of the chain is an alternative.
void follow(const Neighbourhood& near, OperatorId contraction, std::vector<Epilogue>& found) {
  Epilogue epilogue;
  epilogue.contraction = contraction;
  TensorId tensor = near.op(contraction).outputs[0].tensor;
  while (true) {
    std::vector<OperatorId> here;
    bool kept = false;  // the other pass reads it, so it is written anyway
    for (const OperatorId reader : near.readers[tensor.at()]) {
      if (near.op(reader).pass == near.op(contraction).pass) {
        here.push_back(reader);
      } else {
        kept = true;
      }
    }
    if (here.size() != 1 || near.leaves[tensor.at()] || !is_epilogue(near.graph, near.op(here[0]))) return;
    const Operator& op = near.op(here[0]);
    const auto use =
        std::find_if(op.inputs.begin(), op.inputs.end(), [&](const Access& input) { return input.tensor == tensor; });
    if (!is_whole(near.graph, op, *use) || !is_whole(near.graph, op, op.outputs[0])) return;
    epilogue.absorbed.push_back(here[0]);
    epilogue.name += concat(epilogue.name.empty() ? "" : "-", label_of(near.graph, op));
    epilogue.words_saved += words_of(near.graph, tensor) * (kept ? 1 : 2);
    found.push_back(epilogue);
    if (label_of(near.graph, op) == "residual") return;  // a product adds one tensor, as its last operation
    tensor = op.outputs[0].tensor;
  }
}

// A bias's gradient is a sum of one operand of the weight's gradient, over the same indices that this contraction sums
// over.
void find_bias_gradients(const Neighbourhood& near, OperatorId contraction, std::vector<Epilogue>& found) {
  const Operator& product = near.op(contraction);
  for (size_t side : {0U, 1U}) {
    const Access& operand = product.inputs[side];
    for (const OperatorId reader : near.readers[operand.tensor.at()]) {
      const Operator& op = near.op(reader);
      if (op.kind != OperatorKind::sum || op.pass != product.pass) continue;
      bool fits = is_plain(near.graph, product, operand) && is_plain(near.graph, op, op.inputs[0]);
      for (size_t axis = 0; axis < operand.axes.size(); ++axis) {
        const int in_product = operand.axes[axis].index();
        const int in_sum = op.inputs[0].axes[axis].index();
        if (in_product == kFixed || in_sum == kFixed) continue;
        fits = fits && product.reduced[as_index(in_product)] == op.reduced[as_index(in_sum)];
      }
      if (fits) found.push_back({contraction, {reader}, "bias_gradient", words_of(near.graph, operand.tensor)});
    }
  }
}

}  // namespace

std::vector<Epilogue> find_epilogues(const Neighbourhood& near) {
  std::vector<Epilogue> found;
  for (size_t k = 0; k < near.graph.operators.size(); ++k) {
    if (!near.is_contraction(OperatorId(k))) continue;
    follow(near, OperatorId(k), found);
    find_bias_gradients(near, OperatorId(k), found);
  }
  return found;
}

}  // namespace millrace
