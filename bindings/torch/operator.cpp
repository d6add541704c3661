// The operators millrace::forward and millrace::backward: a plan's two passes on PyTorch's tensors. They use PyTorch's
// stable ABI, so that a binary compiled with one version runs with later ones. Fake implementations and the autograd
// formula are in python/millrace/torch/operator.py. Test: tests/torch/
//
// A tensor may hold several consecutive arguments of the program, contiguous in memory, as in_proj_weight holds the
// weights of query, key and value; `pieces` gives their number. So neither they nor their gradients are copied.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "allocation.h"
#include "millrace/c_api.h"

namespace {

constexpr size_t kPage = 4096;
constexpr uintptr_t kGpuAlignment = 16;  // of the tensors of a plan for a GPU

// A tensor of the plan's lists, as PyTorch sees it.
struct Wanted {
  std::string name;
  ScalarType dtype = ScalarType::Float;
  std::vector<int64_t> shape;
  int64_t elements = 0;
  int64_t bytes = 0;
  bool scalar = false;
  bool exists = true;  // false: the gradient of an argument without one
  bool read_by_backward = true;
};

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

std::optional<ScalarType> type_named(const std::string& name) {
  if (name == "float16") return ScalarType::Half;
  if (name == "bfloat16") return ScalarType::BFloat16;
  if (name == "float32") return ScalarType::Float;
  if (name == "float64") return ScalarType::Double;
  if (name == "int32") return ScalarType::Int;
  if (name == "int64") return ScalarType::Long;
  if (name == "bool") return ScalarType::Bool;
  return std::nullopt;
}

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape)
    STD_TORCH_CHECK(size >= 0 && !__builtin_mul_overflow(elements, size, &elements), "millrace: invalid shape ",
                    shown(shape));
  return elements;
}

// The caller's stream.
void* current_stream(const Device& device) {
  if (device.type() != DeviceType::CUDA) return nullptr;
  using Function = AOTITorchError (*)(int32_t, void**);
  static const auto function =
      reinterpret_cast<Function>(function_of("libtorch_cuda.so", "aoti_torch_get_current_cuda_stream"));
  void* stream = nullptr;
  STD_TORCH_CHECK(function != nullptr && function(device.index(), &stream) == 0,
                  "millrace: this PyTorch cannot report its current stream; use a CUDA build, 2.10 or later");
  // PyTorch's default stream is the null stream, but null means the plan's own stream.
  static void* const kLegacyStream = reinterpret_cast<void*>(1);  // CU_STREAM_LEGACY
  return stream != nullptr ? stream : kLegacyStream;
}

// Whether the caller records the stream as a CUDA graph.
bool is_recorded(void* stream) {
  using Function = int (*)(void*, int*);
  static const auto function = reinterpret_cast<Function>(function_of("libcuda.so.1", "cuStreamIsCapturing"));
  int status = 0;  // CU_STREAM_CAPTURE_STATUS_NONE
  return stream != nullptr && function != nullptr && function(stream, &status) == 0 && status != 0;
}

// Which entries of the plan's arguments each tensor of a call holds.
class ArgumentMap {
 public:
  struct Piece {
    std::vector<size_t> entries;
    int64_t elements = 0;  // of all entries
    bool read_by_backward = false;
  };

  ArgumentMap(const std::vector<Wanted>& list, const std::vector<int64_t>& pieces) {
    size_t next = 0;
    for (const int64_t count : pieces) {
      Piece piece;
      for (int64_t k = 0; k < count; ++k) {
        while (next < list.size() && list[next].scalar) ++next;
        STD_TORCH_CHECK(next < list.size(), "millrace: more tensors than the plan has arguments");
        piece.elements += list[next].elements;
        piece.read_by_backward |= list[next].read_by_backward;
        piece.entries.push_back(next++);
      }
      STD_TORCH_CHECK(!piece.entries.empty(), "millrace: a tensor without pieces");
      pieces_.push_back(std::move(piece));
    }
    while (next < list.size() && list[next].scalar) ++next;
    STD_TORCH_CHECK(next == list.size(), "millrace: '", list[std::min(next, list.size() - 1)].name,
                    "' is missing: fewer tensors than the plan has arguments");
  }

  size_t size() const { return pieces_.size(); }
  const Piece& operator[](size_t tensor) const { return pieces_[tensor]; }

 private:
  std::vector<Piece> pieces_;
};

