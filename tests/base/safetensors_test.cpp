#include "base/safetensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/file.h"
#include "base/text.h"
#include "frontend/limited.h"

namespace millrace {
namespace {

using Tensors = std::vector<StoredTensor>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A file built by hand, so that the tests do not depend on the serializer.
std::string file_of(std::string_view header, std::string_view data = {}) {
  std::string bytes;
  for (int k = 0; k < 8; ++k) bytes += static_cast<char>(header.size() >> (8 * k) & 0xFF);
  return bytes.append(header).append(data);
}

std::string tensor(std::string_view name, std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return concat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape, ",\"data_offsets\":", offsets, "}");
}

// The error message of parse_safetensors for `bytes`; "accepted" if there is none.
std::string refusal(std::string_view bytes) {
  const Result<Tensors> parsed = parse_safetensors(bytes);
  if (parsed) return "accepted";
  EXPECT_EQ(parsed.error().kind, ErrorKind::bad_input);
  return to_string(parsed.error());
}

void expect_refusal(const std::string& bytes, std::string_view message) {
  EXPECT_NE(refusal(bytes).find(message), std::string::npos) << "wanted: " << message << "\nsaid: " << refusal(bytes);
}

// The values after writing and reading a file.
std::vector<double> stored(StoredType type, const std::vector<double>& values) {
  const Result<Tensors> parsed =
      parse_safetensors(serialize_safetensors({{"t", type, {static_cast<int64_t>(values.size())}, values}}));
  if (!parsed) {
    ADD_FAILURE() << to_string(parsed.error());
    return {};
  }
  return parsed->at(0).values;
}

TEST(Safetensors, ReadsAFileMadeByHand) {
  const std::string header = concat("{", tensor("half", "F16", "[2]", "[4,8]"), ",",
                                    tensor("one", "F32", "[]", "[0,4]"), R"(,"__metadata__":{"format":"pt"}}   )");
  const std::string data("\x00\x00\x80\x3f\x00\xc0\x01\x00", 8);
  const Result<Tensors> parsed = parse_safetensors(file_of(header, data));
  ASSERT_TRUE(parsed) << to_string(parsed.error());
  ASSERT_EQ(parsed->size(), 2U);
  EXPECT_EQ(parsed->at(0).name, "half");
  EXPECT_EQ(parsed->at(0).type, StoredType::f16);
  EXPECT_EQ(parsed->at(0).shape, std::vector<int64_t>{2});
  EXPECT_EQ(parsed->at(0).values, (std::vector<double>{-2.0, std::ldexp(1.0, -24)}));
  EXPECT_TRUE(parsed->at(1).shape.empty());
  EXPECT_EQ(parsed->at(1).values, std::vector<double>{1.0});
}

TEST(Safetensors, EveryTypeMakesTheRoundTripInOneFile) {
  // The odd number of single bytes first: the serializer must order the data so that all are aligned.
  const Tensors tensors = {
      {"u8", StoredType::u8, {3}, {0, 1, 255}},
      {"i8", StoredType::i8, {1, 3}, {-128, 0, 127}},
      {"bool", StoredType::boolean, {2}, {0, 1}},
      {"i16", StoredType::i16, {2}, {-32768, 32767}},
      {"i32", StoredType::i32, {2}, {-2147483648.0, 2147483647.0}},
      {"i64", StoredType::i64, {3}, {-std::ldexp(1.0, 63), -1, std::ldexp(1.0, 53)}},
      {"f64", StoredType::f64, {2, 2}, {0.1, -0.0, 5e-324, -kInfinity}},
      {"f32", StoredType::f32, {4}, {0.5, std::ldexp(1.0, -149), kInfinity, std::numeric_limits<float>::max()}},
      {"f16", StoredType::f16, {3}, {65504, -std::ldexp(1.0, -24), -kInfinity}},
      {"bf16", StoredType::bf16, {3}, {1.0078125, std::ldexp(1.0, -133), kInfinity}},
      {"scalar \"\n\xC3\xA9", StoredType::f32, {}, {3}},
      {"empty", StoredType::f64, {0, int64_t{1} << 62, int64_t{1} << 62}, {}},
  };
  const std::string bytes = serialize_safetensors(tensors);
  EXPECT_EQ(static_cast<unsigned char>(bytes[0]) % 8, 0) << "the data begin at a multiple of 8";
  const Result<Tensors> parsed = parse_safetensors(bytes);
  ASSERT_TRUE(parsed) << to_string(parsed.error());
  ASSERT_EQ(parsed->size(), tensors.size());
  for (size_t k = 0; k < tensors.size(); ++k) {
    EXPECT_EQ(parsed->at(k).name, tensors[k].name);
    EXPECT_EQ(parsed->at(k).type, tensors[k].type);
    EXPECT_EQ(parsed->at(k).shape, tensors[k].shape);
    EXPECT_EQ(parsed->at(k).values, tensors[k].values) << tensors[k].name;
  }
  EXPECT_EQ(serialize_safetensors(*parsed), bytes);
}

TEST(Safetensors, NoTensorsIsAFile) {
  const Result<Tensors> parsed = parse_safetensors(serialize_safetensors({}));
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(parsed->empty());
}

TEST(Safetensors, RoundsToNearestWithTiesToEven) {
  const double half_ulp = std::ldexp(1.0, -11);  // of float16 at 1
  EXPECT_EQ(stored(StoredType::f16, {1 + half_ulp, 1 + 3 * half_ulp, std::nextafter(1 + half_ulp, 2), 65519, 65520}),
            (std::vector<double>{1, 1 + 4 * half_ulp, 1 + 2 * half_ulp, 65504, kInfinity}));
  const double tiny = std::ldexp(1.0, -24);  // float16's smallest subnormal
  EXPECT_EQ(stored(StoredType::f16, {tiny / 2, std::nextafter(tiny / 2, 1), 1.5 * tiny, 2.5 * tiny, 1023.5 * tiny}),
            (std::vector<double>{0, tiny, 2 * tiny, 2 * tiny, 1024 * tiny}));
  EXPECT_EQ(stored(StoredType::bf16, {1 + std::ldexp(1.0, -8), 1 + std::ldexp(3.0, -8), 3.4e38, 1e308}),
            (std::vector<double>{1, 1 + std::ldexp(1.0, -6), kInfinity, kInfinity}));
  // Rounded once: rounded through float32, this would be a tie and round down.
  EXPECT_EQ(stored(StoredType::bf16, {1 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40)}),
            std::vector<double>{1 + std::ldexp(1.0, -7)});
  EXPECT_TRUE(std::signbit(stored(StoredType::f16, {-1e-300})[0]));
}

