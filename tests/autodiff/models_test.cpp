// Compares the models' gradients with forward-mode derivatives and finite differences, as for random programs.
#include <gtest/gtest.h>

#include <filesystem>

#include "autodiff/differentiate.h"
#include "base/file.h"
#include "base/text.h"
#include "frontend/frontend.h"
#include "random/check.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

TEST(DifferentiateModels, GradientsAgreeWithForwardModeAndFiniteDifferences) {
  int models = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(concat(MILLRACE_SOURCE_DIR, "/models"))) {
    if (entry.path().extension() != ".py") continue;
    ++models;
    const Result<std::string> text = read_file(entry.path().string(), kProgramBytes);
    ASSERT_TRUE(text);
    for (const char* size : {"tiny", "odd"}) {
      ProgramOptions options;
      options.sizes = {size};
      // The bounds grow exponentially with the number of operators in a row: those of BERT's layers exceed the values.
      if (entry.path().filename() == "bert.py") options.sizes = {"odd"};
      options.dtype = DType::float64;
      const Result<Graph> forward = parse_program(*text, options);
      ASSERT_TRUE(forward) << to_string(forward.error());
      const TrainingGraph training = differentiate(*forward);
      for (const uint64_t seed : {uint64_t{1}, uint64_t{2}, uint64_t{3}}) {
        const random_programs::Verdict verdict = random_programs::check_training(*forward, training, seed);
        EXPECT_EQ(verdict.complaint, std::nullopt) << entry.path() << " " << size << " " << seed;
        EXPECT_LE(verdict.looseness, random_programs::kLoose) << entry.path() << " " << size << " " << seed;
      }
    }
  }
  EXPECT_EQ(models, 19);
}

}  // namespace
}  // namespace millrace