// A plan, loaded once for all calls.
class LoadedPlan {
 public:
  explicit LoadedPlan(const std::string& path) : path_(path) {
    STD_TORCH_CHECK(millrace_plan_load(path.c_str(), &plan_) == MILLRACE_DONE,
                    "millrace: the plan cannot be loaded: ", millrace_error());
    arguments = list(MILLRACE_ARGUMENTS);
    results = list(MILLRACE_RESULTS);
    result_gradients = list(MILLRACE_RESULT_GRADIENTS);
    argument_gradients = list(MILLRACE_ARGUMENT_GRADIENTS);
    saved_bytes = millrace_plan_saved_bytes(plan_);
    workspace_bytes_ = millrace_plan_workspace_bytes(plan_);
    on_cpu_ = std::string(millrace_plan_device(plan_)) == "cpu";
    if (!on_cpu_) return;
    const auto bytes = static_cast<size_t>(workspace_bytes_);
    workspace_.reset(std::aligned_alloc(kPage, (bytes / kPage + 1) * kPage));
    STD_TORCH_CHECK(workspace_ != nullptr, "millrace: out of memory for the workspace of ", bytes, " bytes");
  }
  LoadedPlan(const LoadedPlan&) = delete;
  LoadedPlan& operator=(const LoadedPlan&) = delete;
  ~LoadedPlan() { millrace_plan_unload(plan_); }

  // The tensor, or a copy if a plan for a GPU needs another alignment.
  Tensor aligned(Tensor tensor) const {
    const bool fits = on_cpu_ || reinterpret_cast<uintptr_t>(tensor.data_ptr()) % kGpuAlignment == 0;
    return fits ? tensor : torch::stable::clone(tensor);
  }

  const char* device() const { return on_cpu_ ? "the CPU" : "a GPU"; }
  bool is_on(const Tensor& tensor) const { return on_cpu_ ? tensor.is_cpu() : tensor.is_cuda(); }

  // Computed once for all calls with these pieces.
  const ArgumentMap& argument_map(const std::vector<int64_t>& pieces) {
    const std::lock_guard<std::mutex> turn(turn_);
    const auto known = maps_.find(pieces);
    return known != maps_.end() ? known->second : maps_.emplace(pieces, ArgumentMap(arguments, pieces)).first->second;
  }

  // On the CPU, calls share one workspace and run one at a time. On a GPU each call allocates one from PyTorch, whose
  // allocator reuses it for the next call on the same stream.
  void run(millrace_call call, bool forward, const Device& device, void* stream) {
    std::optional<Tensor> workspace;
    if (!on_cpu_) workspace = empty_on(device, {workspace_bytes_}, ScalarType::Byte);
    call.workspace = on_cpu_ ? workspace_.get() : workspace->data_ptr();
    call.stream = stream;
    const std::lock_guard<std::mutex> turn(turn_);
    const int code = forward ? millrace_plan_forward(plan_, &call) : millrace_plan_backward(plan_, &call);
    STD_TORCH_CHECK(code == MILLRACE_DONE, "millrace: ", millrace_error(), " (the plan is ", path_, ")");
  }

  std::vector<Wanted> arguments;
  std::vector<Wanted> results;
  std::vector<Wanted> result_gradients;
  std::vector<Wanted> argument_gradients;
  int64_t saved_bytes = 0;

 private:
  std::vector<Wanted> list(int32_t which) const {
    std::vector<Wanted> found;
    for (int32_t k = 0; k < millrace_plan_count(plan_, which); ++k) {
      const millrace_tensor info = millrace_plan_tensor(plan_, which, k);
      Wanted wanted;
      wanted.name = info.name;
      wanted.bytes = info.bytes;
      wanted.scalar = info.scalar != 0;
      wanted.exists = !wanted.scalar;
      wanted.read_by_backward = info.read_by_backward != 0;
      if (wanted.exists) describe(info, wanted);
      found.push_back(std::move(wanted));
    }
    return found;
  }

  void describe(const millrace_tensor& info, Wanted& wanted) const {
    const std::optional<ScalarType> dtype = type_named(info.dtype);
    STD_TORCH_CHECK(dtype.has_value(), "millrace: ", info.name, " has the type ", info.dtype);
    wanted.dtype = *dtype;
    wanted.shape.assign(info.shape, info.shape + info.rank);
    wanted.elements = 1;
    for (size_t k = wanted.shape.size(); k-- > 0;) {
      STD_TORCH_CHECK(info.strides[k] == wanted.elements || wanted.shape[k] == 1, "millrace: the plan ", path_,
                      " wants ", info.name, " in another axis order; make the plan without --layout");
      wanted.elements *= wanted.shape[k];
    }
  }

