// Matrix products as three loops over a GemmCall, and invented algorithms.
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/stored_type.h"
#include "base/text.h"
#include "device/cuda/column_major.h"
#include "device/cuda/kernel_parameters.h"
#include "device/emulated/emulated_gpu.h"
#include "device/emulated/emulated_launch.h"
#include "device/emulated/emulated_memory.h"

namespace millrace::emulated {
namespace {

constexpr int64_t kScratchAlignment = 256;

int64_t aligned(int64_t bytes) { return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment; }

// --- Algorithms ---

bool is_aligned(const ColumnMajorProduct& shape) {
  return shape.a.pointer_alignment % 16 == 0 && shape.b.pointer_alignment % 16 == 0 &&
         shape.c.pointer_alignment % 16 == 0;
}

bool admits(const GemmCall& call, const ColumnMajorProduct& shape, const GemmAlgorithm& algorithm) {
  switch (algorithm.id) {
    case kHeuristicAlgorithm: return algorithm.split_k == 1 && algorithm.tile >= 0 && algorithm.tile < 3;
    case kSplittingAlgorithm: return algorithm.split_k > 1 && algorithm.split_k <= 4 && call.k >= algorithm.split_k;
    case kAlignedAlgorithm: return is_aligned(shape);
    case kFastAlgorithm: return true;
    default: return false;
  }
}

bool is_one_of(const char* variable, const GemmAlgorithm& algorithm) {
  return algorithm.id >= 0 && number_of(variable, -1) == algorithm.id;
}

double pretended_seconds(const GemmCall& call, const GemmAlgorithm& algorithm) {
  int64_t batch = 1;
  for (const GemmLoop& loop : call.loops) batch *= loop.extent;
  const double flops = 2.0 * static_cast<double>(batch * call.m * call.n * call.k);
  const double strides = 1e-9 * static_cast<double>((call.a_m + 3 * call.b_n + 7 * call.c_m) % 101);
  const double by_algorithm = algorithm.id == kFastAlgorithm ? 0.7 : 1 + 0.01 * (algorithm.id + algorithm.tile);
  return (5e-5 + flops / 1e12 + strides) * by_algorithm;
}

// --- The product ---

// The call's matrix, converted to the type of the computation.
template <class F>
std::vector<F> numbers_of(const char* from, int64_t elements, StoredType type) {
  std::vector<F> numbers(static_cast<size_t>(elements));
  const auto bytes = static_cast<size_t>(bytes_of(type));
  for (size_t k = 0; k < numbers.size(); ++k) {
    uint64_t bits = 0;
    std::memcpy(&bits, from + k * bytes, bytes);  // the least significant bytes come first
    numbers[k] = static_cast<F>(decode(bits, type));
  }
  return numbers;
}

// A tanh as inexact as a GPU's instruction: eleven bits.
double coarse_tanh(double x) {
  int exponent = 0;
  const double fraction = std::frexp(std::tanh(x), &exponent);
  return std::ldexp(std::trunc(fraction * 0x1p11), exponent - 11);
}

// The stored result of a sum; `y`: the element of the auxiliary matrix.
double activated(Activation activation, double sum, double y) {
  constexpr double kRoot = 0.7978845608028654;  // of 2/π
  constexpr double kCubic = 0.044715;
  const auto tanh_of = [&](double x) { return coarse_tanh(kRoot * (x + kCubic * x * x * x)); };
  switch (activation) {
    case Activation::none: return sum;
    case Activation::relu: return sum < 0 ? 0 : sum;
    case Activation::exact_gelu: break;  // column_major refuses it
    case Activation::gelu: return sum / 2 * (1 + tanh_of(sum));
    case Activation::gelu_gradient: {
      const double t = tanh_of(y);
      return sum / 2 * (1 + t + y * (1 - t * t) * kRoot * (1 + 3 * kCubic * y * y));
    }
  }
  return sum;
}

// `d`: the tensor that the call adds, if any; `v`: its vector, if any; `y`: its auxiliary matrix.
template <class F>
void multiply(const GemmCall& call, double alpha, int splits, const char* a, const char* b, const char* d, char* c,
              char* v, char* y) {
  const std::vector<F> left = numbers_of<F>(a, call.a_elements, call.type);
  const std::vector<F> right = numbers_of<F>(b, call.b_elements, call.type);
  const GemmLoop loop = call.loops.empty() ? GemmLoop{} : call.loops.front();
  const std::vector<F> bias = numbers_of<F>(v, call.vector == GemmVector::bias ? call.v_elements : 0, call.type);
  const std::vector<F> added = numbers_of<F>(d, call.adds ? call.c_elements : 0, call.type);
  const bool gradient = call.activation == Activation::gelu_gradient;
  const std::vector<F> auxiliary = numbers_of<F>(y, gradient ? call.c_elements : 0, call.type);
  const auto bytes = static_cast<size_t>(bytes_of(call.type));
  const auto store = [&](char* to, int64_t element, F value) {
    const uint64_t bits = encode(static_cast<double>(value), call.type);
    std::memcpy(to + static_cast<size_t>(element) * bytes, &bits, bytes);
  };
  for (int64_t turn = 0; turn < loop.extent; ++turn) {
    for (int64_t m = 0; m < call.m; ++m) {
      for (int64_t n = 0; n < call.n; ++n) {
        F sum = 0;
        F of_a = 0;
        F of_b = 0;
        for (int split = 0; split < splits; ++split) {
          F part = 0;
          for (int64_t k = call.k * split / splits; k < call.k * (split + 1) / splits; ++k) {
            const F of_left = left[static_cast<size_t>(call.a_first + turn * loop.a + m * call.a_m + k * call.a_k)];
            const F of_right = right[static_cast<size_t>(call.b_first + turn * loop.b + k * call.b_k + n * call.b_n)];
            part += of_left * of_right;
            of_a += of_left;
            of_b += of_right;
          }
          sum += part;
        }
        sum *= static_cast<F>(alpha);
        const int64_t at = turn * loop.v + m * call.v_m + n * call.v_n;
        if (call.vector == GemmVector::bias) sum += bias[static_cast<size_t>(at)];
        if (call.vector == GemmVector::gradient_of_a) store(v, at, of_a);
        if (call.vector == GemmVector::gradient_of_b) store(v, at, of_b);
        const int64_t of_c = turn * loop.c + m * call.c_m + n * call.c_n;
        if (call.adds) sum += added[static_cast<size_t>(of_c)];
        const double beside = gradient ? static_cast<double>(auxiliary[static_cast<size_t>(of_c)]) : 0;
        if (call.has_auxiliary && !gradient) store(y, of_c, sum);
        store(c, of_c, static_cast<F>(activated(call.activation, static_cast<double>(sum), beside)));
      }
    }
  }
}

// How many elements of a matrix the call reaches.
int64_t reach(const GemmCall& call, int64_t rows, int64_t row, int64_t columns, int64_t column,
              int64_t GemmLoop::*step) {
  int64_t last = (rows - 1) * row + (columns - 1) * column;
  for (const GemmLoop& loop : call.loops) last += (loop.extent - 1) * (loop.*step);
  return last + 1;
}

class ProductLaunch final : public GpuLaunch {
 public:
  ProductLaunch(std::shared_ptr<Stream> stream, const Launch& launch, const GemmAlgorithm& algorithm)
      : work_(std::move(stream)), launch_(launch), algorithm_(algorithm) {
    for (size_t operand = 0; operand < 3; ++operand)
      places_[operand + 1] = places_[operand] + aligned(launch.copied_bytes(operand));
    if (algorithm.split_k > 1)
      workspace_bytes_ = algorithm.split_k * launch.gemm.c_elements * static_cast<int64_t>(sizeof(float));
    places_[4] = places_[3] + aligned(launch.vector_bytes * std::ssize(launch.vectors));
    places_[5] = places_[4] + aligned(workspace_bytes_);
  }

