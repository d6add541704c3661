#include "measure/expectation.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

Candidate kernel(bool rows, std::optional<GpuShape> gpu = std::nullopt) {
  KernelConfig config;
  config.rows = rows;
  config.gpu = gpu;
  return {{}, config, 0};
}

Candidate product(GemmLibrary library, int algorithm = -1, std::vector<int> m = {0}) {
  GemmConfig config;
  config.library = library;
  config.m = std::move(m);
  config.algorithm.id = algorithm;
  return {{}, config, 0};
}

Ratios ratios_of(const std::map<int, std::vector<double>>& by_kind) {
  Ratios made;
  for (const auto& [kind, ratios] : by_kind) {
    for (const double ratio : ratios) made.add(kind, ratio);
  }
  return made;
}

TEST(ExpectationTest, ConfigFamilies) {
  ConfigKinds kinds;
  const ConfigKind rows = kinds.kind_of(kernel(true));
  EXPECT_EQ(rows.family, rows.shape) << "a CPU's kernels have no narrower kind";
  EXPECT_EQ(kinds.kind_of(kernel(true)).family, rows.family);
  EXPECT_NE(kinds.kind_of(kernel(false)).family, rows.family);
  Candidate along = kernel(true);
  std::get<KernelConfig>(along.config).loops = {0, 1};
  std::get<KernelConfig>(along.config).vector = 1;
  EXPECT_EQ(kinds.kind_of(along).family, rows.family);
  Candidate across = along;
  std::get<KernelConfig>(across.config).vector = 0;
  EXPECT_NE(kinds.kind_of(across).family, rows.family);
  const ConfigKind narrow = kinds.kind_of(kernel(true, GpuShape{1, 32, 128}));
  const ConfigKind wide = kinds.kind_of(kernel(true, GpuShape{8, 32, 128}));
  EXPECT_EQ(narrow.family, wide.family);
  EXPECT_NE(narrow.shape, wide.shape);
  EXPECT_NE(narrow.shape, narrow.family);
}

TEST(ExpectationTest, ProductsAreGroupedByLibraryThenByAlgorithmOrShape) {
  ConfigKinds kinds;
  const ConfigKind own = kinds.kind_of(product(GemmLibrary::cublaslt));
  EXPECT_NE(kinds.kind_of(product(GemmLibrary::openblas)).family, kinds.kind_of(product(GemmLibrary::blis)).family);
  EXPECT_NE(kinds.kind_of(product(GemmLibrary::onednn)).family, kinds.kind_of(product(GemmLibrary::blis)).family);
  EXPECT_NE(kinds.kind_of(product(GemmLibrary::openblas)).family, own.family);
  EXPECT_EQ(kinds.kind_of(product(GemmLibrary::cublaslt, 7)).family, own.family);
  EXPECT_NE(kinds.kind_of(product(GemmLibrary::cublaslt, 7)).shape, own.shape);
  EXPECT_NE(kinds.kind_of(product(GemmLibrary::cublaslt, -1, {0, 1})).shape, own.shape);
  // The algorithm matters, not m, n and k.
  EXPECT_EQ(kinds.kind_of(product(GemmLibrary::cublaslt, 7, {0, 1})).shape,
            kinds.kind_of(product(GemmLibrary::cublaslt, 7)).shape);
}

TEST(ExpectationTest, CorrectsByTheNarrowestMeasuredKind) {
  const ConfigKind kind{0, 1};
  const Ratios none;
  const Ratios any = ratios_of({{0, {5}}});
  const Ratios by_family = ratios_of({{0, {3}}});
  const Ratios by_shape = ratios_of({{0, {3, 2}}, {1, {2}}});
  EXPECT_EQ(Expectation(none, none).seconds(kind, 0.5), 0.5) << "the model's estimate";
  EXPECT_EQ(Expectation(none, any).seconds(kind, 0.5), 2.5);
  EXPECT_EQ(Expectation(by_family, any).seconds(kind, 0.5), 1.5);
  EXPECT_EQ(Expectation(by_shape, any).seconds(kind, 0.5), 1);
  // The timing class comes before all others.
  const Ratios by_timing_class = ratios_of({{0, {3, 2}}, {1, {2}}, {4, {7}}});
  EXPECT_EQ(Expectation(by_timing_class, any).seconds({0, 1, 4}, 0.5), 3.5);
  EXPECT_EQ(Expectation(by_timing_class, any).seconds({0, 1, 5}, 0.5), 1);
  // Ratios of another family do not count.
  EXPECT_EQ(Expectation(by_shape, any).seconds({2, 3}, 0.5), 0.5);
}

TEST(ExpectationTest, MedianOfAllRatios) {
  Ratios ratios;
  EXPECT_TRUE(ratios.empty());
  EXPECT_FALSE(ratios.median(0));
  for (const double ratio : {7, 1, 5, 1, 3}) ratios.add(0, ratio);
  EXPECT_EQ(ratios.median(0), 3);
  ratios.add(0, 4);
  EXPECT_EQ(ratios.median(0), 4) << "the larger of the two in the middle";
  EXPECT_FALSE(ratios.median(1));
  EXPECT_FALSE(ratios.empty());
}

TEST(ExpectationTest, AnOutlierDoesNotMatter) {
  const Ratios ratios = ratios_of({{0, {2, 900, 1.5, 2, 2.5}}});
  const Ratios none;
  Expectation expectation(ratios, none);
  EXPECT_EQ(expectation.seconds({0, 0}, 1), 2);
  EXPECT_EQ(expectation.seconds({0, 0}, 10), 20);
}

TEST(ExpectationTest, LessonsRoundTrip) {
  Candidate shaped = kernel(true, GpuShape{8, 32, 128});
  shaped.estimate = 1.25e-5;
  const Lesson lesson = lesson_of(shaped);
  const std::optional<Lesson> read = parse_lesson(print_lesson(lesson));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->family, lesson.family);
  EXPECT_EQ(read->shape, lesson.shape);
  EXPECT_DOUBLE_EQ(read->estimate, 1.25e-5);
  EXPECT_NE(lesson.shape, lesson.family);
  for (const char* const text : {"", "estimate", "estimate 1; a", "estimate -1; a; b", "estimate x; a; b", "y[0] is 1"})
    EXPECT_FALSE(parse_lesson(text)) << text;
}

TEST(ExpectationTest, EarlierRunsTellShapesApart) {
  ConfigKinds kinds;
  const ConfigKind slow = kinds.kind_of(kernel(true, GpuShape{1, 32, 128}));
  const ConfigKind fast = kinds.kind_of(kernel(true, GpuShape{8, 32, 128}));
  const ConfigKind other = kinds.kind_of(kernel(true, GpuShape{4, 32, 128}));
  Ratios earlier;
  earlier.add_all({{slow.family, {2, 8, 4}}, {slow.shape, {8}}, {fast.shape, {2}}});
  const Ratios none;
  Expectation first(none, none, &earlier);
  EXPECT_DOUBLE_EQ(first.seconds(slow, 1), 8);
  EXPECT_DOUBLE_EQ(first.seconds(fast, 1), 2);
  EXPECT_DOUBLE_EQ(first.seconds(other, 1), 4) << "as its family";
  // This run measured the family elsewhere: twice as slow as before.
  const Ratios now = ratios_of({{slow.family, {8}}});
  Expectation later(none, now, &earlier);
  EXPECT_DOUBLE_EQ(later.seconds(slow, 1), 16);
  EXPECT_DOUBLE_EQ(later.seconds(fast, 1), 4);
  const Ratios measured = ratios_of({{slow.shape, {3}}});
  EXPECT_DOUBLE_EQ(Expectation(measured, now, &earlier).seconds(slow, 1), 3) << "its own class counts most";
}

}  // namespace
}  // namespace millrace
