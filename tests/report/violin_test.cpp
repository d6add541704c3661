#include "report/html/violin.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace {
namespace {

TEST(Violin, FewOrEqualSamplesHaveNoDensity) {
  EXPECT_TRUE(density_of({1, 2, 3}, 10).empty());
  EXPECT_TRUE(density_of({2, 2, 2, 2, 2}, 10).empty());
}

TEST(Violin, DensityIsHighestWhereMostSamplesAre) {
  const std::vector<double> density = density_of({0, 1, 1.01, 1.02, 1.03, 1.04, 4}, 41);
  ASSERT_EQ(density.size(), 41U);
  const auto highest = std::max_element(density.begin(), density.end());
  EXPECT_EQ(*highest, 1);
  EXPECT_NEAR(static_cast<double>(highest - density.begin()), 10, 3);  // at 1 of 0 to 4
  for (const double value : density) EXPECT_GE(value, 0);
}

TEST(Violin, TheDensityOfSymmetricSamplesIsSymmetric) {
  const std::vector<double> density = density_of({-2, -1, -1, 0, 1, 1, 2}, 21);
  ASSERT_EQ(density.size(), 21U);
  EXPECT_GT(density[10], density[0]);
  for (size_t k = 0; k < density.size(); ++k) EXPECT_NEAR(density[k], density[density.size() - 1 - k], 1e-9);
}

TEST(Violin, NamesAndReasonsAreEscaped) {
  Violin violin;
  violin.name = "<b>";
  violin.sides = {{"generated kernels", "violin", {1, 2, 30}}};
  violin.selected = 2;
  violin.reason = "it wants <x> & y";
  const std::string svg = draw_violins({violin}, "a \"label\"");
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  EXPECT_NE(svg.find("&lt;b&gt;"), std::string::npos);
  EXPECT_NE(svg.find("it wants &lt;x&gt; &amp; y"), std::string::npos);
  EXPECT_NE(svg.find("a &quot;label&quot;"), std::string::npos);
  EXPECT_NE(svg.find("1 slower"), std::string::npos) << "what is beyond the axis is counted";
}

TEST(Violin, LongNamesAreSplitInTwo) {
  Violin violin;
  violin.name = "q_projected einsum d_wq + k_projected einsum d_wk + v_projected einsum d_wv";
  violin.sides = {{"generated kernels", "violin", {1, 2}}};
  const std::string svg = draw_violins({violin}, "");
  EXPECT_NE(svg.find(">q_projected einsum d_wq +<"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">k_projected einsum d_wk + v_pr…<"), std::string::npos) << svg;
  violin.name = std::string(100, 'x');
  EXPECT_NE(draw_violins({violin}, "").find("xxxxxxxxx…<"), std::string::npos);
}

TEST(Violin, TheFastestOfASlowSideIsVisible) {
  Violin violin;
  violin.name = "product";
  violin.sides = {{"Tensor Cores", "violin openblas", {1, 2}}, {"no Tensor Cores", "violin blis", {20, 40}}};
  EXPECT_NE(draw_violins({violin}, "").find(">20×<"), std::string::npos);
  EXPECT_NE(draw_violins({violin}, "").find("1 slower"), std::string::npos);
  violin.sides[1].seconds = {5, 40};
  EXPECT_EQ(draw_violins({violin}, "").find(">20×<"), std::string::npos);
}

TEST(Violin, FewCandidatesAreSinglePointsAndSaidToBeTooFew) {
  Violin violin;
  violin.name = "product";
  violin.sides = {{"generated kernels", "violin", {1, 2, 3}}};
  const std::string few = draw_violins({violin}, "");
  EXPECT_NE(few.find("3 candidates, 1.00 s, too few<"), std::string::npos) << few;
  EXPECT_NE(few.find("<circle"), std::string::npos);
  violin.sides[0].seconds = {1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 2};
  const std::string enough = draw_violins({violin}, "");
  EXPECT_EQ(enough.find("too few"), std::string::npos);
  EXPECT_EQ(enough.find("<circle"), std::string::npos);
}

}  // namespace
}  // namespace millrace