  std::string path_;
  millrace_plan* plan_ = nullptr;
  bool on_cpu_ = true;
  int64_t workspace_bytes_ = 0;
  std::unique_ptr<void, FreeMemory> workspace_;  // on the CPU
  std::map<std::vector<int64_t>, ArgumentMap> maps_;
  std::mutex turn_;
};

// The plans that were called last, one per device. Each holds memory and an open file, so a program of many shapes
// releases those that it called longest ago; they are loaded again when they are called. A CUDA graph that the caller
// records uses a plan's kernels at any later time, so such a plan is never released.
class PlanCache {
 public:
  std::shared_ptr<LoadedPlan> find(const std::string& path, const Device& device) {
    const Key key{path, device.type() == DeviceType::CPU ? -1 : device.index()};
    const std::lock_guard<std::mutex> lock(turn_);
    const auto known =
        std::find_if(plans_.begin(), plans_.end(), [&](const auto& entry) { return entry.first == key; });
    if (known != plans_.end()) {
      std::rotate(plans_.begin(), known, known + 1);
      return plans_.front().second;
    }
    auto plan = std::make_shared<LoadedPlan>(path);
    plans_.insert(plans_.begin(), {key, plan});
    if (plans_.size() > kMostPlans) plans_.pop_back();
    return plan;
  }

  void keep(const std::shared_ptr<LoadedPlan>& plan) {
    const std::lock_guard<std::mutex> lock(turn_);
    recorded_.insert(plan);
  }

 private:
  using Key = std::pair<std::string, int32_t>;
  static constexpr size_t kMostPlans = 64;
  std::vector<std::pair<Key, std::shared_ptr<LoadedPlan>>> plans_;  // the last called first
  std::set<std::shared_ptr<LoadedPlan>> recorded_;
  std::mutex turn_;
};

PlanCache& loaded_plans() {
  static PlanCache cache;
  return cache;
}

void run(const std::shared_ptr<LoadedPlan>& plan, const millrace_call& call, bool forward, const Device& device) {
  void* const stream = current_stream(device);
  if (is_recorded(stream)) loaded_plans().keep(plan);
  plan->run(call, forward, device, stream);
}

void check_memory(const LoadedPlan& plan, const Device& device, const Tensor& tensor, ScalarType dtype,
                  const std::string& name) {
  STD_TORCH_CHECK(plan.is_on(tensor), "millrace: '", name, "' is not on ", plan.device(),
                  ", the plan's device; move it with .to()");
  STD_TORCH_CHECK(tensor.get_device_index() == device.index(), "millrace: '", name, "' is on GPU ",
                  tensor.get_device_index(), " and others are on GPU ", device.index(), "; move it with .to()");
  STD_TORCH_CHECK(tensor.scalar_type() == dtype, "millrace: '", name, "' has the type ",
                  torch::headeronly::toString(tensor.scalar_type()), " where the plan has ",
                  torch::headeronly::toString(dtype), "; convert it with .to()");
  STD_TORCH_CHECK(tensor.is_contiguous(), "millrace: '", name, "' is not contiguous; call .contiguous()");
}

void check_elements(const Wanted& first, int64_t found, int64_t expected) {
  STD_TORCH_CHECK(found == expected, "millrace: '", first.name, "' has ", found,
                  " elements where the plan, whose argument is ", shown(first.shape), ", has ", expected,
                  "; a plan accepts one shape only");
}

// A call's pointers, by position in the plan's lists.
struct Pointers {
  std::vector<const void*> arguments;
  std::vector<void*> results;
  std::vector<const void*> result_gradients;
  std::vector<void*> argument_gradients;
};

void point_scalars(const LoadedPlan& plan, const std::vector<double>& numbers, Pointers& pointers) {
  size_t next = 0;
  for (size_t k = 0; k < plan.arguments.size(); ++k) {
    if (!plan.arguments[k].scalar) continue;
    STD_TORCH_CHECK(next < numbers.size(), "millrace: the number '", plan.arguments[k].name, "' is missing");
    pointers.arguments[k] = &numbers[next++];
  }
  STD_TORCH_CHECK(next == numbers.size(), "millrace: ", numbers.size(), " numbers where the plan has ", next);
}

