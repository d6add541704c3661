// Masks drawn by kernels equal those of the reference bit by bit.
#include <gtest/gtest.h>

#include "codegen/trials_of_programs.h"
#include "device/cpu/kernel_arguments.h"
#include "device/cpu/module.h"
#include "reference/philox.h"

namespace millrace {
namespace {

struct Draw {
  uint64_t element;
  uint64_t stride;
  int64_t count;
};

TEST(CpuMasks, EqualThoseOfTheReference) {
  const std::string text = R"(
extern "C" __attribute__((visibility("default"))) void MILLRACE_KERNEL(const mr::Arguments* args) {
  const mr::Dropout d(args, args->subsequences[0], args->values[0]);
  const long* const draws = static_cast<const long*>(args->tensors[0]);
  TYPE* out = static_cast<TYPE*>(args->tensors[1]);
  for (long k = 0; k < long(args->values[1]); ++k) {
    mr::draw(out, mr::u64(draws[3 * k]), mr::u64(draws[3 * k + 1]), draws[3 * k + 2], d);
    out += draws[3 * k + 2];
  }
}
)";
  constexpr uint64_t kCarry = uint64_t{1} << 35;  // the first element whose block number needs more than 32 bits
  const std::vector<Draw> draws = {{0, 1, 300},
                                   {4, 1, 64},
                                   {1, 1, 131},
                                   {7, 1, 16},
                                   {0, 3, 70},
                                   {8, 1, 3},
                                   {kCarry - 8, 1, 400},
                                   {kCarry - 400, 1, 400},
                                   {kCarry - 401, 1, 805},
                                   {kCarry - 3, 2, 20},
                                   {kCarry + 4, 1, 64},
                                   {kCarry * 5 - 64, 1, 128}};
  int64_t elements = 0;
  for (const Draw& draw : draws) elements += draw.count;
  const Result<KernelCache> cache = kernel_cache_of_tests();
  ASSERT_TRUE(cache);
  for (const bool wide : {false, true}) {
    std::string source = text;
    for (size_t at = source.find("TYPE"); at != std::string::npos; at = source.find("TYPE"))
      source.replace(at, 4, wide ? "double" : "float");
    const auto compiled = cache->get({{source}}, 1);
    ASSERT_TRUE(compiled[0]) << to_string(compiled[0].error());
    const Result<KernelModule> module = KernelModule::load(compiled[0]->path, compiled[0]->sha256);
    ASSERT_TRUE(module);
    const Result<void*> function = module->function(compiled[0]->name);
    ASSERT_TRUE(function);
    for (const double probability : {0.0, 0.1, 0.5, 0.999999}) {
      const uint64_t seed = 0xfedcba9876543210;
      const uint32_t subsequence = 7;
      std::vector<double> values = {probability, static_cast<double>(draws.size())};
      std::vector<float> narrow(static_cast<size_t>(elements), -1);
      std::vector<double> broad(static_cast<size_t>(elements), -1);
      std::vector<Draw> input = draws;
      const std::vector<void*> tensors = {input.data(), wide ? static_cast<void*>(broad.data()) : narrow.data()};
      const KernelArguments arguments{tensors.data(), values.data(), &subsequence, seed, 11, nullptr};
      reinterpret_cast<KernelFunction> (*function)(&arguments);
      size_t at = 0;
      for (const Draw& draw : draws) {
        for (int64_t k = 0; k < draw.count; ++k, ++at) {
          const uint64_t element = draw.element + static_cast<uint64_t>(k) * draw.stride;
          const bool kept = dropout_keeps(seed, 11, subsequence, element, probability);
          const double scale = 1 / (1 - probability);
          const double wanted = !kept ? 0 : wide ? scale : static_cast<double>(static_cast<float>(scale));
          ASSERT_EQ(wide ? broad[at] : static_cast<double>(narrow[at]), wanted)
              << "element " << element << ", drawn from " << draw.element << ", probability " << probability;
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace
