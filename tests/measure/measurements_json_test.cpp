#include "measure/measurements_json.h"

#include <gtest/gtest.h>

#include "base/sanitized.h"
#include "measure/verify.h"
#include "select/random_measurements.h"

namespace millrace {
namespace {

std::string complaint(const std::string& text) {
  const Result<Measurements> parsed = parse_measurements(text, "m.json");
  if (parsed) return "accepted";
  EXPECT_EQ(parsed.error().kind, ErrorKind::bad_input);
  EXPECT_FALSE(parsed.error().diagnostics[0].remedy.empty());
  return to_string(parsed.error());
}

// A small file with one of its texts replaced.
std::string with(const std::string& what, const std::string& by) {
  std::string text = R"({"schema_version": 2,
    "tensors": [{"name": "x", "layouts": ["a", "b"], "pinned": 1}, {"name": "y", "layouts": ["c"]}],
    "partitions": [{"name": "p", "pass": "forward", "reads": [0], "writes": [1],
               "candidates": [{"candidate": "k", "layouts": [1, 0], "seconds": 2e-6, "low": 1e-6, "high": 3e-6}]}],
    "choice_points": [{"alternatives": [[0]]}],
    "conversions": [{"tensor": 0, "from": 1, "to": 0, "seconds": 1e-6,
                     "candidate": "10 01; flat"}]})";
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

TEST(MeasurementsJson, RoundTrip) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    const Measurements measurements = random_measurements(seed);
    const std::string text = measurements_json(measurements);
    const Result<Measurements> parsed = parse_measurements(text, "m.json");
    ASSERT_TRUE(parsed) << to_string(parsed.error());
    EXPECT_EQ(measurements_json(*parsed), text);
    ASSERT_EQ(parsed->partitions.size(), measurements.partitions.size());
    for (size_t p = 0; p < measurements.partitions.size(); ++p) {
      ASSERT_EQ(parsed->partitions[p].candidates.size(), measurements.partitions[p].candidates.size());
      for (size_t w = 0; w < measurements.partitions[p].candidates.size(); ++w)
        EXPECT_EQ(parsed->partitions[p].candidates[w].seconds, measurements.partitions[p].candidates[w].seconds);
    }
  }
}

TEST(MeasurementsJson, NamesThatAreNotUtf8DoNotThrow) {
  Measurements measurements;
  measurements.tensors = {{"\xff", {"a"}}};
  EXPECT_TRUE(parse_measurements(measurements_json(measurements), "m.json"));
}

struct Hostile {
  const char* what;
  const char* by;
  const char* expected;  // in the error
};

