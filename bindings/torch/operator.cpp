// The operators millrace::forward and millrace::backward: a plan's two passes on PyTorch's tensors. Written to
// PyTorch's stable ABI, so that what was compiled with one version runs with later ones; fake implementations and the
// autograd formula are in python/millrace/torch/operator.py.
//
// A tensor may stand for several arguments of the program that follow each other: `pieces` says for how many, and they
// lie in it one behind the other, as the query, key and value weights do in in_proj_weight. So neither they nor their
// gradients are copied.
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
#include <string>
#include <tuple>
#include <vector>

#include "millrace/c_api.h"

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr size_t kPage = 4096;

// A tensor of the plan's lists, as PyTorch sees it.
struct Wanted {
  std::string name;
  ScalarType dtype = ScalarType::Float;
  std::vector<int64_t> shape;
  int64_t elements = 0;
  int64_t bytes = 0;
  bool scalar = false;
  bool there = true;  // false: a gradient that there is not
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
  return std::nullopt;
}

std::string shown(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t k = 0; k < shape.size(); ++k) text += (k == 0 ? "" : ", ") + std::to_string(shape[k]);
  return text + "]";
}

// A plan that was loaded once for all calls.
class LoadedPlan {
 public:
  explicit LoadedPlan(const std::string& path) : path_(path) {
    STD_TORCH_CHECK(millrace_plan_load(path.c_str(), &plan_) == MILLRACE_DONE, "millrace: ", millrace_error());
    arguments = list(MILLRACE_ARGUMENTS);
    results = list(MILLRACE_RESULTS);
    result_gradients = list(MILLRACE_RESULT_GRADIENTS);
    argument_gradients = list(MILLRACE_ARGUMENT_GRADIENTS);
    saved_bytes = millrace_plan_saved_bytes(plan_);
    const auto bytes = static_cast<size_t>(millrace_plan_workspace_bytes(plan_));
    workspace_.reset(std::aligned_alloc(kPage, (bytes / kPage + 1) * kPage));
    STD_TORCH_CHECK(workspace_ != nullptr, "millrace: no memory for the workspace of ", bytes, " bytes");
  }
  LoadedPlan(const LoadedPlan&) = delete;
  LoadedPlan& operator=(const LoadedPlan&) = delete;
  ~LoadedPlan() { millrace_plan_unload(plan_); }

  // Threads take turns: they share the workspace.
  void run(millrace_call call, bool forward) {
    const std::lock_guard<std::mutex> turn(turn_);
    call.workspace = workspace_.get();
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
      wanted.there = !wanted.scalar;
      wanted.read_by_backward = info.read_by_backward != 0;
      if (wanted.there) describe(info, wanted);
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
                      " wants ", info.name, " in another order of axes; make it without --layout");
      wanted.elements *= wanted.shape[k];
    }
  }

  std::string path_;
  millrace_plan* plan_ = nullptr;
  std::unique_ptr<void, FreeMemory> workspace_;
  std::mutex turn_;
};

LoadedPlan& plan_at(const std::string& path) {
  static std::mutex turn;
  static std::map<std::string, std::unique_ptr<LoadedPlan>> loaded;
  const std::lock_guard<std::mutex> lock(turn);
  std::unique_ptr<LoadedPlan>& plan = loaded[path];
  if (!plan) plan = std::make_unique<LoadedPlan>(path);
  return *plan;
}

void check_memory(const Tensor& tensor, ScalarType dtype, const std::string& name) {
  STD_TORCH_CHECK(tensor.is_cpu(), "millrace: '", name, "' is not on the CPU, which the plan is for; call .cpu()");
  STD_TORCH_CHECK(tensor.scalar_type() == dtype, "millrace: '", name, "' has the type ",
                  torch::headeronly::toString(tensor.scalar_type()), " where the plan has ",
                  torch::headeronly::toString(dtype), "; convert it with .to()");
  STD_TORCH_CHECK(tensor.is_contiguous(), "millrace: '", name, "' is not contiguous; call .contiguous()");
}

