#include "device/cuda/kernel_parameters.h"

#include <gtest/gtest.h>

#include <cstring>

namespace millrace {
namespace {

// The prelude's declaration, for given counts.
template <size_t T, size_t V, size_t S>
struct Declared {
  void* tensors[T];
  double values[V];
  const void* state;
  char* scratch;
  uint32_t subsequences[S];
};

template <class Struct>
Struct packed(KernelParameters& parameters) {
  Struct copy{};
  EXPECT_EQ(parameters.size(), sizeof(Struct));
  if (parameters.size() == sizeof(Struct)) std::memcpy(&copy, parameters.data(), sizeof(Struct));
  return copy;
}

TEST(KernelParameters, HaveTheCompilersLayout) {
  int memory = 0;
  char scratch = 0;
  void* tensors[] = {&memory, nullptr, &scratch};
  const double arguments[] = {1.5, 2.5};
  KernelParameters parameters(3, {{1, 0}, {-1, 7.25}}, {5, 6, 7});
  parameters.set(tensors, arguments, &memory, &scratch);
  const auto whole = packed<Declared<3, 2, 3>>(parameters);
  EXPECT_EQ(whole.tensors[0], &memory);
  EXPECT_EQ(whole.tensors[1], nullptr);
  EXPECT_EQ(whole.tensors[2], &scratch);
  EXPECT_EQ(whole.values[0], 2.5);
  EXPECT_EQ(whole.values[1], 7.25);
  EXPECT_EQ(whole.state, &memory);
  EXPECT_EQ(whole.scratch, &scratch);
  EXPECT_EQ(whole.subsequences[2], 7U);

  const double others[] = {0, -4};
  parameters.set(tensors, others, nullptr, nullptr);
  const auto again = packed<Declared<3, 2, 3>>(parameters);
  EXPECT_EQ(again.values[0], -4);
  EXPECT_EQ(again.state, nullptr);
  EXPECT_EQ(again.subsequences[0], 5U);
}

TEST(KernelParameters, AnEmptyListTakesTheRoomOfOneElement) {
  char scratch = 0;
  KernelParameters none(0, {}, {});
  none.set(nullptr, nullptr, nullptr, &scratch);
  EXPECT_EQ((packed<Declared<1, 1, 1>>(none).scratch), &scratch);
  KernelParameters even(1, {}, {1, 2});
  void* tensors[] = {&scratch};
  even.set(tensors, nullptr, &scratch, nullptr);
  EXPECT_EQ((packed<Declared<1, 1, 2>>(even).subsequences[1]), 2U);
}

}  // namespace
}  // namespace millrace
