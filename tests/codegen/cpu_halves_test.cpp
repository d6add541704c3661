// Kernels convert half-precision numbers to the same bits with and without the processor's instructions for them.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "codegen/cpu/generate.h"
#include "codegen/trials_of_programs.h"
#include "device/cpu/compiler.h"
#include "device/cpu/cpu_info.h"
#include "device/cpu/denormals.h"
#include "device/cpu/kernel_arguments.h"
#include "device/cpu/module.h"
#include "device/test_kernels.h"

namespace millrace {
namespace {

constexpr const char* kConvert = R"(
extern "C" __attribute__((visibility("default"))) void MILLRACE_KERNEL(const mr::Arguments* args) {
  using All = mr::Lanes<mr::kLanes<float>>;
  const auto* halves = static_cast<const mr::TYPE*>(args->tensors[0]);
  auto* wide = static_cast<float*>(args->tensors[1]);
  const auto* numbers = static_cast<const float*>(args->tensors[2]);
  auto* narrow = static_cast<mr::TYPE*>(args->tensors[3]);
  for (long i = 0; i < long(args->values[0]); i += All::n)
    mr::store<All, 1>(wide + i, mr::load<mr::VecF, All, 1>(halves + i));
  for (long i = 0; i < long(args->values[1]); i += All::n)
    mr::store<All, 1>(narrow + i, mr::load<mr::VecF, All, 1>(numbers + i));
}
)";

constexpr size_t kHalves = 65536;

// Flags that take instructions away, one each; the compiler does not know those of other processors.
std::vector<std::vector<std::string>> machines() {
#ifdef __x86_64__
  return {{}, {"-mno-avx512bf16"}, {"-mno-avx512f"}, {"-mno-avx512f", "-mno-avx2"}};
#else
  return {{}};
#endif
}

// All halves except NaNs, the numbers halfway between them, and their neighbours; NaNs and random bits.
std::vector<float> numbers_of(StoredType type) {
  std::vector<float> numbers;
  for (uint64_t half = 0; half < kHalves; ++half) {
    const auto low = static_cast<float>(decode(half, type));
    const auto high = static_cast<float>(decode((half + 1) % kHalves, type));
    for (const float at : {low, low / 2 + high / 2}) {
      numbers.push_back(at);
      numbers.push_back(std::nextafter(at, std::numeric_limits<float>::infinity()));
      numbers.push_back(std::nextafter(at, -std::numeric_limits<float>::infinity()));
    }
  }
  std::mt19937 random(5);  // NOLINT(cert-msc51-cpp)
  while (numbers.size() % 4096 != 0 || numbers.size() < 500000)
    numbers.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  return numbers;
}

struct Converted {
  std::vector<float> wide;
  std::vector<uint16_t> narrow;
};

class CpuHalves : public testing::TestWithParam<StoredType> {
 protected:
  // Nothing if the compiler has no kernels for such a machine.
  std::optional<Converted> convert(const std::vector<std::string>& flags, std::vector<float> numbers) {
    Result<Compiler> compiler = find_compiler();
    if (!compiler) return std::nullopt;
    compiler->flags.insert(compiler->flags.end(), flags.begin(), flags.end());
    const KernelCache cache(test_kernels("test_kernels", MILLRACE_BINARY), *compiler, std::string(cpu_prelude()),
                            cpu_info().identity(), {300, 1});
    std::string text = kConvert;
    const std::string type = GetParam() == StoredType::f16 ? "f16" : "bf16";
    for (size_t at = text.find("TYPE"); at != std::string::npos; at = text.find("TYPE")) text.replace(at, 4, type);
    const auto compiled = cache.get({{text}}, 1);
    EXPECT_TRUE(compiled[0]) << to_string(compiled[0].error());
    const Result<KernelModule> module = KernelModule::load(compiled[0]->path, compiled[0]->sha256);
    if (!module) return std::nullopt;
    const Result<void*> function = module->function(compiled[0]->name);
    if (!function) return std::nullopt;
    std::vector<uint16_t> halves(kHalves);
    for (size_t k = 0; k < kHalves; ++k) halves[k] = static_cast<uint16_t>(k);
    Converted converted{std::vector<float>(kHalves), std::vector<uint16_t>(numbers.size())};
    const std::array<void*, 4> tensors = {halves.data(), converted.wide.data(), numbers.data(),
                                          converted.narrow.data()};
    const std::array<double, 2> values = {static_cast<double>(kHalves), static_cast<double>(numbers.size())};
    const KernelArguments arguments{tensors.data(), values.data(), nullptr, 0, 0, nullptr};
    reinterpret_cast<KernelFunction> (*function)(&arguments);
    return converted;
  }
};

TEST_P(CpuHalves, EqualThoseOfTheReferenceOnEveryMachine) {
  const std::vector<float> numbers = numbers_of(GetParam());
  for (const std::vector<std::string>& flags : machines()) {
    SCOPED_TRACE(flags.empty() ? "this machine" : flags.back());
    const std::optional<Converted> found = convert(flags, numbers);
    ASSERT_TRUE(found);
    for (size_t k = 0; k < kHalves; ++k) {
      const double expected = decode(k, GetParam());
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(found->wide[k])) << k;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(static_cast<float>(expected)), std::bit_cast<uint32_t>(found->wide[k])) << k;
      }
    }
    for (size_t k = 0; k < numbers.size(); ++k) {
      if (std::isnan(numbers[k])) {
        ASSERT_TRUE(std::isnan(decode(found->narrow[k], GetParam()))) << k;
      } else {
        ASSERT_EQ(encode(numbers[k], GetParam()), found->narrow[k]) << numbers[k];
      }
    }
  }
}

// NaNs and denormal numbers too, also where a plan flushes them.
TEST_P(CpuHalves, HaveTheSameBitsOnEveryMachine) {
  const std::vector<float> numbers = numbers_of(GetParam());
  const DenormalScope scope(Denormals::flush, 1);
  std::optional<Converted> first;
  for (const std::vector<std::string>& flags : machines()) {
    const std::optional<Converted> found = convert(flags, numbers);
    ASSERT_TRUE(found);
    if (!first) first = found;
    for (size_t k = 0; k < kHalves; ++k)
      ASSERT_EQ(std::bit_cast<uint32_t>(first->wide[k]), std::bit_cast<uint32_t>(found->wide[k])) << k;
    for (size_t k = 0; k < numbers.size(); ++k) ASSERT_EQ(first->narrow[k], found->narrow[k]) << numbers[k];
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CpuHalves, testing::Values(StoredType::f16, StoredType::bf16),
                         [](const auto& suite) { return std::string(name_of(suite.param)); });

}  // namespace
}  // namespace millrace
