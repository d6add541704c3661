// A GPU through device/gpu.h: memory and products of a real and of the emulated GPU, kernels and clock of a real one.
// Without a GPU, the cases that need one are reported as skipped. Over 500 lines, because the cases share the GPU and
// the comparison of products.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "base/stored_type.h"
#include "base/text.h"
#include "device/emulated/emulated_gpu.h"
#include "device/gpu.h"
#include "device/gpu_for_tests.h"
#include "measure/library_gelu.h"
#include "reference/activations.h"

namespace millrace {
namespace {

enum class Machine { cuda, emulated };

class OneGpuTest : public testing::Test {
 protected:
  static void TearDownTestSuite() { opened_.clear(); }

  // Each GPU is opened once per suite. Skips the test if there is none.
  void open(Machine machine) {
    if (!opened_.contains(machine))
      opened_.emplace(machine, machine == Machine::cuda ? gpu_for_tests() : emulated::make_gpu());
    const Result<std::unique_ptr<Gpu>>& gpu = opened_.at(machine);
    if (!gpu) GTEST_SKIP() << to_string(gpu.error());
    gpu_ = gpu->get();
  }
  void TearDown() override {
    for (void* memory : memory_) gpu_->free(memory);
  }

  void* allocate(int64_t bytes) {
    const Result<void*> memory = gpu_->allocate(bytes);
    EXPECT_TRUE(memory) << to_string(memory.error());
    if (!memory) return nullptr;
    memory_.push_back(*memory);
    EXPECT_TRUE(gpu_->fill(*memory, 0xFF, bytes));
    return *memory;
  }
  template <class T>
  void* upload(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    void* memory = allocate(bytes);
    expect_done(gpu_->copy_in(memory, values.data(), bytes));
    return memory;
  }
  template <class T>
  std::vector<T> download(const void* memory, size_t count) {
    std::vector<T> values(count);
    expect_done(gpu_->copy_out(values.data(), memory, static_cast<int64_t>(count * sizeof(T))));
    return values;
  }
  static void expect_done(const Result<Done>& done) { EXPECT_TRUE(done) << to_string(done.error()); }

  std::unique_ptr<GpuLaunch> prepare(const Launch& launch, const std::string& cubin = "") {
    Result<std::unique_ptr<GpuLaunch>> prepared = gpu_->prepare(launch, cubin);
    EXPECT_TRUE(prepared) << to_string(prepared.error());
    return prepared ? std::move(*prepared) : nullptr;
  }
  void* scratch_of(const GpuLaunch& launch) {
    return launch.scratch_bytes() > 0 ? allocate(launch.scratch_bytes()) : nullptr;
  }

  Gpu* gpu_ = nullptr;
  std::vector<void*> memory_;

 private:
  static std::map<Machine, Result<std::unique_ptr<Gpu>>> opened_;
};
std::map<Machine, Result<std::unique_ptr<Gpu>>> OneGpuTest::opened_;

class CudaGpuTest : public OneGpuTest, public testing::WithParamInterface<Machine> {
 protected:
  void SetUp() override { open(GetParam()); }
  static bool is_emulated() { return GetParam() == Machine::emulated; }
};
INSTANTIATE_TEST_SUITE_P(Cuda, CudaGpuTest, testing::Values(Machine::cuda));
INSTANTIATE_TEST_SUITE_P(Emulated, CudaGpuTest, testing::Values(Machine::emulated));

TEST_P(CudaGpuTest, DescribesItself) {
  const GpuInfo& info = gpu_->info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.major, 7);
  EXPECT_GT(info.multiprocessors, 0);
  EXPECT_GT(info.memory_bytes, is_emulated() ? 0 : int64_t{1} << 30);
  EXPECT_GT(info.l2_bytes, 0);
  EXPECT_GE(info.shared_bytes, 48 << 10);
  EXPECT_FALSE(info.driver.empty());
  EXPECT_FALSE(info.cublaslt.empty());
}

TEST_P(CudaGpuTest, CopiesPreserveMemory) {
  std::vector<uint8_t> bytes(100003);
  for (size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<uint8_t>(k * 31 + k / 256);
  void* memory = upload(bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0U);
  void* other = allocate(static_cast<int64_t>(bytes.size()));
  expect_done(gpu_->copy(other, memory, static_cast<int64_t>(bytes.size())));
  expect_done(gpu_->fill(memory, 0x5A, 7));
  EXPECT_EQ(download<uint8_t>(other, bytes.size()), bytes);
  std::fill_n(bytes.begin(), 7, uint8_t{0x5A});
  EXPECT_EQ(download<uint8_t>(memory, bytes.size()), bytes);
  expect_done(gpu_->copy_in(memory, nullptr, 0));
  expect_done(gpu_->copy_out(nullptr, memory, 0));
}

TEST_P(CudaGpuTest, TooLargeAnAllocationIsAnError) {
  const Result<void*> memory = gpu_->allocate(int64_t{1} << 46);
  ASSERT_FALSE(memory);
  EXPECT_NE(to_string(memory.error()).find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos);
  EXPECT_TRUE(gpu_->wait()) << "the GPU must still work";
}

// ---- Kernels ----

constexpr const char* kKernels = R"(
struct GpuState { unsigned long long seed; unsigned step, unused; };
struct Parameters {
  void* tensors[2]; double values[2]; const GpuState* state; char* scratch; unsigned subsequences[3];
};
__device__ void begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
extern "C" __global__ void scale(Parameters p) {
  begin();
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  ((float*)p.scratch)[i] = ((const float*)p.tensors[0])[i] * (float)p.values[0] + (float)p.state->step;
}
extern "C" __global__ void add(Parameters p) {
  begin();
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  ((float*)p.tensors[1])[i] = ((const float*)p.scratch)[i] + (float)p.values[1] + (float)p.subsequences[2];
}
)";

class CudaKernelTest : public OneGpuTest {
 protected:
  void SetUp() override {
    open(Machine::cuda);
    if (IsSkipped()) return;
    const Result<std::unique_ptr<GpuCompiler>> compiler = gpu_compiler_for_tests();
    if (!compiler) GTEST_SKIP() << to_string(compiler.error());
    const Result<std::string> cubin = (*compiler)->compile(kKernels, gpu_->info().architecture());
    ASSERT_TRUE(cubin) << to_string(cubin.error());
    cubin_ = *cubin;
    launch_.kernel = kKernels;
    launch_.grids = {{"scale", 4, 64}, {"add", 2, 128}};
    launch_.tensor_count = 2;
    launch_.numbers = {{0, 0}, {-1, 0.5}};
    launch_.subsequences = {1, 2, 100};
    launch_.scratch_bytes = 256 * sizeof(float);
    input_.resize(256);
    std::iota(input_.begin(), input_.end(), 0.0F);
    tensors_ = {upload(input_), allocate(256 * sizeof(float))};
    state_ = upload(std::vector<GpuState>{{1, 1000, 0}});
    scratch_ = allocate(launch_.scratch_bytes);
  }

