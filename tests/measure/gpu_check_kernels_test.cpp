// The kernels that check others on a GPU, emulated by a CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/text.h"
#include "codegen/trials_of_programs.h"
#include "device/cpu/module.h"
#include "device/gpu_kernel_cache.h"
#include "frontend/frontend.h"
#include "measure/gpu/gpu_checker.h"
#include "measure/tensor_memory.h"

namespace millrace {
namespace {

constexpr size_t kExtra = 28;  // the last of the kernels' numbers

struct HostArguments {
  void* const* tensors;
  const double* values;
  const uint32_t* subsequences;
  uint64_t seed;
  uint32_t step;
  char* scratch;
};

class GpuCheckKernels : public testing::Test {
 protected:
  void SetUp() override {
    const Result<Graph> graph = parse_program(R"(
A = 3
B = 4
C = 13


def f(x: float32[A, B, C]):
    return dropout(x, p=0.5)
)",
                                              {});
    ASSERT_TRUE(graph) << to_string(graph.error());
    graph_ = *graph;
    const Result<KernelCache> cache =
        emulated_kernel_cache(with_kernel_name(std::string(gpu_check_kernels()), "check"));
    ASSERT_TRUE(cache) << to_string(cache.error());
    for (const char* const name : {"put", "take", "compare", "allow"}) {
      const std::string text =
          concat("extern \"C\" __attribute__((visibility(\"default\"))) void MILLRACE_KERNEL(const mr::HostArguments* ",
                 "host) {\n  mr::launch(&check_", name, ", host, 3, 256, false);\n}\n");
      sources_.push_back({text});
    }
    for (const Result<CompiledKernel>& kernel : cache->get(sources_, 1)) {
      ASSERT_TRUE(kernel) << to_string(kernel.error());
      Result<KernelModule> module = KernelModule::load(kernel->path, kernel->sha256);
      ASSERT_TRUE(module) << to_string(module.error());
      const Result<void*> function = module->function(kernel->name);
      ASSERT_TRUE(function);
      functions_.push_back(*function);
      modules_.push_back(std::move(*module));
    }
  }

  void run(size_t kernel, std::array<void*, 4> tensors, const std::vector<double>& numbers) const {
    const HostArguments arguments{tensors.data(), numbers.data(), nullptr, 0, 0, nullptr};
    reinterpret_cast<void (*)(const HostArguments*)>(functions_[kernel])(&arguments);
  }

  TensorId tensor(bool mask) const {
    for (size_t k = 0; k < graph_.tensors.size(); ++k) {
      const bool is_mask = dropout_of(graph_, TensorId(k)) != nullptr;
      if (graph_.tensors[k].dims.size() == 3 && is_mask == mask) return TensorId(k);
    }
    return {};
  }

  Graph graph_;
  std::vector<KernelSource> sources_;
  std::vector<KernelModule> modules_;
  std::vector<void*> functions_;
};

TEST_F(GpuCheckKernels, PutTakeAndCompareInEveryTypeAndLayout) {
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16, DType::boolean}) {
    for (const bool mask : {false, true}) {
      const TensorId id = tensor(mask);
      ASSERT_TRUE(id.valid());
      graph_.tensors[id.at()].dtype = dtype;
      const auto elements = static_cast<size_t>(elements_of(graph_, id));
      std::vector<double> values(elements);
      for (size_t k = 0; k < elements; ++k)
        values[k] = k % 3 == 0 ? 0 : dtype == DType::boolean ? 1 : 0.25 * (double(k) - 70);
      for (const Layout& layout : layouts_of(graph_, id, mask)) {
        if (layout.storage == MaskStorage::regenerated) continue;
        const std::vector<double> numbers = check_numbers(graph_, id, layout);
        std::vector<char> put(static_cast<size_t>(stored_bytes(graph_, id, layout)), '\x5a');
        std::vector<char> expected = put;
        put_values(graph_, id, layout, values, expected.data());
        run(0, {values.data(), put.data(), nullptr, nullptr}, numbers);
        ASSERT_EQ(std::memcmp(put.data(), expected.data(), put.size()), 0) << print_layout(graph_, id, layout);
        std::vector<double> taken(elements, -1);
        run(1, {put.data(), taken.data(), nullptr, nullptr}, numbers);
        ASSERT_EQ(taken, take_values(graph_, id, layout, expected.data()));

        std::vector<double> tolerances(elements, 0.125);
        std::vector<double> wanted = values;
        uint64_t first = ~uint64_t{0};
        run(2, {put.data(), wanted.data(), tolerances.data(), &first}, numbers);
        EXPECT_EQ(first, ~uint64_t{0});
        // A bit knows only whether it is zero.
        const bool bits = layout.storage == MaskStorage::bits;
        wanted[40] = bits ? (wanted[40] != 0 ? 0 : 1) : wanted[40] + 0.25;
        wanted[101] = std::nan("");
        run(2, {put.data(), wanted.data(), tolerances.data(), &first}, numbers);
        EXPECT_EQ(first, 40U) << print_layout(graph_, id, layout);
        first = ~uint64_t{0};
        wanted[40] = values[40];
        run(2, {put.data(), wanted.data(), tolerances.data(), &first}, numbers);
        EXPECT_EQ(first, bits && values[101] != 0 ? ~uint64_t{0} : uint64_t{101});
      }
    }
  }
}

TEST_F(GpuCheckKernels, PutsMagnitudesOfEitherSign) {
  const TensorId id = tensor(false);
  const Layout layout = layouts_of(graph_, id, false).back();
  const auto elements = static_cast<size_t>(elements_of(graph_, id));
  std::vector<double> values(elements);
  for (size_t k = 0; k < elements; ++k) values[k] = 0.25 * (double(k) - 70);
  for (const double sign : {0.0, 1.0, -1.0}) {
    std::vector<double> numbers = check_numbers(graph_, id, layout);
    numbers[kExtra] = sign;
    std::vector<char> put(static_cast<size_t>(stored_bytes(graph_, id, layout)));
    run(0, {values.data(), put.data(), nullptr, nullptr}, numbers);
    const std::vector<double> found = take_values(graph_, id, layout, put.data());
    for (size_t k = 0; k < elements; ++k) EXPECT_EQ(found[k], sign == 0 ? values[k] : sign * std::abs(values[k])) << k;
  }
}

TEST_F(GpuCheckKernels, MagnitudesBecomeTolerances) {
  std::vector<double> values = {1, -2, 3};
  std::vector<double> magnitudes = {10, -20, 0};
  std::vector<double> numbers(kExtra + 1, 0);
  numbers[0] = 3;
  numbers[2] = 0.5;
  numbers[3] = 0.001;
  numbers[kExtra] = 0.1;
  run(3, {values.data(), magnitudes.data(), nullptr, nullptr}, numbers);
  EXPECT_NEAR(magnitudes[0], 1.501, 1e-12);
  EXPECT_NEAR(magnitudes[1], 3.001, 1e-12);
  EXPECT_NEAR(magnitudes[2], 1.501, 1e-12);
}

}  // namespace
}  // namespace millrace
