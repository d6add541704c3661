// Imported names stand for what they are imported from; Python's own functions of tensors mean what they mean in
// Python.
#include <gtest/gtest.h>

#include "frontend/program_text.h"

namespace millrace {
namespace {

std::string returning(std::string_view imports, std::string_view result) {
  return concat(imports, "\ndef f(x: float32[2, 3], y: float32[3]):\n    return ", result, "\n");
}

void expect_same_with(std::string_view imports, std::string_view result, std::string_view plain) {
  EXPECT_EQ(operators_of(returning(imports, result)), operators_of(returning("", plain))) << imports;
}

TEST(Imports, NamesOfNumpyMayBeAnything) {
  expect_same_with("import numpy", "numpy.exp(x)", "np.exp(x)");
  expect_same_with("import numpy as xp", "xp.linalg.norm(x)", "np.linalg.norm(x)");
  expect_same_with("import jax.numpy as jnp", "jnp.tanh(x)", "np.tanh(x)");
  expect_same_with("from numpy import exp as e, (tanh,)", "e(tanh(x))", "np.exp(np.tanh(x))");
  expect_same_with("from numpy import max", "max(x, 0)", "np.max(x, axis=0)");
  expect_same_with("import millrace.numpy", "millrace.numpy.relu(x)", "relu(x)");
  expect_same_with("import millrace.numpy as mr", "mr.softmax(x)", "softmax(x)");
  expect_same_with("from numpy.lib.stride_tricks import sliding_window_view as windows", "windows(y, 2)",
                   "np.lib.stride_tricks.sliding_window_view(y, 2)");
}

TEST(Imports, FunctionsAndConstantsOfMath) {
  expect_same_with("from math import sqrt as root, floor", "x * root(floor(4.5))", "x * 2.0");
  expect_same_with("import math as m", "x * m.sqrt(4)", "x * 2.0");
  expect_same_with("from math import pi as half_circle", "x * half_circle", "x * np.pi");
}

TEST(Imports, FunctionsOfTheFileComeFirst) {
  const std::string text = "from torch import relu\ndef relu(x):\n    return x * 2\n";
  EXPECT_EQ(operators_of(returning(text, "relu(x)")), operators_of(returning("", "x * 2")));
}

TEST(Imports, BuiltInFunctionsOfTensorsAreThoseOfPython) {
  expect_same_with("", "sum(x)", "np.sum(x, axis=0)");
  expect_same_with("", "max(y)", "np.max(y)");
  expect_same_with("", "abs(x)", "np.abs(x)");
}

}  // namespace
}  // namespace millrace