// Sets the pointers to one tensor of the call; copies it if it is misaligned for the plan.
void point_pieces(const LoadedPlan& plan, const Device& device, const ArgumentMap::Piece& piece, Tensor& tensor,
                  Pointers& pointers) {
  const Wanted& first = plan.arguments[piece.entries.front()];
  check_memory(plan, device, tensor, first.dtype, first.name);
  check_elements(first, tensor.numel(), piece.elements);
  tensor = plan.aligned(std::move(tensor));
  const char* at = static_cast<const char*>(tensor.data_ptr());
  for (const size_t entry : piece.entries) {
    pointers.arguments[entry] = at;
    at += plan.arguments[entry].bytes;
  }
}

// Seed and step of the call's dropouts, in the tensors' memory: on a GPU this needs no synchronization, and every
// replay of a captured graph draws new masks.
void take_random(const LoadedPlan& plan, const Device& device, const std::optional<Tensor>& random,
                 millrace_call& call) {
  if (!random) return;
  check_memory(plan, device, *random, ScalarType::Long, "random");
  STD_TORCH_CHECK(random->numel() == 2, "millrace: 'random' must hold a seed and a step");
  call.random = random->data_ptr();
}

std::tuple<std::vector<Tensor>, Tensor> forward(std::string path, std::vector<Tensor> tensors,
                                                std::vector<int64_t> pieces, std::vector<double> numbers,
                                                std::optional<Tensor> random) {
  STD_TORCH_CHECK(!tensors.empty(), "millrace: a call without tensors");
  const Device device = tensors.front().device();
  const std::shared_ptr<LoadedPlan> found = loaded_plans().find(path, device);
  LoadedPlan& plan = *found;
  STD_TORCH_CHECK(tensors.size() == pieces.size(), "millrace: ", tensors.size(), " tensors, but ", pieces.size(),
                  " piece counts");
  const ArgumentMap& map = plan.argument_map(pieces);
  Pointers pointers;
  pointers.arguments.resize(plan.arguments.size());
  for (size_t k = 0; k < tensors.size(); ++k) point_pieces(plan, device, map[k], tensors[k], pointers);
  point_scalars(plan, numbers, pointers);
  std::vector<Tensor> results;
  for (const Wanted& wanted : plan.results) {
    results.push_back(empty_on(device, wanted.shape, wanted.dtype));
    pointers.results.push_back(results.back().data_ptr());
  }
  Tensor saved = short_lived_on(device, {plan.saved_bytes}, ScalarType::Byte, plan.saved_bytes);
  millrace_call call{};
  call.arguments = pointers.arguments.data();
  call.results = pointers.results.data();
  call.saved = saved.data_ptr();
  take_random(plan, device, random, call);
  run(found, call, true, device);
  return {std::move(results), std::move(saved)};
}

// Iterates over the tensors kept for backward.
class KeptTensors {
 public:
  explicit KeptTensors(std::vector<Tensor>& tensors) : tensors_(tensors) {}

  Tensor& next() {
    STD_TORCH_CHECK(next_ < tensors_.size(), "millrace: fewer tensors were kept than backward reads");
    return tensors_[next_++];
  }
  void expect_end() const { STD_TORCH_CHECK(next_ == tensors_.size(), "millrace: more was kept than backward reads"); }

 private:
  std::vector<Tensor>& tensors_;
  size_t next_ = 0;
};

// Allocates the gradients: one per tensor that has a gradient, in the tensor's shape.
std::vector<Tensor> make_gradients(const LoadedPlan& plan, const Device& device, const ArgumentMap& map,
                                   const std::vector<int64_t>& ranks, const std::vector<int64_t>& sizes,
                                   Pointers& pointers) {
  std::vector<Tensor> gradients;
  pointers.argument_gradients.resize(plan.arguments.size());
  STD_TORCH_CHECK(ranks.size() == map.size(), "millrace: ", ranks.size(), " ranks for ", map.size(), " tensors");
  size_t next = 0;
  for (size_t k = 0; k < map.size(); ++k) {
    const auto rank = static_cast<size_t>(std::max<int64_t>(ranks[k], 0));
    STD_TORCH_CHECK(next + rank <= sizes.size(), "millrace: fewer sizes than ranks say");
    const auto begin = sizes.begin() + static_cast<std::ptrdiff_t>(next);
    const std::vector<int64_t> shape(begin, begin + static_cast<std::ptrdiff_t>(rank));
    next += rank;
    const ArgumentMap::Piece& piece = map[k];
    const Wanted& first = plan.argument_gradients[piece.entries.front()];
    if (!first.exists) continue;
    check_elements(plan.arguments[piece.entries.front()], elements_of(shape), piece.elements);
    int64_t bytes = 0;
    for (const size_t entry : piece.entries) bytes += plan.argument_gradients[entry].bytes;
    gradients.push_back(short_lived_on(device, shape, first.dtype, bytes));
    char* at = static_cast<char*>(gradients.back().data_ptr());
    for (const size_t entry : piece.entries) {
      STD_TORCH_CHECK(plan.argument_gradients[entry].exists,
                      "millrace: some arguments of the plan that share a tensor have no gradient");
      pointers.argument_gradients[entry] = at;
      at += plan.argument_gradients[entry].bytes;
    }
  }
  return gradients;
}

