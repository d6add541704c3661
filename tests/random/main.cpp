// Checks random programs, for a given count or time. For a failure, prints the command that repeats it.
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "random/check.h"
#include "random/emit.h"
#include "random/generator.h"

namespace millrace::random_programs {
namespace {

constexpr std::string_view kUsage = R"(usage: random_programs [--count N | --minutes M] [--seed S]
       random_programs --one SEED
       random_programs --emit N [--seed S]

  --count N    checks N programs (default 5000)
  --minutes M  checks programs for M minutes
  --seed S     the first program's seed (default: MILLRACE_SEED in the environment, else a random one)
  --one SEED   prints the program of this seed and checks it
  --emit N     writes N programs with inputs and results as JSON lines
)";

constexpr int kMostFailures = 10;
constexpr double kMostLoosePercent = 2;      // usually 1.2
constexpr uint64_t kEnoughForAShare = 3000;  // with fewer programs, chance alone can exceed the limit

struct Options {
  uint64_t count = 5000;
  std::optional<uint64_t> seed;
  std::optional<uint64_t> minutes;
  std::optional<uint64_t> one;
  std::optional<uint64_t> emit;
};

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The largest random first seed; later programs count up from it.
constexpr uint64_t kMostDrawnSeed = 1'000'000'000;

std::optional<uint64_t> seed_of_environment() {
  const char* const text = std::getenv("MILLRACE_SEED");
  if (text == nullptr || *text == '\0') return 1 + std::random_device{}() % kMostDrawnSeed;
  return parse_number(text);
}

std::optional<Options> parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; i += 2) {
    const std::string_view name = arguments[i];
    if (i + 1 == count) return std::nullopt;
    const std::optional<uint64_t> value = parse_number(arguments[i + 1]);
    if (!value) return std::nullopt;
    if (name == "--count") {
      options.count = *value;
    } else if (name == "--seed") {
      options.seed = value;
    } else if (name == "--minutes") {
      options.minutes = value;
    } else if (name == "--one") {
      options.one = value;
    } else if (name == "--emit") {
      options.emit = value;
    } else {
      return std::nullopt;
    }
  }
  if (!options.seed) options.seed = seed_of_environment();
  if (!options.seed) return std::nullopt;
  return options;
}

// The first line of a message, which is enough.
void print_failure(uint64_t seed, const std::string& complaint) {
  std::cout << "./millrace fuzz --one " << seed << "   # " << complaint.substr(0, complaint.find('\n')) << std::endl;
}

int check_one(uint64_t seed) {
  const std::string text = random_program(seed);
  std::cout << text << std::endl;
  const Verdict verdict = check_program(text, seed);
  std::cout << "# " << verdict.operators << " operators, tolerance " << verdict.looseness << " of the magnitudes\n";
  if (verdict.complaint) std::cout << "# failed: " << *verdict.complaint << "\n";
  return verdict.complaint ? 1 : 0;
}

int emit(const Options& options) {
  for (uint64_t seed = *options.seed; seed < *options.seed + *options.emit; ++seed) {
    const Result<std::string> line = emitted(seed);
    if (!line) {
      print_failure(seed, to_string(line.error()));
      return 1;
    }
    std::cout << *line << "\n";
  }
  return 0;
}

class Progress {
 public:
  void show(uint64_t passed, const std::string& left) const {
    if (terminal_) std::cerr << "\r" << passed << " passed, " << left << " left   " << std::flush;
  }
  ~Progress() {
    if (terminal_) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0;
};

int check_many(const Options& options) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::minutes(options.minutes.value_or(0));
  uint64_t passed = 0;
  uint64_t loose = 0;
  int failed = 0;
  std::cout << "programs from seed " << *options.seed << " on; the same ones again: MILLRACE_SEED=" << *options.seed
            << std::endl;
  {
    const Progress progress;
    for (uint64_t seed = *options.seed; failed < kMostFailures; ++seed) {
      const uint64_t done = seed - *options.seed;
      if (options.minutes ? Clock::now() >= end : done >= options.count) break;
      const Verdict verdict = check_program(random_program(seed), seed);
      if (verdict.complaint) {
        ++failed;
        print_failure(seed, *verdict.complaint);
        continue;
      }
      ++passed;
      if (!(verdict.looseness <= kLoose)) ++loose;
      if (done % 100 != 0) continue;
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(end - Clock::now()).count();
      progress.show(passed, options.minutes ? std::to_string(seconds) + " s" : std::to_string(options.count - done));
    }
  }
  const double loose_percent = passed == 0 ? 0 : 100.0 * static_cast<double>(loose) / static_cast<double>(passed);
  const bool too_loose = passed >= kEnoughForAShare && loose_percent > kMostLoosePercent;
  std::cout << loose_percent << " % of the programs have a tolerance above " << kLoose << " of what is compared"
            << (too_loose ? ": too many check too little" : "") << "\n"
            << passed << " passed, " << failed << " failed" << std::endl;
  return failed > 0 || too_loose ? 1 : 0;
}

int run(int count, char** arguments) {
  const std::optional<Options> options = parse(count, arguments);
  if (!options) {
    std::cerr << kUsage;
    return 2;
  }
  if (options->one) return check_one(*options->one);
  if (options->emit) return emit(*options);
  return check_many(*options);
}

}  // namespace
}  // namespace millrace::random_programs

int main(int count, char** arguments) { return millrace::random_programs::run(count, arguments); }
