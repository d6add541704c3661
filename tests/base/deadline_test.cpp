#include "base/deadline.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Deadline, SaysWhatIsLeft) {
  const Deadline later = Deadline::after(100);
  EXPECT_FALSE(later.passed());
  EXPECT_GT(later.left(), 90);
  EXPECT_LE(later.left(), 100);
  EXPECT_TRUE(Deadline::after(0).passed());
  EXPECT_EQ(Deadline::after(-5).left(), 0);
}

TEST(Deadline, NeverComesAndNoShareOfItEither) {
  EXPECT_FALSE(Deadline::never().passed());
  EXPECT_TRUE(Deadline::never().share(0.1).is_never());
  EXPECT_TRUE(Deadline::never().earlier_by(7).is_never());
  EXPECT_FALSE(Deadline::never().or_earlier(Deadline::after(1)).is_never());
}

TEST(Deadline, AShareOfTheRestComesFirst) {
  const Deadline whole = Deadline::after(100);
  const Deadline half = whole.share(0.5);
  EXPECT_NEAR(half.left(), 50, 5);
  EXPECT_EQ(whole.or_earlier(half).at(), half.at());
  EXPECT_EQ(whole.later_by(3).at(), whole.at() + 3);
  const Deadline passed = Deadline::after(-5);
  EXPECT_EQ(passed.share(0.5).at(), passed.at());
}

}  // namespace
}  // namespace millrace
