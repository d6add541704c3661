// make_plan PROGRAM FOLDER [SIZE [TYPE]]: writes a plan, of float32 unless told otherwise, of the most promising
// candidates, unmeasured, for tests that run plans.
#include <gtest/gtest.h>

#include <cstdio>

#include "base/file.h"
#include "driver/plan_folder.h"
#include "plan/launched_partition.h"
#include "plan/random_plan.h"

int main(int argc, char** argv) {
  using namespace millrace;
  testing::InitGoogleTest(&argc, argv);
  if (argc < 3) {
    std::fputs("usage: make_plan PROGRAM FOLDER [SIZE [TYPE]]\n", stderr);
    return 2;
  }
  const auto finish = [](const Error& error) {
    std::fputs(to_string(error).c_str(), stderr);
    return 1;
  };
  const Result<std::string> text = read_file(argv[1], 1 << 20);
  if (!text) return finish(text.error());
  PlanChoice choice;
  choice.dtype = argc > 4 ? argv[4] : "float32";
  if (argc > 3) choice.sizes = {argv[3]};
  MadePlan made = make_plan(*text, choice);
  const Result<std::vector<Launch>> launches = lower_plan(made.plan, made.training, made.candidates);
  if (!launches) return finish(launches.error());
  const Result<KernelCache> cache = user_kernel_cache();
  if (!cache) return finish(cache.error());
  const Result<Done> written = write_plan(made.plan, *launches, *cache, argv[2]);
  return written ? 0 : finish(written.error());
}
