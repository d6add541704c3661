// Plants one fault in the text of a generated kernel. Test: tests/campaigns/checks/mutate_test.cpp
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace millrace::campaigns {

struct Mutant {
  std::string text;
  std::string change;  // for people: "line 12: ' + ' becomes ' - '"
};

// Changes one integer, operator, comparison, function, variable or statement, chosen at random.
Mutant mutated(const std::string& kernel, std::mt19937_64& random);

}  // namespace millrace::campaigns