  // The output for a factor and a step.
  std::vector<float> expected(float factor, float step) const {
    std::vector<float> values;
    for (const float x : input_) values.push_back(x * factor + step + 0.5F + 100);
    return values;
  }
  Result<Done> run(GpuLaunch& launch, double factor) { return launch.run(tensors_.data(), &factor, state_, scratch_); }
  std::vector<float> output() { return download<float>(tensors_[1], 256); }

  std::string cubin_;
  Launch launch_;
  std::vector<float> input_;
  std::vector<void*> tensors_;
  void* state_ = nullptr;
  void* scratch_ = nullptr;
};

TEST_F(CudaKernelTest, KernelsRunInOrder) {
  const std::unique_ptr<GpuLaunch> launch = prepare(launch_, cubin_);
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->scratch_bytes(), 1024);
  expect_done(run(*launch, 3));
  EXPECT_EQ(output(), expected(3, 1000));
  expect_done(run(*launch, -2));
  EXPECT_EQ(output(), expected(-2, 1000));
}

TEST_F(CudaKernelTest, InvalidLaunchesAreRefusedBeforehand) {
  const auto why = [&](const Launch& launch, const std::string& cubin) {
    const Result<std::unique_ptr<GpuLaunch>> prepared = gpu_->prepare(launch, cubin);
    return prepared ? "" : to_string(prepared.error());
  };
  Launch wrong = launch_;
  wrong.grids[1].function = "absent";
  EXPECT_NE(why(wrong, cubin_).find("absent"), std::string::npos);
  wrong = launch_;
  wrong.grids[0].threads = 2048;
  EXPECT_NE(why(wrong, cubin_).find("threads"), std::string::npos);
  wrong = launch_;
  wrong.grids[0].blocks = 0;
  EXPECT_NE(why(wrong, cubin_).find("blocks"), std::string::npos);
  wrong = launch_;
  wrong.tensor_count = 5;
  EXPECT_NE(why(wrong, cubin_).find("parameter"), std::string::npos);
  EXPECT_NE(why(launch_, std::string(1000, 'x')), "");
  const std::unique_ptr<GpuLaunch> launch = prepare(launch_, cubin_);
  ASSERT_TRUE(launch) << "the GPU must still work";
  expect_done(run(*launch, 3));
  EXPECT_EQ(output(), expected(3, 1000));
}

