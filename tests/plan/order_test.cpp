#include "plan/order.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

using Order = std::vector<size_t>;

Touched read(int stored, int64_t bytes) { return {stored, bytes, false}; }
Touched write(int stored, int64_t bytes) { return {stored, bytes, true}; }

TEST(Order, AReaderComesBehindTheWriterOfMostOfWhatItReads) {
  // 1 and 2 read what 0 writes, and 3 what 1 writes: as in backward, where a product's gradients are two.
  const std::vector<std::vector<Touched>> launches = {
      {write(0, 8)}, {read(0, 8), write(1, 32)}, {read(0, 8), read(5, 32), write(2, 8)}, {read(1, 32), write(3, 32)}};
  EXPECT_EQ(order_by_reuse(launches), (Order{0, 1, 3, 2}));
}

TEST(Order, WhatWasReadIsInTheCacheToo) {
  const std::vector<std::vector<Touched>> launches = {
      {write(0, 32)}, {read(0, 32), write(1, 4)}, {read(1, 4), write(2, 4)}, {read(0, 32), write(3, 4)}};
  EXPECT_EQ(order_by_reuse(launches), (Order{0, 1, 3, 2}));
}

TEST(Order, StaysWhereNothingIsGained) {
  const std::vector<std::vector<Touched>> launches = {
      {read(0, 4), write(1, 4)}, {read(2, 4), write(3, 4)}, {read(4, 4), write(5, 4)}, {}};
  EXPECT_EQ(order_by_reuse(launches), (Order{0, 1, 2, 3}));
  EXPECT_EQ(order_by_reuse({}), Order{});
}

TEST(Order, NothingIsReadBeforeItIsWrittenNorWrittenBeforeItIsRead) {
  // 2 would like to come behind 0, whose tensor it reads; it also reads what 1 writes. 3 writes what 2 reads.
  const std::vector<std::vector<Touched>> launches = {
      {write(0, 64)}, {read(9, 1), write(1, 1)}, {read(0, 64), read(1, 1), write(2, 1)}, {read(2, 1), write(0, 64)}};
  EXPECT_EQ(order_by_reuse(launches), (Order{0, 1, 2, 3}));
}

}  // namespace
}  // namespace millrace