// The tensors that each stand for one or several entries of a list, and where those are.
class Spread {
 public:
  // `wanted`: false for entries that no tensor stands for.
  Spread(const std::vector<Wanted>& list, const std::vector<int64_t>& pieces) : list_(list) {
    size_t next = 0;
    for (const int64_t count : pieces) {
      std::vector<size_t> entries;
      for (int64_t k = 0; k < count; ++k) {
        while (next < list.size() && list[next].scalar) ++next;
        STD_TORCH_CHECK(next < list.size(), "millrace: more tensors than the plan has arguments");
        entries.push_back(next++);
      }
      STD_TORCH_CHECK(!entries.empty(), "millrace: a tensor without pieces");
      entries_.push_back(std::move(entries));
    }
    while (next < list.size() && list[next].scalar) ++next;
    STD_TORCH_CHECK(next == list.size(), "millrace: '", list[std::min(next, list.size() - 1)].name,
                    "' is missing: fewer tensors than the plan has arguments");
  }

  size_t size() const { return entries_.size(); }

  bool read_by_backward(size_t tensor) const {
    return std::any_of(entries_[tensor].begin(), entries_[tensor].end(),
                       [&](size_t entry) { return list_[entry].read_by_backward; });
  }

  const std::vector<size_t>& entries(size_t tensor) const { return entries_[tensor]; }

  void check(size_t number, const Tensor& tensor) const {
    const Wanted& first = list_[entries_[number].front()];
    check_memory(tensor, first.dtype, first.name);
    int64_t elements = 0;
    for (const size_t entry : entries_[number]) elements += list_[entry].elements;
    STD_TORCH_CHECK(tensor.numel() == elements, "millrace: '", first.name, "' has ", tensor.numel(),
                    " elements where the plan, whose argument is ", shown(first.shape), ", has ", elements,
                    "; a plan is for one shape");
  }

 private:
  const std::vector<Wanted>& list_;
  std::vector<std::vector<size_t>> entries_;
};

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

void point_pieces(const LoadedPlan& plan, const Spread& spread, size_t number, const Tensor& tensor,
                  Pointers& pointers) {
  const char* at = static_cast<const char*>(tensor.data_ptr());
  for (const size_t entry : spread.entries(number)) {
    pointers.arguments[entry] = at;
    at += plan.arguments[entry].bytes;
  }
}

Tensor empty_on_cpu(const std::vector<int64_t>& shape, ScalarType dtype) {
  return torch::stable::empty(shape, dtype, std::nullopt, torch::stable::Device(torch::headeronly::DeviceType::CPU));
}

// (seed, step) of the call's dropouts. On the CPU the numbers are at hand; a plan for a GPU will read the tensor there,
// so that a captured graph draws others in every replay.
void take_random(const std::optional<Tensor>& random, millrace_call& call) {
  if (!random) return;
  check_memory(*random, ScalarType::Long, "random");
  STD_TORCH_CHECK(random->numel() == 2, "millrace: 'random' is not a seed and a step");
  const auto* numbers = static_cast<const int64_t*>(random->data_ptr());
  call.seed = static_cast<uint64_t>(numbers[0]);
  call.step = static_cast<uint32_t>(static_cast<uint64_t>(numbers[1]));
}

std::tuple<std::vector<Tensor>, Tensor> forward(std::string path, std::vector<Tensor> tensors,
                                                std::vector<int64_t> pieces, std::vector<double> numbers,
                                                std::optional<Tensor> random) {
  LoadedPlan& plan = plan_at(path);
  STD_TORCH_CHECK(tensors.size() == pieces.size(), "millrace: ", tensors.size(), " tensors, but pieces of ",
                  pieces.size());
  const Spread spread(plan.arguments, pieces);
  Pointers pointers;
  pointers.arguments.resize(plan.arguments.size());
  for (size_t k = 0; k < tensors.size(); ++k) {
    spread.check(k, tensors[k]);
    point_pieces(plan, spread, k, tensors[k], pointers);
  }
  point_scalars(plan, numbers, pointers);
  std::vector<Tensor> results;
  for (const Wanted& wanted : plan.results) {
    results.push_back(empty_on_cpu(wanted.shape, wanted.dtype));
    pointers.results.push_back(results.back().data_ptr());
  }
  Tensor saved = empty_on_cpu({plan.saved_bytes}, ScalarType::Byte);
  millrace_call call{};
  call.arguments = pointers.arguments.data();
  call.results = pointers.results.data();
  call.saved = saved.data_ptr();
  take_random(random, call);
  plan.run(call, true);
  return {std::move(results), std::move(saved)};
}

