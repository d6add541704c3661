// Damaged analyses: the verifier must notice every change.
#include "analysis/verify.h"

#include <gtest/gtest.h>

#include <functional>

#include "analysis/analyze.h"
#include "autodiff/backward_text.h"

namespace millrace {
namespace {

constexpr const char* kProgram = R"(
def f(x: float32[2, 3], w: float32[3, 4], b: float32[4]):
    y = np.einsum("ij,jk->ik", x, w)
    return softmax(relu(y + b))
)";

// What the verifier says about the program's analysis after `change`; empty: nothing.
std::string complaint(const std::function<void(Analysis&)>& change) {
  const TrainingGraph training = training_of(kProgram);
  Result<Analysis> analysis = analyze(training, int64_t{1} << 20);
  if (!analysis) return to_string(analysis.error());
  change(*analysis);
  const Result<Done> verified = verify(training, *analysis);
  return verified ? "" : verified.error().diagnostics.front().message;
}

TEST(VerifyAnalysis, AcceptsWhatAnalyzeReturns) {
  EXPECT_EQ(complaint([](Analysis&) {}), "");
}

TEST(VerifyAnalysis, NoticesWrongRows) {
  EXPECT_NE(complaint([](Analysis& a) { a.operators.pop_back(); }), "");
  EXPECT_NE(complaint([](Analysis& a) { std::swap(a.operators[0], a.operators[1]); }), "");
  EXPECT_EQ(complaint([](Analysis& a) { a.operators[0].flop = -1; }),
            "invalid analysis: y einsum has a negative count");
  EXPECT_NE(complaint([](Analysis& a) { a.operators[0].input_words = -1; }), "");
  EXPECT_NE(complaint([](Analysis& a) { a.operators[0].output_words = -1; }), "");
  EXPECT_NE(complaint([](Analysis& a) { a.fast_memory_words = 0; }), "");
}

// The einsum may have to move more words than its inputs and outputs, the bias may not.
TEST(VerifyAnalysis, NoticesWrongLowerBounds) {
  const auto with_bound = [](size_t row, int64_t more) {
    return complaint([&](Analysis& a) {
      const auto grow = [&](int64_t& bound) { bound += more; };
      OperatorAnalysis& changed = a.operators[row];
      grow(changed.io_lower_bound);
      grow(a.total.io_lower_bound);
      grow(a.by_pass[0].io_lower_bound);
      grow(a.by_class.at(static_cast<size_t>(changed.operator_class)).io_lower_bound);
    });
  };
  EXPECT_EQ(with_bound(0, 1), "");
  EXPECT_NE(with_bound(0, -1000).find("I/O lower bound"), std::string::npos);
  EXPECT_NE(with_bound(1, 1).find("I/O lower bound"), std::string::npos);
  EXPECT_NE(with_bound(1, -1).find("I/O lower bound"), std::string::npos);
}

TEST(VerifyAnalysis, NoticesTotalsThatAreNotSums) {
  for (int64_t Totals::*field :
       {&Totals::operators, &Totals::flop, &Totals::input_words, &Totals::output_words, &Totals::io_lower_bound}) {
    EXPECT_EQ(complaint([&](Analysis& a) { a.total.*field += 1; }),
              "invalid analysis: the total is not the sum of all operators");
    for (size_t k = 0; k < 3; ++k) EXPECT_NE(complaint([&](Analysis& a) { a.by_class.at(k).*field += 1; }), "") << k;
    for (size_t k = 0; k < 2; ++k) EXPECT_NE(complaint([&](Analysis& a) { a.by_pass.at(k).*field += 1; }), "") << k;
  }
  EXPECT_NE(complaint([](Analysis& a) { a.saved_words += 1; }), "");
}

}  // namespace
}  // namespace millrace
