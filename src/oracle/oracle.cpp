#include "oracle/oracle.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "ir/operator_kind.h"

namespace millrace {
namespace {

using oracle::Operand;
using oracle::Task;

constexpr int kThreads = 256;
constexpr int64_t kBlocksPerMultiprocessor = 16;
constexpr int64_t kThreadsPerMultiprocessor = 1024;  // at least this many, if sums are long enough to be shared
constexpr int64_t kFewestTerms = 64;                 // of a thread that shares a sum

// The operators as an enumeration, numbered like OperatorKind.
std::string kinds_text() {
  std::string text = "namespace millrace::oracle::kind {\nenum Kind {\n";
#define MILLRACE_OPERATOR(kind, ...) text += concat("  ", #kind, " = ", static_cast<int>(OperatorKind::kind), ",\n");
#include "ir/operators.inc"
#undef MILLRACE_OPERATOR
  return text + "};\n}\n";
}

// Threads that share a sum, so that few long sums keep the GPU busy too.
int parts_of(const Task& task, const GpuInfo& info) {
  const int64_t wanted = info.multiprocessors * kThreadsPerMultiprocessor / std::max<int64_t>(task.points, 1);
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, std::max<int64_t>(task.length / kFewestTerms, 1)));
}

void address(const OracleTensor& tensor, Operand& operand) {
  operand.format = tensor.format;
  operand.number = tensor.number;
  operand.relative = tensor.relative;
  operand.absolute = tensor.absolute;
  operand.data = tensor.data;
}

Result<OracleTensor> new_tensor(oracle::Format format, int64_t elements, const OracleMemory& memory) {
  OracleTensor made;
  made.format = format;
  Result<GpuMemory> got =
      memory(elements * (format == oracle::kBounded ? kBytesOfNumber : static_cast<int64_t>(sizeof(double))));
  if (!got) return got.error();
  made.memory = std::move(*got);
  made.data = reinterpret_cast<double*>(made.memory.data());
  return made;
}

// A temporary that copies a number is one element.
Result<OracleTensor> new_temporary(const Temporary& wanted, const std::vector<OracleTensor>& tensors,
                                   const OracleMemory& memory) {
  if (!wanted.like.valid()) return new_tensor(oracle::kBounded, wanted.elements, memory);
  const OracleTensor& like = tensors[wanted.like.at()];
  Result<OracleTensor> made =
      new_tensor(like.format == oracle::kBounded ? oracle::kBounded : oracle::kExact, wanted.elements, memory);
  if (!made) return made;
  made->relative = like.relative;
  made->absolute = like.absolute;
  return made;
}

// For each tensor the last operator that reads or writes it, or -1.
std::vector<int> last_uses(const Graph& graph) {
  std::vector<int> last(graph.tensors.size(), -1);
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    for (const std::vector<Access>* accesses : {&graph.operators[k].inputs, &graph.operators[k].outputs}) {
      for (const Access& access : *accesses) last[access.tensor.at()] = static_cast<int>(k);
    }
  }
  return last;
}

}  // namespace

OracleTensor OracleTensor::of_number(double value) {
  OracleTensor made;
  made.format = oracle::kNumber;
  made.number = value;
  return made;
}

OracleTensor OracleTensor::of_values(double* values) {
  OracleTensor made;
  made.format = oracle::kExact;
  made.data = values;
  return made;
}

Result<Oracle> Oracle::make(Gpu& gpu, const GpuKernelCache& cache) {
  Launch launch;
  launch.kernel = concat(kinds_text(), oracle_text());
  launch.tensor_count = 1;
  const Result<CompiledCubin> cubin = cache.get({launch}, 1).front();
  if (!cubin) return cubin.error();
  Oracle made(gpu);
  for (const auto& [prepared, name] : {std::pair(&made.map_, "map"), std::pair(&made.fold_, "fold"),
                                       std::pair(&made.contract_, "contract"), std::pair(&made.join_, "join")}) {
    launch.grids = {
        {concat("MILLRACE_KERNEL_", name), gpu.info().multiprocessors * kBlocksPerMultiprocessor, kThreads, 0}};
    Result<std::unique_ptr<GpuLaunch>> loaded = gpu.prepare(with_kernel_names(launch, cubin->name), cubin->bytes);
    if (!loaded) return loaded.error();
    *prepared = std::move(*loaded);
  }
  Result<GpuMemory> task = GpuMemory::allocate(gpu, sizeof(Task));
  if (!task) return task.error();
  made.task_ = std::move(*task);
  return made;
}

