// What one kernel of the oracle computes, as plain data. This file is compiled here and is also the beginning of the
// kernels' source text, so both sides agree. A task is passed as a whole in device memory, zero where nothing is set.
// Test: tests/oracle/oracle_test.cpp
#pragma once

// The kernels' compiler has no std::array. Plain enums are numbers in a task, and have the names of constants.
// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming)

namespace millrace::oracle {

constexpr int kMostIndices = 24;
constexpr int kMostInputs = 8;
constexpr int kMostOutputs = 2;

enum Format {
  kNumber,   // one number for all points
  kExact,    // a double for each element; its error is relative · |value| + absolute
  kBounded,  // a Number (numbers.h) for each element
};

// A tensor, row-major. The element at a point is number first + Σ stride · index.
struct Operand {
  double* data;
  double number;
  double relative;
  double absolute;
  long long first;
  long long strides[kMostIndices];
  int format;
  int unused;
};

// What is summed, or whose extremum is taken, over the inner indices. The letters are the inputs in order.
enum Term {
  kValue,               // Σ a
  kLargest,             // max a
  kSmallest,            // min a
  kProduct,             // Σ a · b
  kProductOfThree,      // Σ a · b · c
  kShiftedExponential,  // Σ exp(a - b), where b is exact
  kSquaredDeviation,    // Σ (a - b)²
  kEqual,               // the number of points where a equals b
  kNormalized,          // Σ (a · b) · ((c - d) · e)
  kDeviation,           // Σ a · (b - c) · d
  kSelected,            // Σ a where b selects the point's index `gathered`
  kLargestMagnitude,    // max |a|
  kMagnitude,           // Σ |a| · b
};

// Formulas at a point that are not operators; kernels.h has all of them.
enum Formula {
  kFill = 1000,          // number
  kReciprocalRoot,       // 1 / √(a + number)
  kDraw,                 // an input: shift + scale · a uniform draw, or a position, or a boolean; then rounded
  kMask,                 // the mask of a dropout, without its error, rounded
  kRound,                // a, rounded to `mantissa` and `exponent`
  kTolerance,            // a; and scale · its error + the error from storing it, numbers[0] · |a| + numbers[1]
  kLibraryGelu,          // a + the error of a library's GELU at b
  kLibraryGeluGradient,  // a + the error of a library's gradient, c times the slope at b
  // Tasks of an attention, whose errors are bounded by formulas of measure/attention_reference_data.h:
  kScore,            // a · number; if is_boolean, -inf unless numbers[0] <= key - query <= numbers[1]
  kLogSum,           // log a + b
  kWeight,           // exp(a - b) / c
  kLinear,           // numbers[0] · a + numbers[1] · |b| + numbers[2]
  kWithError,        // a with the error b
  kDropped,          // a · b with the relative error c, rounded to the operands' type
  kGradientOfScore,  // number · a · (b - c), with its error
  kErrorOfLogit,     // the error of a, if its weight b is not negligible
  kScaledGradient,   // number · a, rounded to the operands' type
};

struct Task {
  int formula;  // a Term, an OperatorKind or a Formula
  int inputs;   // how many
  int outputs;
  int outer;        // indices of the output: each point of them is one thread's
  int indices;      // outer and inner ones
  int inner_parts;  // threads that share the inner points of an output element, each with a partial result
  long long extents[kMostIndices];
  long long points;  // of the outer indices
  long long length;  // points of the inner indices
  Operand in[kMostInputs];
  Operand out[kMostOutputs];
  double* partials;  // Numbers, points · inner_parts
  unsigned long long* first_nonfinite;
  double roundoff;  // u of the arithmetic whose errors are bounded
  double divisor;   // divides a sum; 0: none
  double number;    // Operator::value
  double scale;     // a drawn number is shift + scale · draw
  double shift;
  double numbers[6];  // more, by formula
  unsigned long long seed;
  unsigned int step;
  unsigned int subsequence;  // of a dropout, or the number of a drawn tensor
  int gathered;              // index that ids select
  int mantissa;              // bits after the point that a rounded value keeps; 0: all
  int exponent;              // smallest exponent of a normal number
  int is_boolean;
  long long positions;  // drawn positions, or the extent that ids select from; 0: none
  long long gathered_stride;
  int diagonal[kMostIndices];
};

}  // namespace millrace::oracle

// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming)
