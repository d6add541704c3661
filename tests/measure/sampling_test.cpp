// When a trial has enough samples.
#include "measure/sampling.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

// The number of samples of a candidate whose runs all take this long, apart from noise.
size_t samples_of(double seconds, double best, double noise = 0) {
  Sampling sampling(seconds, best, 0.05);
  while (!sampling.is_enough())
    sampling.add(seconds * (1 + noise * std::sin(static_cast<double>(sampling.samples().size()))));
  return sampling.samples().size();
}

TEST(Sampling, AFarSlowerCandidateGetsOneSample) {
  EXPECT_EQ(samples_of(1.6e-3, 1e-3), 1U);
  EXPECT_EQ(samples_of(1.2e-3, 1e-3), 3U);
  EXPECT_EQ(samples_of(1.1e-3, 1e-3), 5U);
}

TEST(Sampling, ACandidateThatMayBeTheFastestGetsManyUntilTheyAgree) {
  EXPECT_EQ(samples_of(1e-3, 1e-3), 6U);
  EXPECT_EQ(samples_of(1e-3, 1e-3, 0.2), 40U);
}

TEST(Sampling, TheTimeIsLimited) {
  EXPECT_EQ(samples_of(4e-3, 4e-3, 0.2), 13U);
  EXPECT_EQ(samples_of(20e-3, 20e-3, 0.2), 5U);
}

// The first of a partition, for tensors as the program lays them out, is often hundreds of times as slow as the best.
TEST(Sampling, ASlowCandidateGetsFewSamplesEvenIfItIsTheFirst) {
  EXPECT_EQ(samples_of(40e-3, 0), 3U);
  EXPECT_EQ(samples_of(0.4, 0), 1U);
}

// One fast run is enough to try a candidate further.
TEST(Sampling, TheFastestRunDecides) {
  Sampling sampling(1e-3, 1e-3, 0.05);
  sampling.add(9e-3);
  EXPECT_FALSE(sampling.is_enough());
}

}  // namespace
}  // namespace millrace