TEST_F(CudaKernelTest, AGraphReplaysWithTheCurrentState) {
  const std::unique_ptr<GpuLaunch> launch = prepare(launch_, cubin_);
  ASSERT_TRUE(launch);
  expect_done(run(*launch, 1));
  expect_done(gpu_->wait());
  expect_done(gpu_->fill(tensors_[1], 0, 1024));
  Result<std::unique_ptr<GpuGraph>> graph = gpu_->record([&] { return run(*launch, 5); });
  ASSERT_TRUE(graph) << to_string(graph.error());
  EXPECT_EQ(output(), std::vector<float>(256, 0)) << "recording runs nothing";
  for (const uint32_t step : {7U, 8U}) {
    const GpuState state{1, step, 0};
    expect_done(gpu_->copy_in(state_, &state, sizeof(state)));
    expect_done((*graph)->replay());
    EXPECT_EQ(output(), expected(5, static_cast<float>(step)));
  }
  const auto failed = gpu_->record([]() -> Result<Done> { return Error::make(ErrorKind::failed, "not today"); });
  ASSERT_FALSE(failed);
  EXPECT_NE(to_string(failed.error()).find("not today"), std::string::npos);
  expect_done((*graph)->replay());
  expect_done(gpu_->wait());
}

TEST_F(CudaKernelTest, TimesWorkBetweenTwoEvents) {
  const std::unique_ptr<GpuLaunch> launch = prepare(launch_, cubin_);
  ASSERT_TRUE(launch);
  const auto before = [&] { return gpu_->fill(scratch_, 0, 1024); };
  const Result<double> once = gpu_->time(before, [&] { return run(*launch, 1); });
  ASSERT_TRUE(once) << to_string(once.error());
  EXPECT_GT(*once, 0);
  EXPECT_LT(*once, 1);
  EXPECT_FALSE(gpu_->time(before, []() -> Result<Done> { return Error::make(ErrorKind::failed, "no"); }));
}

TEST_F(CudaKernelTest, ReadsItsClock) {
  for (int turn = 0; turn < 2; ++turn) {
    const Result<double> clock = gpu_->clock_hertz();
    ASSERT_TRUE(clock) << to_string(clock.error());
    EXPECT_LT(*clock, 1.02 * gpu_->info().clock_khz * 1e3);
    EXPECT_GT(*clock, 0.4 * gpu_->info().clock_khz * 1e3) << "even an idle GPU is not slower";
  }
}

TEST_F(CudaKernelTest, LaunchesOutliveTheGpu) {
  Result<std::unique_ptr<Gpu>> second = gpu_for_tests();
  ASSERT_TRUE(second) << to_string(second.error());
  Result<std::unique_ptr<GpuLaunch>> launch = (*second)->prepare(launch_, cubin_);
  ASSERT_TRUE(launch) << to_string(launch.error());
  second->reset();
  expect_done(gpu_->wait());  // for the inputs
  expect_done(run(**launch, 3));
  launch->reset();
}

// ---- Products ----

// Sums of products of -1, 0 and 1 are exact in every type, in any order.
uint64_t random_bits(uint64_t& state) {
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return state >> 33;
}

struct Problem {
  GemmCall call;
  std::vector<double> a;
  std::vector<double> b;
  std::vector<double> c;  // -1 for elements that are not written
  std::vector<double> v;  // if the call has a vector
  std::vector<double> d;  // if the call adds
};

void fill_problem(Problem& problem) {
  GemmCall& call = problem.call;
  const GemmLoop loop = call.loops.empty() ? GemmLoop{} : call.loops.front();
  const auto room = [&](int64_t one, int64_t one_stride, int64_t other, int64_t other_stride, int64_t step) {
    return static_cast<size_t>((one - 1) * one_stride + (other - 1) * other_stride + (loop.extent - 1) * step + 1);
  };
  problem.a.resize(room(call.m, call.a_m, call.k, call.a_k, loop.a));
  problem.b.resize(room(call.k, call.b_k, call.n, call.b_n, loop.b));
  problem.c.assign(room(call.m, call.c_m, call.n, call.c_n, loop.c), -1);
  uint64_t state = 1;
  if (call.vector != GemmVector::none) problem.v.resize(room(call.m, call.v_m, call.n, call.v_n, loop.v));
  if (call.adds) problem.d.resize(problem.c.size());
  call.a_elements = std::ssize(problem.a);
  call.b_elements = std::ssize(problem.b);
  call.c_elements = std::ssize(problem.c);
  call.v_elements = std::ssize(problem.v);
  for (std::vector<double>* values : {&problem.a, &problem.b, &problem.v, &problem.d})
    for (double& value : *values) value = static_cast<double>(random_bits(state) % 3) - 1;
  for (int64_t step = 0; step < loop.extent; ++step)
    for (int64_t i = 0; i < call.m; ++i)
      for (int64_t j = 0; j < call.n; ++j) {
        double sum = 0;
        double of_a = 0;
        double of_b = 0;
        for (int64_t l = 0; l < call.k; ++l) {
          const double a = problem.a[static_cast<size_t>(step * loop.a + i * call.a_m + l * call.a_k)];
          const double b = problem.b[static_cast<size_t>(step * loop.b + l * call.b_k + j * call.b_n)];
          sum += a * b;
          of_a += a;
          of_b += b;
        }
        const auto v = static_cast<size_t>(step * loop.v + i * call.v_m + j * call.v_n);
        if (call.vector == GemmVector::bias) sum += problem.v[v];
        if (call.vector == GemmVector::gradient_of_a) problem.v[v] = of_a;
        if (call.vector == GemmVector::gradient_of_b) problem.v[v] = of_b;
        const auto c = static_cast<size_t>(step * loop.c + i * call.c_m + j * call.c_n);
        if (call.adds) sum += problem.d[c];
        if (call.activation == Activation::relu) sum = std::max(sum, 0.0);
        problem.c[c] = sum;
      }
}

