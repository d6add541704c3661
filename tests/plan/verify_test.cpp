// Damaged plans: the verifier must notice every change.
#include "plan/verify.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/text.h"
#include "device/cpu/blas_library.h"
#include "golden/golden.h"
#include "plan/small_plan.h"

namespace millrace {
namespace {

std::string complaint(const std::function<void(StepPlan&)>& change, const MadePlan& made = small_plan()) {
  StepPlan plan = made.plan;
  change(plan);
  const Result<Done> verified = verify(plan, made.training, made.candidates);
  return verified ? "" : verified.error().diagnostics.front().message;
}

// Two arena buffers that are alive at the same time.
std::pair<size_t, size_t> neighbours(const StepPlan& plan) {
  for (size_t one = 0; one < plan.buffers.size(); ++one) {
    for (size_t two = 0; two < one; ++two) {
      const PlanBuffer& a = plan.buffers[one];
      const PlanBuffer& b = plan.buffers[two];
      if (a.location == BufferLocation::arena && b.location == BufferLocation::arena && a.first <= b.last &&
          b.first <= a.last)
        return {one, two};
    }
  }
  return {0, 0};
}

size_t first_in_arena(const StepPlan& plan) {
  size_t k = 0;
  while (plan.buffers[k].location != BufferLocation::arena) ++k;
  return k;
}

TEST(VerifyPlan, AcceptsWhatWasBuilt) {
  EXPECT_EQ(complaint([](StepPlan&) {}), "");
}

TEST(VerifyPlan, NoticesOverlaps) {
  const auto [one, two] = neighbours(small_plan().plan);
  ASSERT_NE(one, two);
  EXPECT_NE(complaint([&, one = one, two = two](StepPlan& plan) {
              plan.buffers[one].offset = plan.buffers[two].offset;
            }).find("overlaps"),
            std::string::npos);
}

TEST(VerifyPlan, EveryHarmfulShiftOfABufferIsNoticed) {
  const StepPlan& plan = small_plan().plan;
  size_t shifted = 0;
  for (size_t k = 0; k < plan.buffers.size(); ++k) {
    if (plan.buffers[k].location != BufferLocation::arena) continue;
    ++shifted;
    const int64_t odd = plan.buffers[k].layout == "bits" ? -3 : 3;  // bits have no alignment
    for (const int64_t offset : {int64_t{-8}, odd, plan.scratch_offset, plan.arena_bytes + 8, INT64_MAX - 64}) {
      EXPECT_NE(complaint([&](StepPlan& changed) { changed.buffers[k].offset = offset; }), "") << k << " to " << offset;
    }
  }
  EXPECT_GT(shifted, 0U);
}

TEST(VerifyPlan, EveryLaunchIsNeededInItsPosition) {
  const size_t count = small_plan().plan.launches.size();
  for (size_t k = 0; k < count; ++k) {
    const auto at = static_cast<std::ptrdiff_t>(k);
    EXPECT_NE(complaint([&](StepPlan& plan) { plan.launches.erase(plan.launches.begin() + at); }), "");
    EXPECT_NE(complaint([&](StepPlan& plan) { plan.launches.insert(plan.launches.begin() + at, plan.launches[k]); }),
              "");
    EXPECT_NE(complaint([&](StepPlan& plan) { plan.launches[k].candidate += "1"; }), "");
    EXPECT_NE(complaint([&](StepPlan& plan) { plan.launches[k].partition = "no such partition"; }), "");
    EXPECT_NE(complaint([&](StepPlan& plan) { plan.launches[k].predicted_seconds = -1; }), "");
    EXPECT_NE(complaint([&](StepPlan& plan) {
                plan.launches[k].pass = plan.launches[k].pass == Pass::forward ? Pass::backward : Pass::forward;
              }),
              "");
    if (k > 0) {
      EXPECT_NE(complaint([&](StepPlan& plan) { std::swap(plan.launches[k], plan.launches[k - 1]); }), "") << k;
    }
    for (size_t b = 0; b < small_plan().plan.launches[k].buffers.size(); ++b) {
      for (const int other : {-2, -1, 0, 1, 1000}) {
        if (small_plan().plan.launches[k].buffers[b] == other) continue;
        EXPECT_NE(complaint([&](StepPlan& plan) { plan.launches[k].buffers[b] = other; }), "") << k << " " << b;
      }
    }
  }
}

TEST(VerifyPlan, BuffersMatchTheProgramsTensors) {
  const size_t count = small_plan().plan.buffers.size();
  for (size_t k = 0; k < count; ++k) {
    EXPECT_NE(complaint([&](StepPlan& plan) { plan.buffers[k].bytes += 8; }), "");
    EXPECT_NE(complaint([&](StepPlan& plan) { plan.buffers[k].tensor += "?"; }), "");
    EXPECT_NE(complaint([&](StepPlan& plan) { plan.buffers[k].layout = "ZZ"; }), "");
    EXPECT_NE(complaint([&](StepPlan& plan) { plan.buffers[k].first += 1; }), "");
    EXPECT_NE(complaint([&](StepPlan& plan) { plan.buffers[k].last += 1; }), "");
    EXPECT_NE(complaint([&](StepPlan& plan) { plan.buffers[k].position = 77; }) +
                  (small_plan().plan.buffers[k].location == BufferLocation::arena ? "no position" : ""),
              "");
    EXPECT_NE(complaint([&](StepPlan& plan) { plan.buffers.push_back(plan.buffers[k]); }), "");
    EXPECT_NE(complaint([&](StepPlan& plan) {
                PlanBuffer& buffer = plan.buffers[k];
                buffer.location =
                    buffer.location == BufferLocation::arena ? BufferLocation::result : BufferLocation::arena;
              }),
              "");
  }
}

TEST(VerifyPlan, SizesOfTheArenaAddUp) {
  EXPECT_NE(complaint([](StepPlan& plan) { plan.arena_bytes -= 1; }), "");
  EXPECT_NE(complaint([](StepPlan& plan) { plan.sum_bytes += 1; }), "");
  EXPECT_NE(complaint([](StepPlan& plan) { plan.scratch_bytes += 1; }), "");
  EXPECT_NE(complaint([](StepPlan& plan) { plan.scratch_offset = 0; }), "");
  EXPECT_NE(complaint([](StepPlan& plan) { plan.cost = 0; }), "");
  EXPECT_NE(complaint([](StepPlan& plan) { plan.buffers[first_in_arena(plan)].offset += kArenaAlignment * 1000; }), "");
}

// A plan from a file may have any numbers: no sum of them overflows.
TEST(VerifyPlan, ExtremeSizesOfTheArenaAreNoticed) {
  constexpr int64_t kLargest = INT64_MAX / kArenaAlignment * kArenaAlignment;
  const auto huge_scratch = [](StepPlan& plan) {
    plan.scratch_bytes = kLargest;
    plan.arena_bytes = static_cast<int64_t>(static_cast<uint64_t>(plan.scratch_offset) + kLargest);  // wraps around
  };
  EXPECT_NE(complaint(huge_scratch), "");
  const auto huge_arena = [](StepPlan& plan) {
    plan.scratch_offset = int64_t{1} << 47;
    plan.arena_bytes = plan.scratch_offset + plan.scratch_bytes;
  };
  EXPECT_NE(complaint(huge_arena).find("arena_bytes: more than"), std::string::npos);
  for (const int64_t extreme : {INT64_MIN, INT64_MIN + kArenaAlignment, int64_t{-1}, kLargest, INT64_MAX}) {
    for (int64_t StepPlan::*field :
         {&StepPlan::saved_bytes, &StepPlan::scratch_offset, &StepPlan::scratch_bytes, &StepPlan::arena_bytes}) {
      EXPECT_NE(complaint([&](StepPlan& plan) { plan.*field = extreme; }), "") << extreme;
      for (int64_t StepPlan::*other : {&StepPlan::scratch_offset, &StepPlan::scratch_bytes, &StepPlan::arena_bytes}) {
        const auto both = [&](StepPlan& plan) { plan.*field = plan.*other = extreme; };
        EXPECT_NE(complaint(both), "") << extreme;
      }
    }
  }
}

TEST(VerifyPlan, SavedTensorsAreInTheSavedPart) {
  ASSERT_GT(small_plan().plan.saved_bytes, 0);
  EXPECT_NE(complaint([](StepPlan& plan) { plan.saved_bytes = 0; }).find("saved part"), std::string::npos);
  EXPECT_NE(complaint([](StepPlan& plan) { plan.saved_bytes += 1; }), "");
  EXPECT_NE(complaint([](StepPlan& plan) { plan.saved_bytes = plan.arena_bytes + kArenaAlignment; }), "");
}

// Puts each tensor that backward computes over a saved tensor that no later launch reads.
TEST(VerifyPlan, SavedTensorsAreNotOverwritten) {
  constexpr const char* kDeep = R"(
B = 3
I = 4

def layers(x: float64[B, I], u: float64[I, I], v: float64[I, I], w: float64[I, I]):
    a = np.tanh(np.einsum("bi,ij->bj", x, u))
    b = np.tanh(np.einsum("bi,ij->bj", a, v))
    c = np.tanh(np.einsum("bi,ij->bj", b, w))
    return np.exp(c)
)";
  const MadePlan made = make_plan(kDeep, {});
  const StepPlan& built = made.plan;
  const int backward = first_of_backward(built);
  int written_over = 0;
  for (size_t k = 0; k < built.buffers.size(); ++k) {
    const PlanBuffer& saved = built.buffers[k];
    if (saved.location != BufferLocation::arena || saved.first >= backward || saved.last < backward) continue;
    for (size_t other = 0; other < built.buffers.size(); ++other) {
      if (built.buffers[other].location != BufferLocation::arena || built.buffers[other].first <= saved.last) continue;
      StepPlan changed = built;
      changed.buffers[other].offset = saved.offset;
      const Result<Done> verified = verify(changed, made.training, made.candidates);
      ASSERT_FALSE(verified);
      const std::string& message = verified.error().diagnostics.front().message;
      written_over += message.find("overwrites the saved") != std::string::npos ? 1 : 0;
    }
  }
  EXPECT_GT(written_over, 0);
}

TEST(VerifyPlan, NoticesStackedTensorsThatAreNotContiguous) {
  constexpr const char* kStacked = R"(
B = 3
I = 4
O = 5

def layer(x: float64[B, I], w: float64[O, I], v: float64[O, I]):
    y = np.exp(np.einsum("bi,oi->bo", x, w))
    z = np.tanh(np.einsum("bi,oi->bo", x, v))
    return y * z
)";
  if (!blas_info(GemmLibrary::openblas).there && !blas_info(GemmLibrary::blis).there)
    GTEST_SKIP() << "no BLAS library: nothing is stacked";
  int stacked = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    PlanChoice choice;
    choice.seed = seed;
    const MadePlan made = make_plan(kStacked, choice);
    for (const PlanLaunch& launch : made.plan.launches) {
      if (launch.pass != Pass::forward || launch.partition.find(" + ") == std::string::npos) continue;
      ++stacked;
      StepPlan plan = made.plan;
      PlanBuffer& moved = plan.buffers[static_cast<size_t>(launch.buffers.back())];
      ASSERT_EQ(moved.location, BufferLocation::arena);
      moved.offset = plan.scratch_offset;
      plan.scratch_offset += 1024;
      plan.arena_bytes += 1024;
      const Result<Done> verified = verify(plan, made.training, made.candidates);
      ASSERT_FALSE(verified);
      EXPECT_NE(verified.error().diagnostics.front().message.find("stacked"), std::string::npos);
    }
  }
  EXPECT_GT(stacked, 3);
}

}  // namespace
}  // namespace millrace
