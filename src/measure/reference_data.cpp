#include "measure/reference_data.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <map>

#include "base/parallel.h"
#include "base/text.h"
#include "measure/attention_reference_data.h"
#include "measure/library_gelu.h"
#include "measure/partition_graph.h"
#include "measure/rules_to_try.h"
#include "reference/bounded.h"
#include "reference/philox.h"

namespace millrace {
namespace {

constexpr int64_t kSlice = 1 << 18;  // elements per thread

// Adds the error of a library's activation function to the tolerances.
template <class Scalar>
void allow_for_library(const Partition& partition, const PartitionGraph& subgraph, const Values<Scalar>& values,
                       ReferenceData& reference_data) {
  const bool gradient = partition.product.activation == Activation::gelu_gradient;
  if (!gradient && !is_gelu(partition.product.activation)) return;
  const Operator& function = subgraph.graph.operators.back();
  const auto at = std::find(subgraph.writes.begin(), subgraph.writes.end(), function.outputs[0].tensor);
  std::vector<double>& tolerances = reference_data.outputs[as_index(at - subgraph.writes.begin())].tolerances;
  const std::vector<Scalar>& arguments = values[function.inputs[0].tensor.at()];
  for (size_t element = 0; element < tolerances.size(); ++element) {
    const double x = arguments[element].value;
    tolerances[element] += gradient
                               ? library_gelu_gradient_error(x, values[function.inputs[1].tensor.at()][element].value)
                               : library_gelu_error(x);
  }
}

// Runs the reference. Returns false if an output is infinite or not a number.
template <int kDigits>
Result<bool> expect(const Graph& whole, const Partition& partition, const PartitionGraph& subgraph,
                    ReferenceData& reference_data) {
  Values<Bounded<kDigits>> values(subgraph.graph.tensors.size());
  for (size_t k = 0; k < partition.reads.size(); ++k) {
    // A repeated operator computes it.
    if (subgraph.graph.tensor(subgraph.reads[k]).role == TensorRole::computed) continue;
    // A mask is rounded if it is stored as words, but not if it is stored as bits or regenerated.
    const Tensor& tensor = whole.tensor(partition.reads[k]);
    const bool mask = dropout_of(whole, partition.reads[k]) != nullptr;
    const std::vector<double>& given = reference_data.inputs[k];
    std::vector<Bounded<kDigits>>& into = values[subgraph.reads[k].at()];
    into.resize(given.size());
    in_parallel(static_cast<int64_t>(given.size()), kSlice, [&](int64_t begin, int64_t end) {
      for (auto element = static_cast<size_t>(begin); element < static_cast<size_t>(end); ++element)
        into[element] = {given[element], mask ? storage_error(tensor.dtype, given[element]) : 0};
    });
  }
  for (size_t k = 0; k < whole.arguments.size(); ++k) {
    if (whole.tensor(whole.arguments[k]).role != TensorRole::scalar) continue;
    for (const TensorId argument : subgraph.graph.arguments) {
      if (subgraph.graph.tensor(argument).name == whole.tensor(whole.arguments[k]).name)
        values[argument.at()] = {Bounded<kDigits>(reference_data.arguments[k])};
    }
  }
  if (Result<Done> ran = interpret(subgraph.graph, values, reference_data.random); !ran) return ran.error();
  // The reference itself computes in float64, and then has the same error bound as a kernel.
  constexpr double kBounds = kDigits == 53 ? 2 : 1;
  std::atomic<bool> finite = true;
  reference_data.outputs.clear();
  for (const TensorId tensor : subgraph.writes) {
    const std::vector<Bounded<kDigits>>& made = values[tensor.at()];
    const DType dtype = subgraph.graph.tensor(tensor).dtype;
    Expected& expected = reference_data.outputs.emplace_back();
    expected.values.resize(made.size());
    expected.tolerances.resize(made.size());
    in_parallel(static_cast<int64_t>(made.size()), kSlice, [&](int64_t begin, int64_t end) {
      for (auto element = static_cast<size_t>(begin); element < static_cast<size_t>(end); ++element) {
        const Bounded<kDigits>& x = made[element];
        expected.values[element] = x.value;
        expected.tolerances[element] = kBounds * x.error + storage_error(dtype, x.value);
        if (!std::isfinite(x.value)) finite = false;
      }
    });
  }
  allow_for_library(partition, subgraph, values, reference_data);
  return finite.load();
}

// For a small attention, the expected values come from the reference.
Result<ReferenceData> make_attention_reference_data(const Graph& graph, const DrawRules& rules,
                                                    const Partition& partition, uint64_t seed) {
  constexpr double kLargeAttention = 3e7;  // products of the scores and of the output
  const Attention& attention = partition.attention;
  const double products = static_cast<double>(attention.heads()) *
                          static_cast<double>(attention.queries * attention.keys) *
                          static_cast<double>(attention.inner + attention.values);
  ReferenceData reference_data = draw_inputs(graph, rules, partition, seed);
  complete_attention(graph, rules, partition, reference_data);
  if (products > kLargeAttention) return reference_data;
  ReferenceData reference = reference_data;
  const Result<bool> finite = expect<53>(graph, partition, partition_graph(graph, partition), reference);
  if (!finite) return finite.error();
  for (size_t k = 0; k < reference_data.outputs.size(); ++k)
    reference_data.outputs[k].values = std::move(reference.outputs[k].values);
  return reference_data;
}

}  // namespace

size_t numbers_in(const ReferenceData& reference_data) {
  size_t numbers = 0;
  for (const std::vector<double>& input : reference_data.inputs) numbers += input.size();
  for (const Expected& output : reference_data.outputs) numbers += output.values.size() + output.tolerances.size();
  return numbers;
}

std::vector<double> dropout_mask(const Operator& dropout, size_t elements, const RandomState& random) {
  std::vector<double> mask(elements);
  const double scale = 1 / (1 - dropout.value);
  in_parallel(static_cast<int64_t>(elements), kSlice, [&](int64_t begin, int64_t end) {
    for_each_kept(random.seed, random.step, dropout.subsequence, static_cast<uint64_t>(begin),
                  static_cast<uint64_t>(end), dropout.value,
                  [&](uint64_t element, bool kept) { mask[element] = kept ? scale : 0; });
  });
  return mask;
}

double factor_of(const Graph& graph, const std::vector<TensorId>& scales, const ReferenceData& reference_data) {
  double factor = 1;
  for (const TensorId tensor : scales) {
    const auto at = std::find(graph.arguments.begin(), graph.arguments.end(), tensor);
    factor *= graph.tensor(tensor).role == TensorRole::constant
                  ? graph.tensor(tensor).value
                  : reference_data.arguments[as_index(at - graph.arguments.begin())];
  }
  return factor;
}

double storage_error(DType dtype, double value) {
  // Half the distance to the next number, plus half the smallest number. Computations in float32 may flush subnormals.
  switch (dtype) {
    case DType::float16: return std::abs(value) * 0x1p-11 + 0x1p-25;
    case DType::bfloat16: return std::abs(value) * 0x1p-8 + 0x1p-120;
    case DType::float32: return std::abs(value) * 0x1p-24 + 0x1p-120;
    case DType::float64: return std::abs(value) * 0x1p-53 + 0x1p-1000;
    case DType::boolean:
    case DType::int32:
    case DType::int64: return 0;
  }
  return 0;
}

std::vector<double> drawn_arguments(const Graph& graph, const DrawRules& rules, uint64_t seed) {
  std::vector<double> arguments;
  for (size_t k = 0; k < graph.arguments.size(); ++k)
    arguments.push_back(
        drawn_value(rules[graph.arguments[k].at()], uniform_draw(seed, static_cast<uint32_t>(1000 + k), 0)));
  return arguments;
}

ReferenceData draw_inputs(const Graph& graph, const DrawRules& rules, const Partition& partition, uint64_t seed) {
  ReferenceData reference_data;
  reference_data.random = {seed, 1};
  for (size_t k = 0; k < partition.reads.size(); ++k) {
    const TensorId tensor = partition.reads[k];
    const auto elements = static_cast<size_t>(elements_of(graph, tensor));
    const DrawRule& rule = rules[tensor.at()];
    std::vector<double> values(elements);
    if (const Operator* dropout = dropout_of(graph, tensor)) {
      values = dropout_mask(*dropout, elements, reference_data.random);
    } else {
      in_parallel(static_cast<int64_t>(elements), kSlice, [&](int64_t begin, int64_t end) {
        for_each_draw(seed, static_cast<uint32_t>(k), static_cast<uint64_t>(begin), static_cast<uint64_t>(end),
                      [&](uint64_t element, double uniform) {
                        const double drawn = drawn_value(rule, uniform);
                        values[element] = rule.positions == 0 ? rounded_to(rule.dtype, drawn) : drawn;
                      });
      });
    }
    reference_data.inputs.push_back(std::move(values));
  }
  reference_data.arguments = drawn_arguments(graph, rules, seed);
  return reference_data;
}

// Which number an operand is: partitions that differ only in this take equally long, but compute different values.
static std::string number_name(const Graph& graph, TensorId id) {
  const Tensor& tensor = graph.tensor(id);
  if (tensor.role == TensorRole::constant) return concat("; constant ", std::bit_cast<uint64_t>(tensor.value));
  return tensor.role == TensorRole::scalar ? concat("; scalar ", tensor.name) : "";
}

std::string reference_data_name(const Graph& graph, const DrawRules& rules, const Partition& partition) {
  std::string name = print_partition(graph, partition);
  const auto add = [&](const Operator* dropout) {
    if (dropout != nullptr) name += concat("; subsequence ", dropout->subsequence);
  };
  for (const TensorId tensor : partition.reads) {
    add(dropout_of(graph, tensor));
    const DrawRule& rule = rules[tensor.at()];
    name += concat("; drawn ", std::bit_cast<uint64_t>(rule.middle), " ", std::bit_cast<uint64_t>(rule.reach), " ",
                   rule.positions);
  }
  for (const std::vector<OperatorId>* operators : {&partition.operators, &partition.repeats}) {
    for (const OperatorId id : *operators) {
      const Operator& op = graph.operators[id.at()];
      add(op.kind == OperatorKind::dropout ? &op : nullptr);
      for (const Access& input : op.inputs) name += number_name(graph, input.tensor);
    }
  }
  return name;
}

Result<ReferenceData> make_reference_data(const Graph& graph, const DrawRules& rules, const Partition& partition,
                                          uint64_t seed) {
  if (partition.kind == PartitionKind::attention) return make_attention_reference_data(graph, rules, partition, seed);
  if (partition.operators.empty()) {  // a conversion: the output equals the input
    ReferenceData reference_data = draw_inputs(graph, rules, partition, seed);
    for (double& x : reference_data.inputs[0]) x = rounded_to(graph.tensor(partition.reads[0]).dtype, x);
    reference_data.outputs = {{reference_data.inputs[0], std::vector<double>(reference_data.inputs[0].size(), 0.0)}};
    return reference_data;
  }
  const PartitionGraph subgraph = partition_graph(graph, partition);
  // Like kernels: compute in float64 if any tensor is float64.
  const std::vector<TensorId> stored = tensors_of(partition);
  const bool wide = std::any_of(stored.begin(), stored.end(),
                                [&](TensorId tensor) { return graph.tensor(tensor).dtype == DType::float64; });
  ReferenceData reference_data;
  for (const DrawRules& each : rules_to_try(graph, rules, partition)) {
    reference_data = draw_inputs(graph, each, partition, seed);
    const Result<bool> finite = wide ? expect<53>(graph, partition, subgraph, reference_data)
                                     : expect<24>(graph, partition, subgraph, reference_data);
    if (!finite) return finite.error();
    if (*finite) break;
  }
  return reference_data;
}

std::string difference(const Graph& graph, TensorId tensor, const Layout& layout, const Expected& expected,
                       const std::vector<double>& found) {
  if (layout.storage == MaskStorage::regenerated) return "";
  const bool bits = layout.storage == MaskStorage::bits;
  const auto wanted = [&](size_t element) {
    const double value = expected.values[element];
    return !bits ? value : value != 0 ? 1 : 0;
  };
  const auto is_right = [&](size_t element) {
    const double value = found[element];
    if (std::abs(value - wanted(element)) <= expected.tolerances[element]) return true;
    const bool same_infinity = std::isinf(wanted(element)) && value == wanted(element);
    return same_infinity || (std::isnan(wanted(element)) && std::isnan(value));
  };
  const size_t elements = expected.values.size();
  std::atomic<size_t> first = elements;
  in_parallel(static_cast<int64_t>(elements), kSlice, [&](int64_t begin, int64_t end) {
    auto element = static_cast<size_t>(begin);
    while (element < static_cast<size_t>(end) && is_right(element)) ++element;
    if (element == static_cast<size_t>(end)) return;
    size_t known = first;
    while (element < known && !first.compare_exchange_weak(known, element)) {
    }
  });
  if (first == elements) return "";
  return concat(graph.tensor(tensor).name, "[", first.load(), "] is ", found[first], ", expected ", wanted(first),
                " ± ", expected.tolerances[first]);
}

Graph shrunken(const Graph& graph) {
  std::vector<int64_t> extents;
  for (const Dim& dim : graph.dims) extents.push_back(dim.extent);
  std::sort(extents.begin(), extents.end());
  extents.erase(std::unique(extents.begin(), extents.end()), extents.end());
  // Different extents stay different and in the same order, and all are odd, so none is a power of two but 1.
  constexpr int64_t kSmall = 3;
  std::map<int64_t, int64_t> small;
  int64_t next = kSmall;
  for (const int64_t extent : extents) {
    small[extent] = extent == 1 ? 1 : next;
    next += extent == 1 ? 0 : 2;
  }
  Graph made = graph;
  for (Dim& dim : made.dims) dim.extent = small.at(dim.extent);
  return made;
}

Partition shrunken(const Partition& partition, const Graph& small) {
  Partition made = partition;
  for (PartitionIndex& index : made.space) index.extent = small.extent(index.dim);
  for (ProductIndex& index : made.product.indices) {
    if (index.dim.valid()) index.extent = small.extent(index.dim);
  }
  return made;
}

}  // namespace millrace