Result<Done> Oracle::run(TaskKind kind, const Task& wanted, const OracleMemory& memory) const {
  if (wanted.points == 0) return Done{};
  Task task = wanted;
  GpuMemory partials;
  task.inner_parts = kind == TaskKind::map ? 1 : parts_of(task, gpu_->info());
  if (task.inner_parts > 1) {
    Result<GpuMemory> got = memory(task.points * task.inner_parts * kBytesOfNumber);
    if (!got) return got.error();
    partials = std::move(*got);
    task.partials = reinterpret_cast<double*>(partials.data());
  }
  if (Result<Done> copied = gpu_->copy_in(task_.data(), &task, sizeof(task)); !copied) return copied;
  const std::array<void*, 1> tensors = {task_.data()};
  GpuLaunch& first = kind == TaskKind::map ? *map_ : kind == TaskKind::fold ? *fold_ : *contract_;
  if (Result<Done> ran = first.run(tensors.data(), nullptr, nullptr, nullptr); !ran) return ran;
  if (task.inner_parts == 1) return Done{};
  if (Result<Done> ran = join_->run(tensors.data(), nullptr, nullptr, nullptr); !ran) return ran;
  return gpu_->wait();  // for the partial results, which are freed
}

Result<Done> Oracle::run(const Graph& graph, const Operator& op, std::vector<OracleTensor>& tensors,
                         const OracleSettings& settings, const OracleMemory& memory) const {
  Result<OperatorTasks> split = tasks_of(graph, op);
  if (!split) return split.error();
  for (const Access& output : op.outputs) {
    Result<OracleTensor> made = new_tensor(oracle::kBounded, elements_of(graph, output.tensor), memory);
    if (!made) return made.error();
    tensors[output.tensor.at()] = std::move(*made);
  }
  std::vector<OracleTensor> temporaries;
  for (const Temporary& wanted : split->temporaries) {
    Result<OracleTensor> made = new_temporary(wanted, tensors, memory);
    if (!made) return made.error();
    temporaries.push_back(std::move(*made));
  }
  const auto find = [&](const TaskTensor& at) -> const OracleTensor& {
    return at.temporary >= 0 ? temporaries[as_index(at.temporary)] : tensors[at.tensor.at()];
  };
  for (OperatorTask& one : split->tasks) {
    for (size_t k = 0; k < one.inputs.size(); ++k) address(find(one.inputs[k]), one.task.in[k]);
    for (size_t k = 0; k < one.outputs.size(); ++k) address(find(one.outputs[k]), one.task.out[k]);
    one.task.seed = settings.seed;
    one.task.step = settings.step;
    one.task.roundoff = settings.roundoff;
    if (Result<Done> ran = run(one.kind, one.task, memory); !ran) return ran;
  }
  if (temporaries.empty()) return Done{};
  return gpu_->wait();  // before they are freed
}

Result<Done> Oracle::run(const Graph& graph, std::vector<OracleTensor>& tensors, const std::vector<TensorId>& kept,
                         const OracleSettings& settings, const OracleMemory& memory) const {
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    if (graph.tensors[k].role == TensorRole::constant) tensors[k] = OracleTensor::of_number(graph.tensors[k].value);
  }
  const std::vector<int> last = last_uses(graph);
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    if (Result<Done> ran = run(graph, graph.operators[k], tensors, settings, memory); !ran) return ran;
    for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      const bool done = last[tensor] == static_cast<int>(k) && tensors[tensor].memory.data() != nullptr;
      if (!done || std::find(kept.begin(), kept.end(), TensorId(tensor)) != kept.end()) continue;
      if (Result<Done> waited = gpu_->wait(); !waited) return waited;
      tensors[tensor] = OracleTensor();
    }
  }
  return Done{};
}

}  // namespace millrace