Problem problem_of(StoredType type, int64_t m, int64_t n, int64_t k, int order) {
  Problem problem;
  GemmCall& call = problem.call;
  call.library = GemmLibrary::cublaslt;
  call.type = type;
  call.tensor_cores = type != StoredType::f32;
  call.m = m;
  call.n = n;
  call.k = k;
  const auto lie = [&](int bit, int64_t rows, int64_t columns, int64_t& row, int64_t& column) {
    const bool by_rows = ((order >> bit) & 1) != 0;
    row = by_rows ? columns : 1;
    column = by_rows ? 1 : rows;
  };
  lie(0, m, k, call.a_m, call.a_k);
  lie(1, k, n, call.b_k, call.b_n);
  lie(2, m, n, call.c_m, call.c_n);
  return problem;
}

std::vector<uint8_t> encoded(const std::vector<double>& values, StoredType type, double factor = 1) {
  const auto size = static_cast<size_t>(bytes_of(type));
  std::vector<uint8_t> bytes(values.size() * size);
  for (size_t k = 0; k < values.size(); ++k) {
    const uint64_t bits = encode(values[k] * factor, type);
    std::memcpy(bytes.data() + k * size, &bits, size);
  }
  return bytes;
}

class CudaProductTest : public CudaGpuTest {
 protected:
  static Launch launch_of(const GemmCall& call) {
    Launch launch;
    launch.gemm = call;
    launch.operands = {{{0}, {1}, {2}}};
    if (call.vector != GemmVector::none) {
      launch.vectors = {3};
      launch.vector_bytes = call.v_elements * bytes_of(call.type);
    }
    if (call.adds) launch.added = 3;
    return launch;
  }

  // Runs it on outputs that were -1 and compares all bytes.
  void check(const Problem& problem, const std::string& where) {
    const StoredType type = problem.call.type;
    std::vector<void*> tensors = {upload(encoded(problem.a, type)), upload(encoded(problem.b, type)), nullptr};
    tensors[2] = upload(encoded(std::vector<double>(problem.c.size(), -1), type));
    if (problem.call.adds) tensors.push_back(upload(encoded(problem.d, type)));
    const std::unique_ptr<GpuLaunch> launch = prepare(launch_of(problem.call));
    ASSERT_TRUE(launch) << where;
    expect_done(launch->run(tensors.data(), nullptr, nullptr, scratch_of(*launch)));
    const std::vector<uint8_t> expected = encoded(problem.c, type);
    EXPECT_EQ(download<uint8_t>(tensors[2], expected.size()), expected) << where;
  }

  // The same with the vector, `offset` elements into its allocation; false if the library has no algorithm for it.
  bool check_vector(Problem& problem, size_t offset, const std::string& where) {
    GemmCall& call = problem.call;
    fill_problem(problem);
    const StoredType type = call.type;
    const auto element = static_cast<size_t>(bytes_of(type));
    std::vector<double> given(offset, -1);
    for (const double value : problem.v) given.push_back(call.vector == GemmVector::bias ? value : -1);
    void* const vector = upload(encoded(given, type));
    std::vector<void*> tensors = {upload(encoded(problem.a, type)), upload(encoded(problem.b, type)),
                                  upload(encoded(std::vector<double>(problem.c.size(), -1), type)),
                                  static_cast<char*>(vector) + offset * element};
    Result<std::unique_ptr<GpuLaunch>> launch = gpu_->prepare(launch_of(call), "");
    if (!launch) {
      std::cout << where << ": " << to_string(launch.error());
      return false;
    }
    expect_done((*launch)->run(tensors.data(), nullptr, nullptr, scratch_of(**launch)));
    EXPECT_EQ(download<uint8_t>(tensors[2], problem.c.size() * element), encoded(problem.c, type)) << where;
    std::vector<double> expected(offset, -1);
    expected.insert(expected.end(), problem.v.begin(), problem.v.end());
    EXPECT_EQ(download<uint8_t>(vector, expected.size() * element), encoded(expected, type)) << where;
    return true;
  }

