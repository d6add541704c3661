#include "report/wrap.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Wrapped, BreaksBetweenWords) {
  EXPECT_EQ(wrapped("one two three", {9, "", "  "}), "one two\n  three\n");
  EXPECT_EQ(wrapped("one two three", {13, "", "  "}), "one two three\n");
  EXPECT_EQ(wrapped("one two three", {8, "> ", "  "}), "> one\n  two\n  three\n");
}

TEST(Wrapped, KeepsAPercentSignWithItsNumber) { EXPECT_EQ(wrapped("about 6 %)", {8, "", ""}), "about\n6 %)\n"); }

TEST(Wrapped, LeavesALongWordWhole) {
  EXPECT_EQ(wrapped("incomprehensible word", {5, "", ""}), "incomprehensible\nword\n");
}

TEST(Wrapped, KeepsTheSeparatorAtTheEndOfALine) {
  EXPECT_EQ(wrapped({"y add", "y relu", "sum"}, ", ", {14, "", ""}), "y add, y relu,\nsum\n");
}

TEST(Wrapped, IsEmptyForNothing) {
  EXPECT_EQ(wrapped("", {}), "");
  EXPECT_EQ(wrapped({}, ", ", {}), "");
}

}  // namespace
}  // namespace millrace