TEST(Safetensors, Float32RoundsAsTheMachineDoes) {
  uint64_t state = 1;
  std::vector<double> values;
  for (int k = 0; k < 20000; ++k) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    // Exponents from below float32's subnormals to beyond its largest, every third one a tie.
    const int exponent = static_cast<int>(state >> 40 & 511) - 256;
    const double fraction = static_cast<double>(k % 3 == 0 ? (state & 0x1FFFFFF) | 1 : state >> 11) + 0x1p53;
    values.push_back(std::ldexp(fraction, exponent - 53));
  }
  values.insert(values.end(), {0x1p-149, 0x1p-150, 0x1.8p-149, 0x1.fffffep127, 0x1.ffffffp127, -0.0, 5e-324});
  const std::vector<double> rounded = stored(StoredType::f32, values);
  for (size_t k = 0; k < values.size(); ++k)
    ASSERT_EQ(rounded[k], static_cast<double>(static_cast<float>(values[k]))) << values[k];
}

TEST(Safetensors, EveryHalfPatternSurvives) {
  for (const StoredType type : {StoredType::f16, StoredType::bf16}) {
    std::string data;
    for (int bits = 0; bits < 65536; ++bits)
      data.append({static_cast<char>(bits & 0xFF), static_cast<char>(bits >> 8)});
    const std::string name = type == StoredType::f16 ? "F16" : "BF16";
    const Result<Tensors> parsed =
        parse_safetensors(file_of("{" + tensor("t", name, "[65536]", "[0,131072]") + "}", data));
    ASSERT_TRUE(parsed) << to_string(parsed.error());
    const std::string again = serialize_safetensors(*parsed);
    EXPECT_EQ(again.substr(again.size() - data.size()), data);
  }
}

TEST(Safetensors, NaNStaysNaN) {
  // A NaN whose payload is in the low bits only must not become an infinity.
  const double low = std::bit_cast<double>(uint64_t{0x7FF0000000000001});
  for (const StoredType type : {StoredType::f64, StoredType::f32, StoredType::f16, StoredType::bf16})
    for (const double value : stored(type, {kNaN, -kNaN, low})) EXPECT_TRUE(std::isnan(value));
}