  // A product with a GELU, or its gradient, whose sums are in `problem.c`; false if the library has no algorithm.
  bool check_gelu(const Problem& problem, const std::string& where) {
    const GemmCall& call = problem.call;
    const bool gradient = call.activation == Activation::gelu_gradient;
    std::vector<double> taken_of(problem.c.size(), -1);
    uint64_t state = 7;
    if (gradient)
      for (double& value : taken_of) value = static_cast<double>(random_bits(state) % 64) / 16 - 2;
    std::vector<void*> tensors = {upload(encoded(problem.a, call.type)), upload(encoded(problem.b, call.type)),
                                  upload(encoded(std::vector<double>(problem.c.size(), -1), call.type))};
    Launch launch = launch_of(call);
    if (!problem.v.empty()) tensors.push_back(upload(encoded(problem.v, call.type)));
    if (call.has_auxiliary) {
      launch.auxiliary = static_cast<int>(tensors.size());
      tensors.push_back(upload(encoded(taken_of, call.type)));
    }
    Result<std::unique_ptr<GpuLaunch>> prepared = gpu_->prepare(launch, "");
    if (!prepared) {
      std::cout << where << ": " << to_string(prepared.error());
      return false;
    }
    expect_done((*prepared)->run(tensors.data(), nullptr, nullptr, scratch_of(**prepared)));
    const auto element = static_cast<size_t>(bytes_of(call.type));
    if (call.has_auxiliary) {
      const std::vector<uint8_t> expected = encoded(gradient ? taken_of : problem.c, call.type);
      EXPECT_EQ(download<uint8_t>(tensors[static_cast<size_t>(launch.auxiliary)], expected.size()), expected) << where;
    }
    const std::vector<uint8_t> bytes = download<uint8_t>(tensors[2], problem.c.size() * element);
    size_t wrong = 0;
    for (size_t k = 0; k < problem.c.size(); ++k) {
      uint64_t bits = 0;
      std::memcpy(&bits, bytes.data() + k * element, element);
      const double found = decode(bits, call.type);
      const double sum = problem.c[k];
      const double right = gradient ? gelu_tanh_dx(taken_of[k], sum) : gelu_tanh(sum);
      const double error = gradient ? library_gelu_gradient_error(taken_of[k], sum) : library_gelu_error(sum);
      const double stored = std::abs(right) * (call.type == StoredType::f16 ? 0x1p-11 : 0x1p-8) + 0x1p-25;
      if (!(std::abs(found - right) <= error + stored) && ++wrong <= 3)
        ADD_FAILURE() << where << ": [" << k << "] is " << found << ", not " << right;
    }
    return true;
  }

  // Runs every algorithm on outputs of NaN; returns their number.
  size_t check_algorithms(const Problem& problem) {
    const StoredType type = problem.call.type;
    Result<std::vector<GemmAlgorithm>> algorithms = gpu_->algorithms(problem.call);
    EXPECT_TRUE(algorithms) << to_string(algorithms.error());
    if (!algorithms) return 0;
    std::vector<void*> tensors = {upload(encoded(problem.a, type)), upload(encoded(problem.b, type)), nullptr};
    const std::vector<uint8_t> expected = encoded(problem.c, type);
    const auto bytes = static_cast<int64_t>(expected.size());
    tensors[2] = allocate(bytes);
    if (!problem.v.empty()) tensors.push_back(upload(encoded(problem.v, type)));
    if (!problem.d.empty()) tensors.push_back(upload(encoded(problem.d, type)));
    void* scratch = allocate(int64_t{32} << 20);
    size_t wrong = 0;
    size_t rejected = 0;  // listed, but cannot run: each costs an exploration one trial
    for (const GemmAlgorithm& algorithm : *algorithms) {
      Launch launch = launch_of(problem.call);
      launch.gemm.algorithm = algorithm;
      const std::string where =
          concat(algorithm.id, " tile ", algorithm.tile, " stages ", algorithm.stages, " split ", algorithm.split_k,
                 " reduction ", algorithm.reduction, " swizzle ", algorithm.swizzle, " custom ", algorithm.custom,
                 " inner ", algorithm.inner_shape, " cluster ", algorithm.cluster);
      Result<std::unique_ptr<GpuLaunch>> prepared = gpu_->prepare(launch, "");
      Result<Done> ran = prepared ? Result<Done>(Done{}) : Result<Done>(prepared.error());
      if (ran && (*prepared)->scratch_bytes() > int64_t{32} << 20) ADD_FAILURE() << "too much scratch: " << where;
      if (ran) ran = gpu_->fill(tensors[2], 0xFF, bytes);
      if (ran) ran = (*prepared)->run(tensors.data(), nullptr, nullptr, scratch);
      if (!ran && ++rejected <= 3) std::cout << "rejected: " << where << ": " << to_string(ran.error());
      if (ran && download<uint8_t>(tensors[2], expected.size()) != expected && ++wrong <= 5) ADD_FAILURE() << where;
    }
    EXPECT_LE(rejected, algorithms->size() / 2);
    EXPECT_EQ(wrong, 0U) << "of " << algorithms->size();
    return algorithms->size();
  }
};

INSTANTIATE_TEST_SUITE_P(Cuda, CudaProductTest, testing::Values(Machine::cuda));
INSTANTIATE_TEST_SUITE_P(Emulated, CudaProductTest, testing::Values(Machine::emulated));

