#include "codegen/cuda/cudnn_call.h"

namespace millrace {
namespace {

static_assert(AttentionCall::kOperands == Attention::kOperands);
static_assert(static_cast<size_t>(AttentionCall::log_sums) == static_cast<size_t>(Attention::log_sums));
static_assert(static_cast<size_t>(AttentionCall::d_v) == static_cast<size_t>(Attention::d_v));

}  // namespace

AttentionCall cudnn_call(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts) {
  const Attention& attention = partition.attention;
  const CudnnAxes axes = *cudnn_axes(graph, partition, layouts);
  AttentionCall call;
  call.backward = attention.backward;
  call.causal = attention.causal;
  call.type = stored_type(graph.tensor(attention.tensors[Attention::q]).dtype);
  call.batches = axes.batches;
  call.heads = axes.heads;
  call.key_heads = axes.key_heads;
  call.queries = attention.queries;
  call.keys = attention.keys;
  call.inner = attention.inner;
  call.values = attention.values;
  for (size_t operand = 0; operand < Attention::kOperands; ++operand) {
    if (!attention.tensors[operand].valid()) continue;
    const auto& [batch, head, row, column] = axes.strides[operand];
    call.strides[operand] = {batch, head, row, column};
    call.tensors[operand] = static_cast<int>(position_of(partition, static_cast<Attention::Operand>(operand)));
  }
  return call;
}

}  // namespace millrace