TEST(MeasurementsJson, HostileTexts) {
  EXPECT_EQ(complaint(with("\"p\"", "\"p\"")), "accepted");
  const Hostile cases[] = {
      {"\"schema_version\": 2", "\"schema_version\": 3", "m.json: error: schema_version: version 3 is unknown"},
      {"\"schema_version\": 2,", "", "schema_version: it is missing"},
      {"\"seconds\": 2e-6", "\"seconds\": -1", "partitions[0].candidates[0].seconds: -1 is not a time"},
      {"\"seconds\": 2e-6", "\"seconds\": NaN", "parse error at line"},
      {"\"seconds\": 2e-6", "\"seconds\": 1e999", "number overflow"},
      {"\"seconds\": 2e-6", "\"seconds\": null", "partitions[0].candidates[0].seconds: it is of type null"},
      {"\"seconds\": 2e-6", "\"seconds\": 4e-6", "partitions[0].candidates[0].low: the interval"},
      {"\"seconds\": 2e-6, ", "", "partitions[0].candidates[0].seconds: it is missing"},
      {"\"reads\": [0]", "\"reads\": [2]", "partitions[0].reads[0]: there is no tensor 2"},
      {"\"reads\": [0]", "\"reads\": [-1]", "partitions[0].reads[0]: -1 is out of range"},
      {"\"reads\": [0]", "\"reads\": [99999999999999999999999]", "partitions[0].reads[0]: it is of type number"},
      {"\"reads\": [0]", "\"reads\": [18446744073709551615]", "partitions[0].reads[0]: 18446744073709551615 is out of"},
      {"\"reads\": [0]", "\"reads\": [0.5]", "partitions[0].reads[0]: it is of type number"},
      {"\"reads\": [0]", "\"reads\": {}", "partitions[0].reads: it is of type object"},
      {"\"writes\": [1]", "\"writes\": [0]", "partitions[0].writes[0]: the partition touches tensor 0 twice"},
      {"\"layouts\": [1, 0]", "\"layouts\": [1]", "partitions[0].candidates[0].layouts: 1 layouts for 2 tensors"},
      {"\"layouts\": [1, 0]", "\"layouts\": [1, 1]", "partitions[0].candidates[0].layouts[1]: 1 is not one of"},
      {"\"name\": \"y\"", "\"name\": \"x\"", "tensors[1].name: another tensor is named 'x' too"},
      {"\"name\": \"y\"", "\"name\": 7", "tensors[1].name: it is of type number"},
      {"\"name\": \"y\"", "\"nam\": \"y\"", "tensors[1].nam: unknown field"},
      {"[\"c\"]", "[]", "tensors[1].layouts: it is empty"},
      {"[\"a\", \"b\"]", "[\"a\", \"a\"]", "tensors[0].layouts[1]: 'a' is listed twice"},
      {"\"pinned\": 1", "\"pinned\": 2", "tensors[0].pinned: 2 is not one of"},
      {"\"forward\"", "\"sideways\"", "partitions[0].pass: this is not a pass"},
      {"[[0]]", "[]", "choice_points[0].alternatives: it is empty"},
      {"[[0]]", "[[0, 0]]", "choice_points[0].alternatives[0][1]: partition 0 is listed twice"},
      {"[[0]]", "[[1]]", "choice_points[0].alternatives[0][0]: there is no partition 1"},
      {"[{\"alternatives\": [[0]]}]", "[]", "partitions[0]: it is in no choice point"},
      {"[{\"alternatives\": [[0]]}]", "[{\"alternatives\": [[0]]}, {\"alternatives\": [[0]]}]",
       "is in choice point 0 too"},
      {"\"to\": 0", "\"to\": 1", "conversions[0].to: it equals .from"},
      {"\"to\": 0", "\"to\": 5", "conversions[0].to: 5 is not one of"},
      {"\"tensor\": 0", "\"tensor\": 9", "conversions[0].tensor: there is no tensor 9"},
      {"\"conversions\": [{", "\"conversions\": [7, {", "conversions[0]: it is of type number"},
  };
  for (const Hostile& hostile : cases) {
    const std::string text = complaint(with(hostile.what, hostile.by));
    EXPECT_NE(text.find(hostile.expected), std::string::npos) << hostile.by << "\n" << text;
  }
}

TEST(MeasurementsJson, HostileWholes) {
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("null"), std::string("{"), std::string("\xff\xfe"),
        std::string(1, '\0'), std::string(1'000'000, '['), std::string("{\"a\":") + std::string(100'000, '{')}) {
    EXPECT_NE(complaint(text).find("m.json"), std::string::npos);
  }
}

// Every prefix of a file, and the file with any byte changed, is either read or gives an error.
TEST(MeasurementsJson, DamagedTexts) {
  constexpr size_t kStep = kSanitized ? 7 : 1;
  const std::string whole = measurements_json(random_measurements(3));
  for (size_t k = 0; k + 2 < whole.size(); k += kStep) EXPECT_NE(complaint(whole.substr(0, k)), "accepted");
  for (size_t k = 0; k < whole.size(); k += kStep) {
    for (const char by : {'9', '-', '"', ']', ','}) {
      std::string text = whole;
      text[k] = by;
      if (const Result<Measurements> parsed = parse_measurements(text, "m.json")) {
        EXPECT_TRUE(verify(*parsed));
      }
    }
  }
}

TEST(VerifyMeasurements, SelectionsMustRun) {
  Measurements measurements;
  measurements.tensors = {{"x", {"a"}}, {"y", {"a"}}};
  measurements.partitions = {{"p", false, {1}, {0}, {}}, {"q", false, {0}, {1}, {}}};
  measurements.choice_points = {{{{0}}}, {{{1}}}};
  const Result<Done> cyclic = verify(measurements);
  ASSERT_FALSE(cyclic);
  EXPECT_NE(to_string(cyclic.error()).find("partitions[0].reads: tensor 1 is written by partitions[1]"),
            std::string::npos);

  measurements.partitions = {{"p", false, {}, {0}, {}}, {"q", false, {}, {0}, {}}};
  EXPECT_FALSE(verify(measurements)) << "two choice points write x";
  measurements.choice_points = {{{{0, 1}}}};
  EXPECT_FALSE(verify(measurements)) << "two partitions of one alternative write x";
  measurements.choice_points = {{{{0}, {1}}}};
  EXPECT_TRUE(verify(measurements));
  measurements.choice_points = {{{{0}, {1}, {}}}};
  EXPECT_TRUE(verify(measurements));
  measurements.tensors[0].pinned = 0;
  EXPECT_FALSE(verify(measurements)) << "a pinned tensor that one alternative does not write";
}

}  // namespace
}  // namespace millrace