TEST_P(CudaProductTest, EveryOrderAndTypeIsExact) {
  for (const StoredType type : {StoredType::f16, StoredType::bf16, StoredType::f32, StoredType::f64})
    for (int order = 0; order < 8; ++order) {
      Problem problem = problem_of(type, 48, 40, 56, order);
      fill_problem(problem);
      check(problem, concat(name_of(type), " order ", order));
      problem = problem_of(type, 17, 1, 19, order);
      fill_problem(problem);
      check(problem, concat("odd ", name_of(type), " order ", order));
    }
}

TEST_P(CudaProductTest, BatchesStridedAndShared) {
  for (const StoredType type : {StoredType::f16, StoredType::f32})
    for (int order = 0; order < 8; ++order)
      for (const GemmLoop& loop : {GemmLoop{5, 48 * 56, 56 * 40, 48 * 40}, GemmLoop{5, 0, 56 * 40, 48 * 40},
                                   GemmLoop{5, 48 * 56, 0, 48 * 40}}) {
        Problem problem = problem_of(type, 48, 40, 56, order);
        problem.call.loops = {loop};
        fill_problem(problem);
        check(problem, concat(name_of(type), " order ", order, " a ", loop.a, " b ", loop.b));
      }
}

TEST_P(CudaProductTest, AddsATensor) {
  for (const StoredType type : {StoredType::f16, StoredType::bf16, StoredType::f32, StoredType::f64})
    for (int order = 0; order < 8; ++order)
      for (const int64_t batch : {1, 3}) {
        Problem problem = problem_of(type, 48, 40, 56, order);
        problem.call.adds = true;
        if (batch > 1) problem.call.loops = {{batch, 48 * 56, 56 * 40, 48 * 40}};
        fill_problem(problem);
        check(problem, concat(name_of(type), " order ", order, " batch ", batch));
      }
  Launch launch = launch_of(problem_of(StoredType::f16, 48, 40, 56, 0).call);
  launch.gemm.adds = true;
  EXPECT_FALSE(gpu_->prepare(launch, "")) << "a product without the tensor that it adds";
}

// The factor does not scale the added tensor.
TEST_P(CudaProductTest, AddsToAFactor) {
  Problem problem = problem_of(StoredType::f16, 48, 40, 56, 0);
  fill_problem(problem);
  Launch launch = launch_of(problem.call);
  launch.gemm.adds = true;
  launch.added = 3;
  launch.numbers = {{-1, -2}};
  std::vector<void*> tensors = {upload(encoded(problem.a, StoredType::f16)),
                                upload(encoded(problem.b, StoredType::f16)), allocate(48 * 40 * 2),
                                upload(encoded(std::vector<double>(48 * 40, 5), StoredType::f16))};
  const std::unique_ptr<GpuLaunch> prepared = prepare(launch);
  ASSERT_TRUE(prepared);
  expect_done(prepared->run(tensors.data(), nullptr, nullptr, scratch_of(*prepared)));
  for (double& value : problem.c) value = 5 - 2 * value;
  EXPECT_EQ(download<uint8_t>(tensors[2], 48 * 40 * 2), encoded(problem.c, StoredType::f16));
}

// Biases, with and without a ReLU, and the sums of matrices, in every order, aligned and not. Prints those for which
// the library has no algorithm.
TEST_P(CudaProductTest, Epilogues) {
  size_t done = 0;
  for (const StoredType type : {StoredType::f16, StoredType::bf16, StoredType::f32})
    for (int order = 0; order < 8; ++order)
      for (const GemmVector vector : {GemmVector::bias, GemmVector::gradient_of_a, GemmVector::gradient_of_b})
        for (const int64_t batch : {1, 3})
          for (const size_t offset : {size_t{0}, size_t{1}})
            for (const bool relu : {false, true}) {
              if (relu && vector != GemmVector::bias) continue;
              Problem problem = problem_of(type, 48, 40, 56, order);
              GemmCall& call = problem.call;
              call.vector = vector;
              if (relu) call.activation = Activation::relu;
              const bool by_rows = ((order >> 2) & 1) != 0;
              const bool along_m = vector == GemmVector::bias ? !by_rows : vector == GemmVector::gradient_of_a;
              call.v_m = along_m ? 1 : 0;
              call.v_n = along_m ? 0 : 1;
              if (batch > 1) call.loops = {{batch, 48 * 56, 56 * 40, 48 * 40, along_m ? 48 : 40}};
              const std::string where = concat(name_of(type), " order ", order, " vector ", static_cast<int>(vector),
                                               " batch ", batch, " offset ", offset, relu ? " relu" : "");
              done += check_vector(problem, offset, where) ? 1 : 0;
            }
  std::cout << done << " epilogues of " << 3 * 8 * 2 * 2 * 4 << "\n";
  EXPECT_GT(done, 100U);
}