  Result<Done> run(void* const* tensors, const double* arguments, const void*, void* scratch) override {
    double alpha = 1;
    for (const LaunchNumber& number : launch_.numbers) alpha *= value_of(number, arguments);
    std::array<std::vector<char*>, 4> stacks;  // the last is of the vector
    for (size_t operand = 0; operand < 4; ++operand)
      for (const int tensor : operand == 3 ? launch_.vectors : launch_.operands[operand])
        stacks[operand].push_back(static_cast<char*>(tensors[tensor]));
    if (algorithm_.id == kAlignedAlgorithm) {
      for (size_t operand = 0; operand < 3; ++operand) {
        if (launch_.copied_bytes(operand) == 0 && reinterpret_cast<uintptr_t>(stacks[operand].front()) % 16 != 0)
          return Error::make(ErrorKind::failed,
                             concat("cuBLASLt's algorithm needs matrix ", "ABC"[operand], " aligned to 16 bytes"));
      }
    }
    char* const added = launch_.gemm.adds ? static_cast<char*>(tensors[launch_.added]) : nullptr;
    char* const auxiliary = launch_.gemm.has_auxiliary ? static_cast<char*>(tensors[launch_.auxiliary]) : nullptr;
    if (reinterpret_cast<uintptr_t>(auxiliary) % 16 != 0)
      return Error::make(ErrorKind::failed, "cuBLASLt needs the auxiliary matrix aligned to 16 bytes");
    const auto work = [launch = launch_, algorithm = algorithm_, places = places_, workspace = workspace_bytes_, alpha,
                       stacks, added, auxiliary, scratch = static_cast<char*>(scratch)] {
      return multiply_stacks(launch, algorithm, places, workspace, alpha, stacks, added, auxiliary, scratch);
    };
    return work_.put("a product", pretended_seconds(launch_.gemm, algorithm_), work);
  }

