#include "device/cpu/compiler.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/directories.h"
#include "base/guard.h"
#include "base/process.h"
#include "base/temporary_directory.h"
#include "base/text.h"

namespace millrace {
namespace {

constexpr const char* kRemedy =
    "install g++ 12 or later (apt-get install g++), or set MILLRACE_CXX to a C++20 compiler";
constexpr double kPatience = 60;  // seconds

#ifdef __aarch64__
constexpr const char* kThisMachine = "-mcpu=native";
#else
constexpr const char* kThisMachine = "-march=native";
#endif

constexpr const char* kProbe = R"(#include <omp.h>
#include <cmath>
extern "C" __attribute__((visibility("default"))) void probe(float* x, int count) {
#pragma omp parallel for
  for (int k = 0; k < count; ++k) x[k] = std::sqrt(x[k]) + static_cast<float>(omp_get_thread_num());
}
)";

std::vector<std::string> flags_without_machine() {
  return {"-std=c++20",
          "-O3",
          "-fopenmp",
          "-fPIC",
          "-shared",
          "-fno-math-errno",
          "-fno-trapping-math",
          "-ffp-contract=fast",
          "-fno-signed-zeros",
          "-fvisibility=hidden",
          "-w"};
}

std::vector<std::string> words_of(const char* variable) {
  const char* value = std::getenv(variable);
  std::vector<std::string> words;
  if (value == nullptr) return words;
  for (std::string& word : split(value, ' '))
    if (!word.empty()) words.push_back(std::move(word));
  return words;
}

ProcessOptions patiently() {
  ProcessOptions options;
  options.timeout_seconds = kPatience;
  options.environment["LC_ALL"] = "C";
  return options;
}

Result<std::string> version_of(std::vector<std::string> command) {
  command.emplace_back("--version");
  const Result<Finished> finished = run_process(command, patiently());
  if (!finished) return finished.error();
  const std::string line = split(finished->output, '\n').front();
  if (finished->exit_code == 0 && !line.empty()) return line;
  const std::string why = finished->error.empty() ? "" : concat(": ", split(finished->error, '\n').front());
  return Error::make(ErrorKind::unavailable, concat("'", join(command, " "), "' does not print a version", why),
                     kRemedy);
}

// The user's cache, where folders that killed processes left are removed; before it exists, the system's folder.
std::string folder_for_probes() {
  constexpr double kStaleSeconds = 3600;  // no probe takes as long
  std::error_code failed;
  remove_stale_temporaries(TemporaryDirectory::system_folder(), kStaleSeconds);  // of commands before the cache existed
  const Result<std::string> cache = find_cache_directory();
  if (cache && std::filesystem::is_directory(*cache, failed) && access(cache->c_str(), W_OK) == 0) {
    remove_stale_temporaries(*cache, kStaleSeconds);
    return *cache;
  }
  return TemporaryDirectory::system_folder();
}

// The compiler's error about the probe; nullopt if it has none.
Result<std::optional<std::string>> complaint_about(const std::vector<std::string>& command) {
  const Result<TemporaryDirectory> scratch = TemporaryDirectory::make(folder_for_probes());
  if (!scratch) return scratch.error();
  std::vector<std::string> arguments = command;
  const std::string object = scratch->path() + "/probe.so";
  arguments.insert(arguments.end(), {"-x", "c++", "-", "-o", object});
  ProcessOptions options = patiently();
  options.input = kProbe;
  options.environment["TMPDIR"] = scratch->path();
  const Result<Finished> finished = run_process(guarded(std::move(arguments)), options);
  if (!finished) return finished.error();
  if (finished->timed_out) return std::optional(concat("it did not finish within ", kPatience, " s"));
  if (finished->exit_code != 0) return std::optional(finished->error.substr(0, 1000));
  if (!std::filesystem::exists(object)) return std::optional<std::string>("it made no file");
  return std::optional<std::string>();
}

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// `command`: the compiler, or a wrapper and its arguments.
Result<Compiler> check_compiler(const std::vector<std::string>& command) {
  const std::optional<std::string> path = find_program(command.front());
  if (!path)
    return Error::make(ErrorKind::unavailable, concat("the C++ compiler '", command.front(), "' does not exist"),
                       kRemedy);
  const Result<std::string> version = version_of(joined({*path}, {command.begin() + 1, command.end()}));
  if (!version) return version.error();
  std::string said;
  for (const bool for_this_machine : {true, false}) {
    std::vector<std::string> flags = joined({command.begin() + 1, command.end()}, flags_without_machine());
    if (for_this_machine) flags.emplace_back(kThisMachine);
    const Result<std::optional<std::string>> complaint = complaint_about(joined({*path}, flags));
    if (!complaint) return complaint.error();
    if (!*complaint) return Compiler{*path, *version, flags};
    said = **complaint;
  }
  return Error::make(ErrorKind::unavailable,
                     concat("the C++ compiler '", *path, "' does not compile a small kernel with OpenMP: ", said),
                     kRemedy);
}

}  // namespace

Result<Compiler> find_compiler() {
  // A compiler that the user chose is used or reported; others are tried in turn.
  if (const std::vector<std::string> told = words_of("MILLRACE_CXX"); !told.empty()) return check_compiler(told);
  std::vector<std::vector<std::string>> commands = {{"g++"}, {"c++"}, {"clang++"}};
  if (std::vector<std::string> usual = words_of("CXX"); !usual.empty()) commands.insert(commands.begin(), usual);
  Error last;
  for (const std::vector<std::string>& command : commands) {
    Result<Compiler> compiler = check_compiler(command);
    if (compiler) return compiler;
    // The error of a compiler that exists says more than the absence of another one.
    if (last.diagnostics.empty() || find_program(command.front())) last = compiler.error();
  }
  return last;
}

}  // namespace millrace