TEST(Safetensors, IntegersSaturate) {
  EXPECT_EQ(stored(StoredType::u8, {-1, 256, 2.5, 3.5, kNaN}), (std::vector<double>{0, 255, 2, 4, 0}));
  EXPECT_EQ(stored(StoredType::i64, {1e300, -1e300}), (std::vector<double>{0x1p63, -0x1p63}));
  EXPECT_EQ(stored(StoredType::boolean, {0, -3, kNaN}), (std::vector<double>{0, 1, 1}));
}

TEST(Safetensors, RefusesBrokenLengths) {
  expect_refusal("", "the file has 0 bytes, too few");
  expect_refusal("1234567", "the file has 7 bytes, too few");
  expect_refusal(std::string("\x09\0\0\0\0\0\0\0{}", 10), "says that its header has 9 bytes, but only 2 follow");
  expect_refusal(std::string(8, '\xFF') + "{}", "says that its header has 18446744073709551615 bytes");
  expect_refusal(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10), "at most 100000000 are read");
}

TEST(Safetensors, RefusesBrokenHeaders) {
  expect_refusal(file_of(""), "the header is not JSON");
  expect_refusal(file_of("{"), "the header is not JSON: syntax error at its byte 2");
  expect_refusal(file_of("{} x"), "the header is not JSON: syntax error at its byte 4");
  expect_refusal(file_of("{\"\xFF\":1}"), "the header is not JSON");
  expect_refusal(file_of(std::string("{}\0{", 4)), "byte 3 of it is zero");
  expect_refusal(file_of(" {}"), "does not begin with '{'");
  expect_refusal(file_of("\xEF\xBB\xBF{}"), "does not begin with '{'");
  for (const char* other : {"[]", "1", "-1", "1.5", "null", "true", "\"x\""})
    expect_refusal(file_of(other), "not a JSON object");
  expect_refusal(file_of(R"({"a":[[[[[[[[1]]]]]]]]})"), "nests deeper than 8 levels");
  expect_refusal(file_of(R"({"a":[[[[[[[1]]]]]]]})"), "tensor 'a' is an array, not an object");
  EXPECT_EQ(refusal(file_of(R"({"__metadata__":{"k\"[[[[[[[[[[":"[[[[[[[[[["}})")), "accepted");
  expect_refusal(file_of(R"({"__metadata__":{},"__metadata__":{}})"), "gives '__metadata__' twice");
  expect_refusal(file_of(R"({"__metadata__":[]})"), "'__metadata__' is an array");
  expect_refusal(file_of(R"({"__metadata__":{"a":1}})"), "'__metadata__' contains the number 1");
  const std::string one = tensor("a", "U8", "[0]", "[0,0]");
  expect_refusal(file_of(concat("{", one, ",", one, "}")), "two tensors named 'a'");
  expect_refusal(file_of(concat("{", one, R"(,"\u0061":)", one.substr(4), "}")), "two tensors named 'a'");
}