  int64_t scratch_bytes() const override { return places_[5]; }

 private:
  static Result<Done> multiply_stacks(const Launch& launch, const GemmAlgorithm& algorithm,
                                      const std::array<int64_t, 6>& places, int64_t workspace, double alpha,
                                      const std::array<std::vector<char*>, 4>& stacks, const char* added,
                                      char* auxiliary, char* scratch) {
    const Memory& memory = Memory::of_process();
    const GemmCall& call = launch.gemm;
    const auto illegal = [](const std::string& what) {
      return Error::make(
          ErrorKind::failed,
          concat("cannot run what is on the GPU's stream: ", "CUDA_ERROR_ILLEGAL_ADDRESS: a product: ", what));
    };
    if (is_one_of("MILLRACE_EMULATED_LOST", algorithm)) return illegal("its algorithm takes the GPU down");
    if (places[5] > 0 &&
        (!memory.has(scratch, places[5]) || reinterpret_cast<uintptr_t>(scratch) % kScratchAlignment != 0))
      return illegal("its scratch is not in the device's memory, or not aligned");
    const std::array<int64_t, 4> elements = {call.a_elements, call.b_elements, call.c_elements, call.v_elements};
    const std::array<int64_t, 4> sizes = {launch.operand_bytes[0], launch.operand_bytes[1], launch.operand_bytes[2],
                                          launch.vector_bytes};
    const std::array<bool, 4> packed = {launch.packed[0], launch.packed[1], launch.packed[2], launch.packed_vectors};
    const std::array<bool, 4> read = {true, true, false, call.vector == GemmVector::bias};
    std::array<char*, 4> at{};
    for (size_t operand = 0; operand < 4; ++operand) {
      const std::vector<char*>& stack = stacks[operand];
      if (stack.empty()) continue;
      const auto bytes = sizes[operand];
      for (char* const tensor : stack)
        if (packed[operand] && !memory.has(tensor, bytes)) return illegal("a tensor is not on the device");
      const bool unfolded = operand < 2 && !launch.unfolded[operand].empty();
      at[operand] = packed[operand] || unfolded ? scratch + places[operand] : stack.front();
      if (!memory.has(at[operand], elements[operand] * bytes_of(call.type))) return illegal("a matrix is not there");
      for (size_t k = 0; packed[operand] && read[operand] && k < stack.size(); ++k)
        std::memcpy(at[operand] + static_cast<int64_t>(k) * bytes, stack[k], static_cast<size_t>(bytes));
      for (size_t k = 1; !packed[operand] && k < stack.size(); ++k)
        if (stack[k] != stack.front() + static_cast<int64_t>(k) * bytes) return illegal("stacked tensors are apart");
    }
    if (call.adds && !memory.has(added, call.c_elements * bytes_of(call.type)))
      return illegal("what it adds is not there");
    if (call.adds && added == at[2]) return illegal("what it adds is where it writes");
    if (call.has_auxiliary && !memory.has(auxiliary, call.c_elements * bytes_of(call.type)))
      return illegal("its auxiliary matrix is not there");
    if (call.has_auxiliary && auxiliary == at[2]) return illegal("its auxiliary matrix is where it writes");
    // The contents of a library's workspace are undefined.
    if (workspace > 0) std::memset(scratch + places[4], 0xff, static_cast<size_t>(workspace));
    const int splits = std::max(algorithm.split_k, 1);
    if (call.type == StoredType::f64)
      multiply<double>(call, alpha, splits, at[0], at[1], added, at[2], at[3], auxiliary);
    else
      multiply<float>(call, alpha, splits, at[0], at[1], added, at[2], at[3], auxiliary);
    char* const spoilt = is_one_of("MILLRACE_EMULATED_WRONG_AUXILIARY", algorithm) ? auxiliary
                         : is_one_of("MILLRACE_EMULATED_WRONG", algorithm)         ? at[2]
                                                                                   : nullptr;
    if (spoilt != nullptr)
      std::memset(spoilt + reach(call, call.m, call.c_m, call.n, call.c_n, &GemmLoop::c) / 2 * bytes_of(call.type),
                  0x3e, static_cast<size_t>(bytes_of(call.type)));
    for (size_t operand = 0; operand < 4; ++operand)
      for (size_t k = 0; packed[operand] && !read[operand] && k < stacks[operand].size(); ++k)
        std::memcpy(stacks[operand][k], at[operand] + static_cast<int64_t>(k) * sizes[operand],
                    static_cast<size_t>(sizes[operand]));
    if (!memory.is_intact()) return illegal("it writes beside an allocation");
    return Done{};
  }

