// Times selections of generated measurements, and prints their proven gaps: bench/selection/run.sh.
#include <cstdio>
#include <ctime>
#include <string>

#include "base/clock.h"
#include "select/deep_measurements.h"
#include "select/layer_measurements.h"
#include "select/select.h"
#include "select/verify.h"

namespace millrace {
namespace {

void print(const char* name, const Measurements& measurements, const char* method, const Result<Selection>& selection,
           double seconds, double cpu) {
  std::printf("%-34s %7zu  %-9s ", name, measurements.partitions.size(), method);
  if (!selection) {
    std::printf("failed: %s\n", to_string(selection.error()).c_str());
    return;
  }
  const Result<Done> verified = verify(measurements, *selection);
  std::printf("%8.3f s %8.3f s  cost %.6g, %s", seconds, cpu, selection->cost,
              selection->proven ? "optimal" : "within ");
  if (!selection->proven) std::printf("%.3f %%", 100 * selection->proven_gap());
  std::printf("%s\n", verified ? "" : ", INVALID");
  std::fflush(stdout);
}

template <class Select>
void time(const char* name, const Measurements& measurements, const char* method, const Select& select_it) {
  const double start = now();
  const std::clock_t cpu = std::clock();
  const Result<Selection> selection = select_it();
  print(name, measurements, method, selection, now() - start, static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC);
}

void bench(const char* name, const Measurements& measurements) {
  time(name, measurements, "10 s", [&] { return select(measurements, SelectMethod::exact, {10}); });
  time(name, measurements, "1 s", [&] { return select(measurements, SelectMethod::exact, {1}); });
  time(name, measurements, "0 s", [&] { return select(measurements, SelectMethod::exact, {0}); });
  time(name, measurements, "roughly", [&] { return select_roughly(measurements); });
  time(name, measurements, "sssp", [&] { return select(measurements, SelectMethod::sssp); });
}

DeepOptions with_long_skips(int count) {
  DeepOptions options;
  options.long_skips = count;
  return options;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  const std::string only = argc > 1 ? argv[1] : "";
  const auto wanted = [&](const std::string& name) { return only.empty() || name.find(only) != std::string::npos; };
  std::printf("%-34s %7s  %-9s %10s %10s\n", "problem", "parts", "limit", "time", "CPU");
  for (unsigned seed = 0; seed < 3; ++seed) {
    if (wanted("layer")) bench("layer of BERT", layer_measurements(seed));
    if (wanted("deep")) bench("deep: 24 layers", deep_measurements(seed));
    if (wanted("skips")) bench("skips: 24 layers, 24 long ones", deep_measurements(seed, with_long_skips(24)));
  }
  if (wanted("chain")) bench("chain", chain_measurements(0, 100'000));
}