// A GELU, with and without a bias and the output of its argument, and a GELU's gradient. The argument must be exact,
// the other results as exact as the library's tanh. Prints those for which the library has no algorithm.
TEST_P(CudaProductTest, Gelus) {
  size_t done = 0;
  size_t tried = 0;
  for (const StoredType type : {StoredType::f16, StoredType::bf16})
    for (int order = 0; order < 8; ++order)
      for (const int64_t batch : {1, 3})
        for (const bool bias : {false, true})
          for (const bool auxiliary : {false, true})
            for (const Activation activation : {Activation::gelu, Activation::gelu_gradient}) {
              const bool gradient = activation == Activation::gelu_gradient;
              if (gradient && (bias || !auxiliary)) continue;
              Problem problem = problem_of(type, 48, 40, 56, order);
              GemmCall& call = problem.call;
              const bool along_m = ((order >> 2) & 1) == 0;
              if (bias) call.vector = GemmVector::bias;
              call.v_m = bias && along_m ? 1 : 0;
              call.v_n = bias && !along_m ? 1 : 0;
              if (batch > 1) call.loops = {{batch, 48 * 56, 56 * 40, 48 * 40, bias ? (along_m ? 48 : 40) : 0}};
              fill_problem(problem);  // the GELU's argument
              call.activation = activation;
              call.has_auxiliary = auxiliary;
              const std::string where = concat(name_of(type), " order ", order, " batch ", batch, bias ? " bias" : "",
                                               auxiliary ? " auxiliary" : "", gradient ? " gradient" : "");
              ++tried;
              done += check_gelu(problem, where) ? 1 : 0;
            }
  std::cout << done << " of " << tried << " with a GELU\n";
  EXPECT_GT(done, tried / 2);
}

TEST_P(CudaProductTest, StackedVectors) {
  Problem problem = problem_of(StoredType::f16, 48, 40, 56, 0);
  GemmCall& call = problem.call;
  call.vector = GemmVector::bias;
  call.v_m = 1;
  call.loops = {{2, 48 * 56, 0, 48 * 40, 48}};
  fill_problem(problem);
  Launch launch = launch_of(call);
  launch.vectors = {4, 3};
  launch.packed_vectors = true;
  launch.vector_bytes = 48 * 2;
  const std::vector<uint8_t> v = encoded(problem.v, StoredType::f16);
  std::vector<void*> tensors = {upload(encoded(problem.a, StoredType::f16)),
                                upload(encoded(problem.b, StoredType::f16)), allocate(2 * 48 * 40 * 2),
                                upload(std::vector<uint8_t>(v.begin() + 96, v.end())),
                                upload(std::vector<uint8_t>(v.begin(), v.begin() + 96))};
  const std::unique_ptr<GpuLaunch> prepared = prepare(launch);
  ASSERT_TRUE(prepared);
  expect_done(prepared->run(tensors.data(), nullptr, nullptr, scratch_of(*prepared)));
  EXPECT_EQ(download<uint8_t>(tensors[2], 2 * 48 * 40 * 2), encoded(problem.c, StoredType::f16));
  // Adjacent vectors are used without a copy.
  launch.packed_vectors = false;
  tensors[4] = upload(v);
  tensors[3] = static_cast<char*>(tensors[4]) + 96;
  tensors[2] = allocate(2 * 48 * 40 * 2);
  const std::unique_ptr<GpuLaunch> adjacent = prepare(launch);
  ASSERT_TRUE(adjacent);
  expect_done(adjacent->run(tensors.data(), nullptr, nullptr, scratch_of(*adjacent)));
  EXPECT_EQ(download<uint8_t>(tensors[2], 2 * 48 * 40 * 2), encoded(problem.c, StoredType::f16));
  launch.vectors.clear();
  EXPECT_FALSE(gpu_->prepare(launch, "")) << "a product without its vector";
}

TEST_P(CudaProductTest, StackedMatricesAndFactors) {
  Problem problem = problem_of(StoredType::f16, 48, 40, 56, 0);
  fill_problem(problem);
  // The columns of A and of C are in two separate halves: A by k, C by n.
  Launch launch = launch_of(problem.call);
  launch.operands = {{{0, 1}, {2}, {3, 4}}};
  launch.packed = {true, false, true};
  launch.operand_bytes = {48 * 28 * 2, 56 * 40 * 2, 48 * 20 * 2};
  launch.numbers = {{-1, 2}, {0, 0}};
  const std::vector<uint8_t> a = encoded(problem.a, StoredType::f16);
  const auto half = static_cast<ptrdiff_t>(a.size() / 2);
  std::vector<void*> tensors = {upload(std::vector<uint8_t>(a.begin() + half, a.end())),
                                upload(std::vector<uint8_t>(a.begin(), a.begin() + half)),
                                upload(encoded(problem.b, StoredType::f16)), allocate(48 * 20 * 2),
                                allocate(48 * 20 * 2)};
  launch.operands[0] = {1, 0};
  const std::unique_ptr<GpuLaunch> prepared = prepare(launch);
  ASSERT_TRUE(prepared);
  EXPECT_GE(prepared->scratch_bytes(), 48 * 56 * 2 + 48 * 40 * 2);
  const double argument = 0.5;
  expect_done(prepared->run(tensors.data(), &argument, nullptr, scratch_of(*prepared)));
  std::vector<uint8_t> c = download<uint8_t>(tensors[3], 48 * 20 * 2);
  const std::vector<uint8_t> rest = download<uint8_t>(tensors[4], 48 * 20 * 2);
  c.insert(c.end(), rest.begin(), rest.end());
  EXPECT_EQ(c, encoded(problem.c, StoredType::f16));
  const double other = 1.5;
  expect_done(prepared->run(tensors.data(), &other, nullptr, scratch_of(*prepared)));
  EXPECT_EQ(download<uint8_t>(tensors[4], 48 * 20 * 2),
            encoded(std::vector<double>(problem.c.begin() + 48 * 20, problem.c.end()), StoredType::f16, 3));
}