  LaunchedWork work_;
  Launch launch_;
  GemmAlgorithm algorithm_;
  int64_t workspace_bytes_ = 0;
  std::array<int64_t, 6> places_{};  // operands and vectors that are copied together, the workspace, the end
};

}  // namespace

int64_t number_of(const char* variable, int64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoll(text, nullptr, 10);
}

Result<std::vector<GemmAlgorithm>> list_algorithms(const GemmCall& call) {
  const Result<ColumnMajorProduct> shape = column_major(call);
  if (!shape) return shape.error();
  std::vector<GemmAlgorithm> asked;
  for (int tile = 0; tile < 3; ++tile) asked.push_back({kHeuristicAlgorithm, tile});
  for (int split = 2; split <= 4; split += 2) asked.push_back({kSplittingAlgorithm, 0, 0, split, 1});
  asked.push_back({kAlignedAlgorithm, 5, 4, 1, 0, 1, 2, 3, 4});
  asked.push_back({kFastAlgorithm, 7});
  std::vector<GemmAlgorithm> admitted;
  for (const GemmAlgorithm& algorithm : asked)
    if (admits(call, *shape, algorithm)) admitted.push_back(algorithm);
  return admitted;
}

Result<std::unique_ptr<GpuLaunch>> prepare_product(std::shared_ptr<Stream> stream, const Launch& launch) {
  const GemmCall& call = launch.gemm;
  if (call.library != GemmLibrary::cublaslt)
    return Error::make(ErrorKind::failed, "a product for a CPU library was given to a GPU");
  for (const std::vector<int>& stack : launch.operands)
    if (stack.empty()) return Error::make(ErrorKind::failed, "a product lacks a matrix");
  if (launch.vectors.empty() != (call.vector == GemmVector::none))
    return Error::make(ErrorKind::failed, "a product lacks its vector, or has one that it does not use");
  if (call.adds != (launch.added >= 0))
    return Error::make(ErrorKind::failed, "a product lacks the tensor that it adds, or has one that it does not add");
  if (call.has_auxiliary != (launch.auxiliary >= 0))
    return Error::make(ErrorKind::failed, "a product lacks its auxiliary matrix, or has one that it does not use");
  const Result<ColumnMajorProduct> shape = column_major(call);
  if (!shape) return shape.error();
  GemmAlgorithm algorithm = call.algorithm;
  if (algorithm.id < 0) algorithm = {kHeuristicAlgorithm};
  if (!admits(call, *shape, algorithm) || is_one_of("MILLRACE_EMULATED_REFUSED", algorithm))
    return Error::make(ErrorKind::failed,
                       concat("cuBLASLt does not accept its algorithm ", algorithm.id, " for a product"),
                       "another version of cuBLASLt numbers its algorithms differently: explore again");
  if (call.a_first + reach(call, call.m, call.a_m, call.k, call.a_k, &GemmLoop::a) > call.a_elements ||
      call.b_first + reach(call, call.k, call.b_k, call.n, call.b_n, &GemmLoop::b) > call.b_elements ||
      reach(call, call.m, call.c_m, call.n, call.c_n, &GemmLoop::c) > call.c_elements ||
      (call.vector != GemmVector::none &&
       reach(call, call.m, call.v_m, call.n, call.v_n, &GemmLoop::v) > call.v_elements))
    return Error::make(ErrorKind::failed, "a product reaches beyond its matrices");
  return std::unique_ptr<GpuLaunch>(std::make_unique<ProductLaunch>(std::move(stream), launch, algorithm));
}

}  // namespace millrace::emulated
