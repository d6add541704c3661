#include "exec/run_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/text.h"
#include "codegen/cpu/generate.h"
#include "device/cpu/cpu_info.h"
#include "device/test_kernels.h"
#include "measure/reference_data.h"
#include "measure/tensor_memory.h"
#include "plan/launched_partition.h"
#include "reference/bounded.h"
#include "reference/draw_rules.h"
#include "reference/philox.h"

namespace millrace {
namespace {

constexpr double kClose = 1e-10;

std::vector<TensorId> outputs_of(const TrainingGraph& training) {
  std::vector<TensorId> outputs;
  for (const Output& result : training.graph.results) outputs.push_back(result.tensor);
  for (const TensorId gradient : training.argument_gradients) {
    if (gradient.valid()) outputs.push_back(gradient);
  }
  return outputs;
}

// `coarser`: how many times larger the roundoff is; the bounds are proportional to it.
template <int kDigits>
std::string compare(const MadePlan& made, const Values<double>& given, RandomState random, const Values<double>& found,
                    double coarser = 1) {
  const Graph& graph = made.training.graph;
  Values<Bounded<kDigits>> values(graph.tensors.size());
  for (size_t k = 0; k < given.size(); ++k) values[k].assign(given[k].begin(), given[k].end());
  if (Result<Done> ran = interpret(graph, values, random); !ran) return to_string(ran.error());
  for (const TensorId tensor : outputs_of(made.training)) {
    const auto& expected = values[tensor.at()];
    double largest = 0;
    for (const auto& x : expected) largest = std::max(largest, std::isfinite(x.value) ? std::abs(x.value) : 0);
    for (size_t e = 0; e < expected.size(); ++e) {
      const double wanted = expected[e].value;
      const double value = found[tensor.at()][e];
      const double bound = coarser * expected[e].error + storage_error(graph.tensor(tensor).dtype, wanted);
      const double tolerance = kDigits == 53 ? std::max(kClose * largest, bound) : bound;
      if (std::isnan(wanted) ? std::isnan(value) : value == wanted || std::abs(value - wanted) <= tolerance) continue;
      return concat(graph.tensor(tensor).name, "[", e, "] is ", value, ", expected ", wanted, " ± ", tolerance);
    }
  }
  return "";
}

}  // namespace

const Layout& layout_of(const MadePlan& made, const PlanBuffer& buffer, TensorId tensor) {
  const std::vector<Layout>& domain = made.candidates.domains[tensor.at()].layouts;
  return *std::find_if(domain.begin(), domain.end(), [&](const Layout& layout) {
    return print_layout(made.training.graph, tensor, layout) == buffer.layout;
  });
}

TensorId callers_tensor(const TrainingGraph& training, const PlanBuffer& buffer) {
  const auto position = static_cast<size_t>(buffer.position);
  switch (buffer.location) {
    case BufferLocation::arena: break;
    case BufferLocation::argument: return training.graph.arguments[position];
    case BufferLocation::result: return training.graph.results[position].tensor;
    case BufferLocation::result_gradient: return training.result_gradients[position];
    case BufferLocation::argument_gradient: return training.argument_gradients[position];
  }
  return {};
}

CallersPlaces callers_places(const MadePlan& made) {
  CallersPlaces found;
  std::map<TensorId, size_t> buffer_of;
  for (size_t k = 0; k < made.plan.buffers.size(); ++k) {
    const PlanBuffer& buffer = made.plan.buffers[k];
    found.locations.emplace_back();
    if (buffer.location == BufferLocation::arena) continue;
    buffer_of[callers_tensor(made.training, buffer)] = k;
    found.locations.back() = {found.bytes.size(), 0};
    found.bytes.push_back(buffer.bytes);
  }
  for (size_t f = 0; f < made.candidates.callers_contiguous_groups; ++f) {
    const std::vector<TensorId>& family = made.candidates.contiguous_groups[f];
    const size_t block = found.locations[buffer_of[family.front()]].block;
    for (size_t k = 1; k < family.size(); ++k) {
      const size_t buffer = buffer_of[family[k]];
      found.locations[buffer] = {block, found.bytes[block]};
      found.bytes[block] += made.plan.buffers[buffer].bytes;
    }
  }
  return found;
}

Result<KernelCache> test_kernel_cache() {
  static const Result<Compiler> compiler = find_compiler();
  if (!compiler) return compiler.error();
  const std::string folder = test_kernels("test_kernels", MILLRACE_BINARY);
  return KernelCache(folder, *compiler, std::string(cpu_prelude()), cpu_info().identity());
}

void compile_kernels(const std::vector<const MadePlan*>& plans) {
  std::vector<KernelSource> sources;
  for (const MadePlan* made : plans) {
    const Result<std::vector<Launch>> launches = lower_plan(made->plan, made->training, made->candidates);
    ASSERT_TRUE(launches) << to_string(launches.error());
    for (const Launch& launch : *launches) {
      if (!launch.kernel.empty()) sources.push_back({launch.kernel});
    }
  }
  const Result<KernelCache> cache = test_kernel_cache();
  ASSERT_TRUE(cache) << to_string(cache.error());
  for (const Result<CompiledKernel>& kernel : cache->get(sources, 2)) ASSERT_TRUE(kernel) << to_string(kernel.error());
}

Result<CpuExecutor> executor_of(const MadePlan& made) {
  const Result<std::vector<Launch>> launches = lower_plan(made.plan, made.training, made.candidates);
  if (!launches) return launches.error();
  return CpuExecutor::load(made.plan, *launches, "", test_kernel_cache);
}

Values<double> drawn_values(const TrainingGraph& training, uint64_t seed) {
  const Graph& graph = training.graph;
  Values<double> values(graph.tensors.size());
  std::vector<TensorId> given = graph.arguments;
  given.insert(given.end(), training.result_gradients.begin(), training.result_gradients.end());
  const DrawRules rules = draw_rules(graph);
  for (size_t k = 0; k < given.size(); ++k) {
    const Tensor& tensor = graph.tensor(given[k]);
    for (int64_t e = 0; e < elements_of(graph, given[k]); ++e) {
      const double drawn =
          drawn_value(rules[given[k].at()], uniform_draw(seed, static_cast<uint32_t>(k), static_cast<uint64_t>(e)));
      values[given[k].at()].push_back(tensor.role == TensorRole::scalar ? drawn : rounded_to(tensor.dtype, drawn));
    }
  }
  return values;
}

Values<double> run_plan(const MadePlan& made, CpuExecutor& executor, const Values<double>& given, RandomState random) {
  const TrainingGraph& training = made.training;
  const Graph& graph = training.graph;
  std::vector<const void*> arguments(graph.arguments.size());
  std::vector<void*> results(graph.results.size());
  std::vector<const void*> result_gradients(graph.results.size());
  std::vector<void*> argument_gradients(graph.arguments.size());
  for (size_t k = 0; k < graph.arguments.size(); ++k) {
    if (graph.tensor(graph.arguments[k]).role == TensorRole::scalar)
      arguments[k] = given[graph.arguments[k].at()].data();
  }
  const CallersPlaces locations = callers_places(made);
  std::vector<Memory> memories;
  for (const int64_t bytes : locations.bytes) memories.emplace_back(bytes);
  std::vector<std::pair<const PlanBuffer*, char*>> buffers;
  for (size_t k = 0; k < made.plan.buffers.size(); ++k) {
    const PlanBuffer& buffer = made.plan.buffers[k];
    if (buffer.location == BufferLocation::arena) continue;
    const TensorId tensor = callers_tensor(training, buffer);
    char* const data = memories[locations.locations[k].block].data() + locations.locations[k].offset;
    buffers.emplace_back(&buffer, data);
    std::memset(data, 0xff, static_cast<size_t>(buffer.bytes));
    if (!given[tensor.at()].empty())
      put_values(graph, tensor, layout_of(made, buffer, tensor), given[tensor.at()], data);
    const auto position = static_cast<size_t>(buffer.position);
    switch (buffer.location) {
      case BufferLocation::arena: break;
      case BufferLocation::argument: arguments[position] = data; break;
      case BufferLocation::result: results[position] = data; break;
      case BufferLocation::result_gradient: result_gradients[position] = data; break;
      case BufferLocation::argument_gradient: argument_gradients[position] = data; break;
    }
  }
  EXPECT_TRUE(executor.bind({arguments.data(), results.data(), nullptr, nullptr}, random.seed, random.step));
  EXPECT_TRUE(executor.forward());
  EXPECT_TRUE(executor.bind({arguments.data(), results.data(), result_gradients.data(), argument_gradients.data()},
                            random.seed, random.step));
  EXPECT_TRUE(executor.backward());
  Values<double> found(graph.tensors.size());
  for (const auto& [buffer, data] : buffers) {
    const TensorId tensor = callers_tensor(training, *buffer);
    found[tensor.at()] = take_values(graph, tensor, layout_of(made, *buffer, tensor), data);
  }
  return found;
}

std::string difference_from_reference(const MadePlan& made, const Values<double>& given, RandomState random,
                                      const Values<double>& found) {
  const std::vector<Tensor>& tensors = made.training.graph.tensors;
  const auto has = [&](DType dtype) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const Tensor& tensor) {
      return tensor.role == TensorRole::computed && tensor.dtype == dtype;
    });
  };
  if (has(DType::float64)) return compare<53>(made, given, random, found);
  return compare<24>(made, given, random, found, has(DType::bfloat16) ? 0x1p16 : has(DType::float16) ? 0x1p13 : 1);
}

}  // namespace millrace
