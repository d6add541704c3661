#include "device/cubin_bundle.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

const CubinBundle kBundle = {{"k_1",
                              {"k_a", std::string("\x7f"
                                                  "ELF\0\n",
                                                  6)}},
                             {"k_2", {"k_b", ""}}};

TEST(CubinBundle, ReadsWhatItWrote) {
  const Result<CubinBundle> read = read_bundle(write_bundle(kBundle));
  ASSERT_TRUE(read) << to_string(read.error());
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ(read->at("k_1").name, "k_a");
  EXPECT_EQ(read->at("k_1").bytes, kBundle.at("k_1").bytes);
  EXPECT_EQ(read->at("k_2").bytes, "");
}

TEST(CubinBundle, RejectsWhatWasCutOrExtended) {
  const std::string text = write_bundle(kBundle);
  for (size_t length = 0; length < text.size(); ++length) EXPECT_FALSE(read_bundle(text.substr(0, length))) << length;
  EXPECT_FALSE(read_bundle(text + "x"));
  EXPECT_FALSE(read_bundle("[{\"kernel\": 1, \"name\": \"a\", \"bytes\": -5}]\n"));
  EXPECT_FALSE(read_bundle("{}\n"));
}

}  // namespace
}  // namespace millrace
