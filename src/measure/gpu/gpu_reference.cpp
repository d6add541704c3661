#include "measure/gpu/gpu_reference.h"

#include <algorithm>

#include "base/text.h"
#include "measure/gpu/gpu_attention.h"
#include "measure/gpu/gpu_values.h"
#include "measure/library_gelu.h"
#include "measure/partition_graph.h"
#include "measure/rules_to_try.h"
#include "reference/philox.h"

namespace millrace {
namespace {

// How many points, over all operators, the oracle accepts: a few seconds' work for a large GPU.
constexpr double kMostPoints = 4e12;

// A float32 product may truncate its sums on tensor cores instead of rounding: the error of an addition doubles.
constexpr double kTruncated = 0x1p-23;
constexpr double kFloat = 0x1p-24;
constexpr double kDouble = 0x1p-53;

oracle::Task draw_task(const Graph& graph, TensorId tensor, size_t number, const DrawRule& rule, uint64_t seed) {
  oracle::Task task = make_flat_task(oracle::kDraw, elements_of(graph, tensor), 0, 1);
  task.seed = seed;
  task.subsequence = static_cast<unsigned>(number);
  task.shift = rule.middle;
  task.scale = rule.reach;
  task.numbers[0] = 1;
  task.is_boolean = rule.dtype == DType::boolean ? 1 : 0;
  task.positions = rule.positions;
  if (rule.positions == 0) round_to(rule.dtype, task);
  return task;
}

oracle::Task mask_task(const Graph& graph, TensorId mask, const RandomState& random) {
  const Operator& dropout = *dropout_of(graph, mask);
  oracle::Task task = make_flat_task(oracle::kMask, elements_of(graph, mask), 0, 1);
  task.seed = random.seed;
  task.step = random.step;
  task.subsequence = dropout.subsequence;
  task.number = dropout.value;
  return task;
}

Result<GpuMemory> drawn(const OracleContext& context, oracle::Task task) {
  Result<GpuMemory> values = allocate_doubles(context, task.points);
  if (!values) return values;
  place_values(*values, task.out[0]);
  if (Result<Done> ran = context.oracle.run(TaskKind::map, task, context.memory); !ran) return ran.error();
  return values;
}

// Tensors that the oracle starts from.
std::vector<OracleTensor> given_tensors(const Graph& whole, const Partition& partition, const PartitionGraph& subgraph,
                                        const GpuReferenceData& data) {
  std::vector<OracleTensor> tensors(subgraph.graph.tensors.size());
  for (size_t k = 0; k < partition.reads.size(); ++k) {
    // A repeated operator computes it.
    if (subgraph.graph.tensor(subgraph.reads[k]).role == TensorRole::computed) continue;
    OracleTensor& tensor = tensors[subgraph.reads[k].at()];
    tensor = OracleTensor::of_values(static_cast<double*>(data.inputs[k].data()));
    // A mask is rounded if it is stored as words, but not if it is stored as bits or regenerated.
    if (dropout_of(whole, partition.reads[k]) == nullptr) continue;
    const StorageError error = storage_error_of(whole.tensor(partition.reads[k]).dtype);
    tensor.relative = error.relative;
    tensor.absolute = error.absolute;
  }
  for (size_t k = 0; k < whole.arguments.size(); ++k) {
    if (whole.tensor(whole.arguments[k]).role != TensorRole::scalar) continue;
    for (const TensorId argument : subgraph.graph.arguments) {
      if (subgraph.graph.tensor(argument).name == whole.tensor(whole.arguments[k]).name)
        tensors[argument.at()] = OracleTensor::of_number(data.numbers.arguments[k]);
    }
  }
  return tensors;
}

// Adds the error of a library's activation function to the tolerances.
Result<Done> allow_for_library(const OracleContext& context, const Partition& partition, const PartitionGraph& subgraph,
                               const std::vector<OracleTensor>& tensors, GpuReferenceData& data) {
  const bool gradient = partition.product.activation == Activation::gelu_gradient;
  if (!gradient && partition.product.activation != Activation::gelu) return Done{};
  const Operator& function = subgraph.graph.operators.back();
  const auto at = std::find(subgraph.writes.begin(), subgraph.writes.end(), function.outputs[0].tensor);
  const GpuMemory& tolerances = data.expected[as_index(at - subgraph.writes.begin())].tolerances;
  oracle::Task task = make_flat_task(gradient ? oracle::kLibraryGeluGradient : oracle::kLibraryGelu,
                                     elements_of(subgraph.graph, function.outputs[0].tensor), gradient ? 3 : 2, 1);
  place_values(tolerances, task.in[0]);
  for (size_t k = 0; k < function.inputs.size(); ++k)
    place_tensor(tensors[function.inputs[k].tensor.at()], task.in[k + 1]);
  place_values(tolerances, task.out[0]);
  task.numbers[0] = kTanhError;
  task.numbers[1] = kMostNegative;
  return context.oracle.run(TaskKind::map, task, context.memory);
}

Result<Done> check_time(const Graph& graph) {
  double points = 0;
  for (const Operator& op : graph.operators) points += static_cast<double>(points_of(graph, op));
  if (points <= kMostPoints) return Done{};
  return Error::make(ErrorKind::failed,
                     concat("the oracle on the GPU would compute ", points, " points and takes at most ", kMostPoints));
}

double roundoff_of(const Graph& graph, const Partition& partition) {
  // Like kernels: compute in float64 if any tensor is float64.
  const std::vector<TensorId> stored = tensors_of(partition);
  const bool wide = std::any_of(stored.begin(), stored.end(),
                                [&](TensorId tensor) { return graph.tensor(tensor).dtype == DType::float64; });
  return wide ? kDouble : partition.kind == PartitionKind::contraction ? kTruncated : kFloat;
}

// Runs the oracle. Returns whether all outputs are finite.
Result<bool> expect(const OracleContext& context, const Graph& whole, const Partition& partition,
                    const PartitionGraph& subgraph, double roundoff, GpuReferenceData& data) {
  if (Result<Done> quick = check_time(subgraph.graph); !quick) return quick.error();
  std::vector<OracleTensor> tensors = given_tensors(whole, partition, subgraph, data);
  std::vector<TensorId> kept = subgraph.writes;
  if (partition.product.activation != Activation::none) {
    for (const Access& input : subgraph.graph.operators.back().inputs) kept.push_back(input.tensor);
  }
  const OracleSettings settings{data.numbers.random.seed, data.numbers.random.step, roundoff};
  if (Result<Done> ran = context.oracle.run(subgraph.graph, tensors, kept, settings, context.memory); !ran)
    return ran.error();
  // The oracle itself computes in float64, and then has the same error bound as a kernel.
  const double bounds = roundoff == kDouble ? 2 : 1;
  bool finite = true;
  data.expected.clear();
  for (const TensorId tensor : subgraph.writes) {
    const Result<bool> taken = take_expected(context, tensors[tensor.at()], elements_of(subgraph.graph, tensor),
                                             subgraph.graph.tensor(tensor).dtype, bounds, data.expected.emplace_back());
    if (!taken) return taken.error();
    finite = finite && *taken;
  }
  if (Result<Done> allowed = allow_for_library(context, partition, subgraph, tensors, data); !allowed)
    return allowed.error();
  if (Result<Done> waited = context.gpu.wait(); !waited) return waited.error();
  return finite;
}

// The output of a conversion equals its input, rounded.
Result<GpuReferenceData> convert(const OracleContext& context, const Graph& graph, const DrawRules& rules,
                                 const Partition& partition, uint64_t seed) {
  Result<GpuReferenceData> data = draw_gpu_inputs(context, graph, rules, partition, seed);
  if (!data) return data;
  const int64_t elements = elements_of(graph, partition.reads[0]);
  oracle::Task task = make_flat_task(oracle::kRound, elements, 1, 1);
  round_to(graph.tensor(partition.reads[0]).dtype, task);
  place_values(data->inputs[0], task.in[0]);
  place_values(data->inputs[0], task.out[0]);
  if (Result<Done> ran = context.oracle.run(TaskKind::map, task, context.memory); !ran) return ran.error();
  const OracleTensor values = OracleTensor::of_values(static_cast<double*>(data->inputs[0].data()));
  const Result<bool> taken = take_expected(context, values, elements, DType::boolean, 1, data->expected.emplace_back());
  if (!taken) return taken.error();
  return data;
}

// Memory of all tensors that operators write.
int64_t bytes_of_numbers(const Graph& graph) {
  int64_t bytes = 0;
  for (const Operator& op : graph.operators) {
    for (const Access& output : op.outputs) bytes += kBytesOfNumber * elements_of(graph, output.tensor);
  }
  return bytes;
}

// The tolerances are those of an attention; the values come from the unfused graph where that fits into memory.
Result<GpuReferenceData> attend(const OracleContext& context, const Graph& graph, const DrawRules& rules,
                                const Partition& partition, uint64_t seed) {
  Result<GpuReferenceData> data = draw_gpu_inputs(context, graph, rules, partition, seed);
  if (!data) return data;
  if (Result<Done> completed = complete_gpu_attention(context, graph, rules, partition, *data); !completed)
    return completed.error();
  const PartitionGraph subgraph = partition_graph(graph, partition);
  if (bytes_of_numbers(subgraph.graph) > context.gpu.info().memory_bytes / 4) return data;
  std::vector<ExpectedOnGpu> attended = std::move(data->expected);
  const Result<bool> unfused = expect(context, graph, partition, subgraph, kDouble, *data);
  for (size_t k = 0; unfused && k < attended.size(); ++k) attended[k].values = std::move(data->expected[k].values);
  data->expected = std::move(attended);
  return data;
}

}  // namespace

Result<GpuReferenceData> draw_gpu_inputs(const OracleContext& context, const Graph& graph, const DrawRules& rules,
                                         const Partition& partition, uint64_t seed) {
  GpuReferenceData data;
  data.numbers.random = {seed, 1};
  data.numbers.arguments = drawn_arguments(graph, rules, seed);
  for (size_t k = 0; k < partition.reads.size(); ++k) {
    const TensorId tensor = partition.reads[k];
    Result<GpuMemory> values =
        drawn(context, dropout_of(graph, tensor) != nullptr ? mask_task(graph, tensor, data.numbers.random)
                                                            : draw_task(graph, tensor, k, rules[tensor.at()], seed));
    if (!values) return values.error();
    data.inputs.push_back(std::move(*values));
  }
  return data;
}

Result<GpuMemory> draw_gpu_mask(const OracleContext& context, const Graph& graph, TensorId mask,
                                const RandomState& random) {
  return drawn(context, mask_task(graph, mask, random));
}

Result<GpuReferenceData> make_gpu_reference_data(const OracleContext& context, const Graph& graph,
                                                 const DrawRules& rules, const Partition& partition, uint64_t seed) {
  if (partition.kind == PartitionKind::attention) return attend(context, graph, rules, partition, seed);
  if (partition.operators.empty()) return convert(context, graph, rules, partition, seed);
  const PartitionGraph subgraph = partition_graph(graph, partition);
  Result<GpuReferenceData> data = GpuReferenceData();
  for (const DrawRules& each : rules_to_try(graph, rules, partition)) {
    data = draw_gpu_inputs(context, graph, each, partition, seed);
    if (!data) return data;
    const Result<bool> finite = expect(context, graph, partition, subgraph, roundoff_of(graph, partition), *data);
    if (!finite) return finite.error();
    if (*finite) break;
  }
  return data;
}

}  // namespace millrace
