#include "base/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

namespace millrace {
namespace {

// Bytes of every value, `length` of them.
std::string pattern(size_t length) {
  std::string bytes;
  for (size_t k = 0; k < length; ++k) bytes += static_cast<char>((k * 7 + 3) % 256);
  return bytes;
}

TEST(Sha256Test, TheStandardsExamples) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, LengthsAroundTheEdgesOfABlock) {
  // Made by Python's hashlib.
  const std::map<size_t, std::string> expected = {
      {55, "e7313d333c272e639f790978283f9eb392e843d0f29b7016828bb1daa4aac70b"},
      {56, "4324d65f3c103567f5589c710bc08f8523f929a9272e3af36fc968e52abc6c27"},
      {57, "35df609437dcfea3279283ab79fd554e2bf78f8f7ae2de532d8ee300b09e8f73"},
      {63, "81c80242132f230c3bd41b3e63bbcff16107339549214a99614ff26664625055"},
      {64, "39e3d7b6b5d075d37d053ad89b24b41bef4f3c29760c84447cab3f3be1882241"},
      {65, "aacca6ff74fdbb296d165a45cecfa04e5127bc008770fbbdd48006f2d2fae95e"},
      {119, "9ce7368e4daf32341631b492e80359dc9f594b48453cd0dd5bf0b19279cc177e"},
      {120, "7836b787757e95e58b3ca5aec90b1b004e8deba1e50e9675af9cabf1a13a04b5"},
      {128, "d2742f1f4ac6bb7ca2b239ee18402ba8b3f9f8e652d2a72973c2b9ba11c08cf6"},
  };
  for (const auto& [length, digest] : expected) EXPECT_EQ(sha256(pattern(length)), digest) << length;
}

TEST(Sha256Test, EveryLengthUpTo200) {
  // hashlib's digest of hashlib's 200 digests.
  std::string digests;
  for (size_t length = 0; length < 200; ++length) digests += sha256(pattern(length));
  EXPECT_EQ(sha256(digests), "466ee381bbc4a6de34133ad71e2d19bd7ac1efe7fbd78829b39564fb7a8e7d20");
}

// For every split of a text.
TEST(Sha256Test, BytesMayBeAddedStepByStep) {
  std::string text;
  for (int k = 0; k < 200; ++k) text += static_cast<char>('a' + k % 26);
  for (size_t first = 0; first <= text.size(); ++first) {
    Sha256 begun;
    begun.add(text.substr(0, first));
    Sha256 copy = begun;
    begun.add("something else");
    copy.add(text.substr(first, 70));
    copy.add(text.substr(std::min(first + 70, text.size())));
    EXPECT_EQ(copy.digest(), sha256(text)) << first;
  }
}

}  // namespace
}  // namespace millrace