TEST_P(CudaProductTest, EveryAlgorithmOfASmallProblemIsRight) {
  Problem problem = problem_of(StoredType::f16, 64, 48, 80, 5);
  fill_problem(problem);
  const size_t with = check_algorithms(problem);
  problem.call.tensor_cores = false;
  const size_t without = check_algorithms(problem);
  EXPECT_GT(with, 1U);
  std::cout << with << " algorithms with Tensor Cores, " << without << " without\n";
}

TEST_P(CudaProductTest, EveryAlgorithmOfALargerProblemIsRight) {
  Problem problem = problem_of(StoredType::f16, 256, 192, 1024, 2);
  fill_problem(problem);
  const size_t count = check_algorithms(problem);
  EXPECT_GT(count, is_emulated() ? 5U : 10U);
  EXPECT_LE(count, 2000U);
  std::cout << count << " algorithms\n";
}

TEST_P(CudaProductTest, EveryAlgorithmWithABiasIsRight) {
  Problem problem = problem_of(StoredType::f16, 256, 192, 1024, 2);
  problem.call.vector = GemmVector::bias;
  problem.call.v_m = 1;
  fill_problem(problem);
  const size_t count = check_algorithms(problem);
  EXPECT_GT(count, 1U);
  std::cout << count << " algorithms\n";
}

TEST_P(CudaProductTest, EveryAlgorithmThatAddsIsRight) {
  Problem problem = problem_of(StoredType::f16, 256, 192, 1024, 2);
  problem.call.adds = true;
  fill_problem(problem);
  const size_t count = check_algorithms(problem);
  EXPECT_GT(count, 1U);
  std::cout << count << " algorithms\n";
}

TEST_P(CudaProductTest, TheHeuristicsChoiceIsFirstAndAllAreDistinct) {
  const Problem problem = problem_of(StoredType::bf16, 512, 512, 512, 0);
  const Result<std::vector<GemmAlgorithm>> algorithms = gpu_->algorithms(problem.call);
  ASSERT_TRUE(algorithms) << to_string(algorithms.error());
  ASSERT_GT(algorithms->size(), 1U);
  if (is_emulated()) {
    EXPECT_EQ(algorithms->front().id, emulated::kHeuristicAlgorithm);
  }
  for (size_t k = 0; k < algorithms->size(); ++k)
    for (size_t other = k + 1; other < algorithms->size(); ++other)
      ASSERT_FALSE((*algorithms)[k] == (*algorithms)[other]);
}

TEST_P(CudaProductTest, AnAlgorithmOfAnotherLibraryIsAnError) {
  Launch launch = launch_of(problem_of(StoredType::f16, 64, 64, 64, 0).call);
  launch.gemm.algorithm.id = 999999;
  const Result<std::unique_ptr<GpuLaunch>> prepared = gpu_->prepare(launch, "");
  ASSERT_FALSE(prepared);
  EXPECT_NE(to_string(prepared.error()).find("999999"), std::string::npos) << to_string(prepared.error());
  EXPECT_NE(to_string(prepared.error()).find("another version"), std::string::npos);
  launch.gemm.library = GemmLibrary::openblas;
  EXPECT_FALSE(gpu_->prepare(launch, ""));
}

TEST_P(CudaProductTest, AProductInAGraph) {
  Problem problem = problem_of(StoredType::f16, 256, 192, 1024, 0);
  fill_problem(problem);
  std::vector<void*> tensors = {upload(encoded(problem.a, StoredType::f16)),
                                upload(encoded(problem.b, StoredType::f16)), allocate(256 * 192 * 2)};
  const std::unique_ptr<GpuLaunch> launch = prepare(launch_of(problem.call));
  ASSERT_TRUE(launch);
  void* scratch = scratch_of(*launch);
  const auto run = [&] { return launch->run(tensors.data(), nullptr, nullptr, scratch); };
  expect_done(run());
  Result<std::unique_ptr<GpuGraph>> graph = gpu_->record(run);
  ASSERT_TRUE(graph) << to_string(graph.error());
  expect_done(gpu_->fill(tensors[2], 0, 256 * 192 * 2));
  expect_done((*graph)->replay());
  EXPECT_EQ(download<uint8_t>(tensors[2], 256 * 192 * 2), encoded(problem.c, StoredType::f16));
}

}  // namespace
}  // namespace millrace