std::vector<Tensor> backward(std::string path, std::vector<Tensor> gradients, std::vector<Tensor> kept_tensors,
                             Tensor saved, std::vector<int64_t> pieces, std::vector<int64_t> ranks,
                             std::vector<int64_t> sizes, std::vector<double> numbers, std::optional<Tensor> random) {
  const Device device = saved.device();
  const std::shared_ptr<LoadedPlan> found = loaded_plans().find(path, device);
  LoadedPlan& plan = *found;
  const ArgumentMap& map = plan.argument_map(pieces);
  Pointers pointers;
  pointers.arguments.resize(plan.arguments.size());
  KeptTensors kept(kept_tensors);
  for (size_t k = 0; k < map.size(); ++k)
    if (map[k].read_by_backward) point_pieces(plan, device, map[k], kept.next(), pointers);
  const auto check_as = [&](const Tensor& tensor, const Wanted& wanted) {
    check_memory(plan, device, tensor, wanted.dtype, wanted.name);
    STD_TORCH_CHECK(tensor.numel() == wanted.elements, "millrace: '", wanted.name, "' has ", tensor.numel(),
                    " elements where the plan has ", wanted.elements);
  };
  for (const Wanted& wanted : plan.results) {
    pointers.results.push_back(nullptr);
    if (!wanted.read_by_backward) continue;
    const Tensor& tensor = kept.next();
    check_as(tensor, wanted);
    pointers.results.back() = tensor.data_ptr();
  }
  kept.expect_end();
  point_scalars(plan, numbers, pointers);
  STD_TORCH_CHECK(gradients.size() == plan.result_gradients.size(), "millrace: ", gradients.size(),
                  " gradients where the plan has ", plan.result_gradients.size(), " results");
  for (size_t k = 0; k < gradients.size(); ++k) {
    check_as(gradients[k], plan.result_gradients[k]);
    gradients[k] = plan.aligned(std::move(gradients[k]));
    pointers.result_gradients.push_back(gradients[k].data_ptr());
  }
  check_memory(plan, device, saved, ScalarType::Byte, "saved");
  STD_TORCH_CHECK(saved.numel() == plan.saved_bytes, "millrace: 'saved' belongs to another plan: it has ",
                  saved.numel(), " bytes where this one has ", plan.saved_bytes);
  std::vector<Tensor> made = make_gradients(plan, device, map, ranks, sizes, pointers);
  millrace_call call{};
  call.arguments = pointers.arguments.data();
  call.results = pointers.results.data();
  call.result_gradients = pointers.result_gradients.data();
  call.argument_gradients = pointers.argument_gradients.data();
  call.saved = saved.data_ptr();
  take_random(plan, device, random, call);
  run(found, call, false, device);
  return made;
}

}  // namespace

STABLE_TORCH_LIBRARY(millrace, library) {
  library.def(
      "forward(str plan, Tensor[] tensors, int[] pieces, float[] numbers, Tensor? random) -> (Tensor[], Tensor)");
  library.def(
      "backward(str plan, Tensor[] gradients, Tensor[] kept, Tensor saved, int[] pieces, int[] ranks, int[] sizes, "
      "float[] numbers, Tensor? random) -> Tensor[]");
}

STABLE_TORCH_LIBRARY_IMPL(millrace, CUDA, library) {
  library.impl("forward", TORCH_BOX(&forward));
  library.impl("backward", TORCH_BOX(&backward));
}

STABLE_TORCH_LIBRARY_IMPL(millrace, CPU, library) {
  library.impl("forward", TORCH_BOX(&forward));
  library.impl("backward", TORCH_BOX(&backward));
}