TEST(Safetensors, RefusesBrokenFields) {
  const std::string fields = "a tensor has the fields 'dtype', 'shape' and 'data_offsets'";
  expect_refusal(file_of(R"({"a":{"shape":[0],"data_offsets":[0,0]}})"), "tensor 'a' has no field 'dtype'");
  expect_refusal(file_of(R"({"a":{"dtype":"U8","data_offsets":[0,0]}})"), "tensor 'a' has no field 'shape'");
  expect_refusal(file_of(R"({"a":{"dtype":"U8","shape":[0]}})"), "tensor 'a' has no field 'data_offsets'");
  expect_refusal(file_of(R"({"a":{}})"), fields);
  expect_refusal(file_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"b":1}})"), "unknown field 'b'");
  expect_refusal(file_of(R"({"a":{"dtype":"U8","dtype":"U8"}})"), "gives 'dtype' twice");
  expect_refusal(file_of(R"({"a":null})"), "tensor 'a' is null, not an object");
  expect_refusal(file_of(R"({"a":{"dtype":1}})"), "'dtype' of tensor 'a' is the number 1, not text");
  expect_refusal(file_of(R"({"a":{"dtype":"F8"}})"), "tensor 'a' has the unknown dtype 'F8'");
  expect_refusal(file_of(R"({"a":{"dtype":"F8"}})"), "known types: F64, F32, F16, BF16, I64");
  expect_refusal(file_of(R"({"a":{"shape":3}})"), "'shape' of tensor 'a' is the number 3");
  expect_refusal(file_of(R"({"a":{"shape":[-1]}})"), "'shape' of tensor 'a' contains the negative number -1");
  expect_refusal(file_of(R"({"a":{"shape":[1.5]}})"), "'shape' of tensor 'a' contains the number '1.5'");
  expect_refusal(file_of(R"({"a":{"shape":[1e2]}})"), "'shape' of tensor 'a' contains the number '1e2'");
  expect_refusal(file_of(R"({"a":{"shape":["1"]}})"), "contains the text '1'");
  expect_refusal(file_of(R"({"a":{"shape":[[1]]}})"), "contains an array");
  expect_refusal(file_of(R"({"a":{"shape":[9223372036854775808]}})"), "9223372036854775808, which is too large");
  expect_refusal(file_of(R"({"a":{"shape":[99999999999999999999]}})"), "the number '99999999999999999999'");
  expect_refusal(file_of("{\"a\":{\"shape\":[" + std::string(65, '9') + "]}}"), "a number of more than 64 digits");
  expect_refusal(file_of(R"({"a":{"data_offsets":"x"}})"), "'data_offsets' of tensor 'a' is the text 'x'");
  expect_refusal(file_of(R"({"a":{"data_offsets":[0]}})"), "has fewer than two numbers");
  expect_refusal(file_of(R"({"a":{"data_offsets":[0,1,2]}})"), "has more than two numbers");
  expect_refusal(file_of(R"({"a":{"data_offsets":[-1,2]}})"), "contains the negative number -1");
  expect_refusal(file_of("{\"a\x7F\\u001b[2J\":1}"),
                 "tensor 'a??[2J' is the number 1");  // no escape reaches a terminal
}

TEST(Safetensors, RefusesBrokenOffsets) {
  const std::string data(16, '\0');
  const auto one = [&](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return file_of(concat("{", tensor("a", dtype, shape, offsets), "}"), data);
  };
  expect_refusal(one("F32", "[4]", "[16,0]"), "the data of tensor 'a' end before they begin");
  expect_refusal(one("F32", "[5]", "[0,20]"), "end at byte 20, but the file has only 16 bytes");
  expect_refusal(one("F32", "[3]", "[0,16]"), "has 16 bytes of data, but its shape [3] of F32 takes 12");
  expect_refusal(one("F32", "[4611686018427387904,4]", "[0,16]"), "more than 2^63-1 bytes");
  expect_refusal(one("F64", "[2305843009213693952]", "[0,16]"), "more than 2^63-1 bytes");
  expect_refusal(one("F32", "[3]", "[0,12]"), "the file is too long: 4 bytes follow");
  const auto two = [&](const std::string& a, const std::string& b) {
    return file_of(concat("{", a, ",", b, "}"), data);
  };
  const std::string first = tensor("a", "U8", "[6]", "[0,6]");
  expect_refusal(two(first, tensor("b", "F32", "[2]", "[6,14]")), "tensor 'b' are misaligned: they begin at byte 6");
  expect_refusal(two(first, tensor("b", "U8", "[11]", "[5,16]")), "the data of tensor 'b' overlap those of tensor 'a'");
  expect_refusal(two(first, tensor("b", "U8", "[0]", "[5,5]")), "the data of tensor 'b' overlap those of tensor 'a'");
  expect_refusal(two(first, tensor("b", "U8", "[9]", "[7,16]")), "have a hole: no tensor has bytes 6 to 7");
  EXPECT_EQ(refusal(two(tensor("b", "U8", "[10]", "[6,16]"), first)), "accepted");
}