// Takes the next of what was kept for backward.
class KeptTensors {
 public:
  explicit KeptTensors(const std::vector<Tensor>& tensors) : tensors_(tensors) {}

  const Tensor& next() {
    STD_TORCH_CHECK(next_ < tensors_.size(), "millrace: fewer tensors were kept than backward reads");
    return tensors_[next_++];
  }
  void expect_end() const { STD_TORCH_CHECK(next_ == tensors_.size(), "millrace: more was kept than backward reads"); }

 private:
  const std::vector<Tensor>& tensors_;
  size_t next_ = 0;
};

// The gradients' memory: of the shape that its tensor has, one for each that has a gradient.
std::vector<Tensor> make_gradients(const LoadedPlan& plan, const Spread& spread, const std::vector<int64_t>& ranks,
                                   const std::vector<int64_t>& sizes, Pointers& pointers) {
  std::vector<Tensor> gradients;
  pointers.argument_gradients.resize(plan.arguments.size());
  STD_TORCH_CHECK(ranks.size() == spread.size(), "millrace: one rank a tensor");
  size_t next = 0;
  for (size_t k = 0; k < spread.size(); ++k) {
    const auto rank = static_cast<size_t>(std::max<int64_t>(ranks[k], 0));
    STD_TORCH_CHECK(next + rank <= sizes.size(), "millrace: fewer sizes than ranks say");
    const auto begin = sizes.begin() + static_cast<std::ptrdiff_t>(next);
    const std::vector<int64_t> shape(begin, begin + static_cast<std::ptrdiff_t>(rank));
    next += rank;
    const Wanted& first = plan.argument_gradients[spread.entries(k).front()];
    if (!first.there) continue;
    gradients.push_back(empty_on_cpu(shape, first.dtype));
    spread.check(k, gradients.back());
    char* at = static_cast<char*>(gradients.back().data_ptr());
    for (const size_t entry : spread.entries(k)) {
      STD_TORCH_CHECK(plan.argument_gradients[entry].there, "millrace: pieces with and without a gradient");
      pointers.argument_gradients[entry] = at;
      at += plan.argument_gradients[entry].bytes;
    }
  }
  return gradients;
}

std::vector<Tensor> backward(std::string path, std::vector<Tensor> gradients, std::vector<Tensor> kept_tensors,
                             Tensor saved, std::vector<int64_t> pieces, std::vector<int64_t> ranks,
                             std::vector<int64_t> sizes, std::vector<double> numbers, std::optional<Tensor> random) {
  LoadedPlan& plan = plan_at(path);
  const Spread spread(plan.arguments, pieces);
  Pointers pointers;
  pointers.arguments.resize(plan.arguments.size());
  KeptTensors kept(kept_tensors);
  for (size_t k = 0; k < spread.size(); ++k) {
    if (!spread.read_by_backward(k)) continue;
    const Tensor& tensor = kept.next();
    spread.check(k, tensor);
    point_pieces(plan, spread, k, tensor, pointers);
  }
  const auto check_as = [](const Tensor& tensor, const Wanted& wanted) {
    check_memory(tensor, wanted.dtype, wanted.name);
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
    pointers.result_gradients.push_back(gradients[k].data_ptr());
  }
  check_memory(saved, ScalarType::Byte, "saved");
  STD_TORCH_CHECK(saved.numel() == plan.saved_bytes, "millrace: 'saved' is another plan's: it has ", saved.numel(),
                  " bytes where this one has ", plan.saved_bytes);
  std::vector<Tensor> made = make_gradients(plan, spread, ranks, sizes, pointers);
  millrace_call call{};
  call.arguments = pointers.arguments.data();
  call.results = pointers.results.data();
  call.result_gradients = pointers.result_gradients.data();
  call.argument_gradients = pointers.argument_gradients.data();
  call.saved = saved.data_ptr();
  take_random(random, call);
  plan.run(call, false);
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

STABLE_TORCH_LIBRARY_IMPL(millrace, CPU, library) {
  library.impl("forward", TORCH_BOX(&forward));
  library.impl("backward", TORCH_BOX(&backward));
}
