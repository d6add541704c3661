// Every name in the tables of what is not covered gives its remedy, and is not covered.
#include "frontend/not_covered.h"

#include <gtest/gtest.h>

#include <set>

#include "frontend/functions.h"
#include "frontend/program_text.h"
#include "frontend/shape_functions.h"

namespace millrace {
namespace {

std::string error_in(const std::string& statement) {
  return error_of(concat("def f(x: float32[4]):\n    ", statement, "\n    return x\n"));
}

void expect_remedy(const std::string& statement, const NotCovered& expected) {
  const std::string error = error_in(statement);
  EXPECT_NE(error.find(expected.message), std::string::npos) << statement << "\n" << error;
  EXPECT_NE(error.find(concat("\n  ", expected.remedy)), std::string::npos) << statement << "\n" << error;
  EXPECT_NE(expected.remedy, "") << statement;
}

TEST(NotCovered, FunctionsOfNumpy) {
  ASSERT_GE(not_covered_numpy().size(), 200U);
  for (const std::string& name : not_covered_numpy()) {
    const size_t dot = name.rfind('.');
    const std::string prefix = dot == std::string::npos ? "np" : concat("np.", name.substr(0, dot));
    std::string last = dot == std::string::npos ? name : name.substr(dot + 1);
    if (last == "*") last = "anything";
    // A function that is covered by now must leave the table.
    EXPECT_FALSE(dot == std::string::npos && (is_named_function(last) || is_shape_function(last))) << name;
    expect_remedy(concat("y = ", prefix, ".", last, "(x)"), not_covered_function(prefix, last));
  }
}

TEST(NotCovered, FunctionsOfPython) {
  for (const std::string& name : not_covered_built_in())
    expect_remedy(concat("y = ", name, "(x)"), not_covered_function("", name));
}

TEST(NotCovered, MethodsAndAttributes) {
  for (const std::string& name : not_covered_methods()) {
    expect_remedy(concat("y = x.", name, "()"), not_covered_method(name));
    expect_remedy(concat("y = (x + 1).", name), not_covered_method(name));
  }
}

TEST(NotCovered, Words) {
  for (const std::string& word : not_covered_words()) expect_remedy(concat(word, " x"), not_covered_word(word));
}

TEST(NotCovered, NoNameIsListedTwice) {
  for (const std::vector<std::string>& names :
       {not_covered_numpy(), not_covered_built_in(), not_covered_methods(), not_covered_words()}) {
    std::set<std::string> seen;
    for (const std::string& name : names) EXPECT_TRUE(seen.insert(name).second) << name;
  }
}

// A function of NumPy is never answered with another one that is spelled almost the same.
TEST(NotCovered, SuggestionsAreMisspellings) {
  for (const std::string name : {"var", "sin", "cos", "tan", "std", "cbrt", "ceil", "any", "rint", "mod", "fmin"}) {
    EXPECT_EQ(error_in(concat("y = np.", name, "(x)")).find("did you mean"), std::string::npos) << name;
  }
  EXPECT_NE(error_in("y = sofmax(x)").find("did you mean 'softmax'?"), std::string::npos);
}

}  // namespace
}  // namespace millrace