TEST(Safetensors, RefusesBeyondTheLimits) {
  std::string dims = "[0";
  for (int k = 1; k < 32; ++k) dims += ",9223372036854775807";
  EXPECT_EQ(refusal(file_of("{" + tensor("a", "F64", dims + "]", "[0,0]") + "}")), "accepted");
  expect_refusal(file_of("{" + tensor("a", "F64", dims + ",1]", "[0,0]") + "}"),
                 "tensor 'a' has more than 32 dimensions");
  std::string header = "{";
  for (int k = 0; k < 100'000; ++k) header += tensor(concat(k), "U8", "[0]", "[0,0]") + ",";
  EXPECT_EQ(refusal(file_of(header.substr(0, header.size() - 1) + "}")), "accepted");
  expect_refusal(file_of(header + tensor("last", "U8", "[0]", "[0,0]") + "}"), "more than 100000 tensors");
}

// Long enough that work growing with the square of the length would reach the time limit of any test run.
TEST(Safetensors, HostileFilesGiveShortMessages) {
  const size_t size = 4'000'000;
  std::string empties = "{\"a\":";
  for (size_t k = 0; k < size; ++k) empties += "[]";
  for (const std::string& bytes :
       {file_of(std::string(size, '[')), file_of(std::string(size, ']')), file_of("{\"" + std::string(size, 'x')),
        file_of("{\"a\":" + std::string(size, '9')), file_of(empties),
        file_of("{\"a\":{\"dtype\":\"" + std::string(size, '\x01')),
        file_of("{" + tensor(std::string(size, 'n'), std::string(size, 't'), "[0]", "[0,0]") + "}")}) {
    const std::string said = refusal(bytes);
    EXPECT_NE(said, "accepted");
    EXPECT_LT(said.size(), 1000U) << "a message does not quote the file at length";
  }
}

TEST(Safetensors, TruncatedAnywhereIsRefused) {
  const std::string bytes = serialize_safetensors({{"a", StoredType::f32, {2, 2}, {1, 2, 3, 4}},
                                                   {"b", StoredType::u8, {3}, {5, 6, 7}},
                                                   {"c", StoredType::f16, {0}, {}}});
  ASSERT_EQ(refusal(bytes), "accepted");
  // A copy of the exact length, so that the sanitizer sees a read beyond it.
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_NE(refusal(std::string(bytes.substr(0, size))), "accepted") << "cut to " << size << " bytes";
  expect_refusal(bytes + '\0', "the file is too long: 1 bytes");
}

TEST(Safetensors, FlippedBitsNeverCrash) {
  const std::string bytes =
      serialize_safetensors({{"a", StoredType::f32, {2}, {1, 2}}, {"b", StoredType::boolean, {3}, {0, 1, 1}}});
  for (size_t at = 0; at < bytes.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      const Result<Tensors> parsed = parse_safetensors(flipped);
      if (parsed) {
        EXPECT_TRUE(parse_safetensors(serialize_safetensors(*parsed))) << "byte " << at << " bit " << bit;
      } else {
        EXPECT_EQ(parsed.error().kind, ErrorKind::bad_input) << "byte " << at << " bit " << bit;
      }
    }
}

// Their first bytes show that they are not tensors; reading on would fill the memory.
TEST(Safetensors, EndlessDevicesAreRefused) {
  const LimitedOutcome outcome = run_limited([](int) {
    for (const char* const device : {"/dev/zero", "/dev/urandom"}) {
      const Result<Tensors> read = read_safetensors(device);
      if (read || to_string(read.error()).find(device) == std::string::npos) return 1;
    }
    return 0;
  });
  EXPECT_TRUE(outcome.exited);
  EXPECT_EQ(outcome.code, 0);
  if (!kSanitized) {
    EXPECT_LE(outcome.megabytes, kMegabytesAllowed);
  }
}

TEST(Safetensors, ErrorsNameTheFile) {
  const std::string path = testing::TempDir() + "millrace_safetensors_test.safetensors";
  ASSERT_TRUE(write_file(path, serialize_safetensors({{"a", StoredType::f64, {1}, {7}}})));
  const Result<Tensors> good = read_safetensors(path);
  ASSERT_TRUE(good) << to_string(good.error());
  EXPECT_EQ(good->at(0).values, std::vector<double>{7});
  ASSERT_TRUE(write_file(path, "short"));
  const Result<Tensors> broken = read_safetensors(path);
  ASSERT_FALSE(broken);
  EXPECT_EQ(to_string(broken.error()).substr(0, path.size() + 9), path + ": error: ");
  std::remove(path.c_str());
  const Result<Tensors> missing = read_safetensors(path);
  ASSERT_FALSE(missing);
  EXPECT_NE(to_string(missing.error()).find(path), std::string::npos);
}

}  // namespace
}  // namespace millrace
