#include "device/cpu/compile.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <future>
#include <utility>

#include "base/file.h"
#include "base/guard.h"
#include "base/process.h"
#include "base/sha256.h"
#include "base/text.h"
#include "device/kernel_store.h"

namespace millrace {
namespace {

constexpr size_t kMessageLines = 4;
constexpr size_t kMessageBytes = 800;

// The compiler's first errors, without the lines that lead up to them.
std::string first_messages(const std::string& output) {
  std::vector<std::string> errors;
  std::vector<std::string> others;
  for (const std::string& line : split(output, '\n')) {
    const bool is_error = line.find("error") != std::string::npos;
    std::vector<std::string>& lines = is_error ? errors : others;
    if (!line.empty() && lines.size() < kMessageLines) lines.push_back(line);
  }
  return join(errors.empty() ? others : errors, "\n    ").substr(0, kMessageBytes);
}

// Judged by what the tools print, or, for those that die silently, by the space that is left.
bool is_full_disk(const std::string& output, const std::string& directory) {
  for (const int number : {ENOSPC, EDQUOT})
    if (output.find(std::strerror(number)) != std::string::npos) return true;
  constexpr uint64_t kTooLittle = 4096;  // bytes
  struct statvfs space {};
  return statvfs(directory.c_str(), &space) == 0 && uint64_t{space.f_bavail} * space.f_frsize < kTooLittle;
}

CompileOutcome text_failed(Error error) { return {std::nullopt, {true, std::move(error)}}; }
CompileOutcome machine_failed(Error error) { return {std::nullopt, {false, std::move(error)}}; }

CompileOutcome failed_to_compile(const Finished& finished, const std::string& directory, double seconds) {
  if (is_full_disk(finished.error, directory))
    return machine_failed(with_room_as_remedy(
        Error::make(ErrorKind::failed, concat("no space left to compile kernels in '", directory, "'")), directory));
  std::string why = first_messages(finished.error);
  if (finished.timed_out) why = concat("the compiler was killed after ", seconds, " s");
  if (why.empty()) why = concat("the compiler ", to_string(Ending{finished.exit_code, finished.signal, ""}));
  return text_failed(Error::make(ErrorKind::failed, why));
}

}  // namespace

std::string translation_unit(const std::string& prelude, const std::vector<NamedKernel>& kernels) {
  std::string text = concat("#line 1 \"prelude\"\n", prelude, "\n");
  for (const NamedKernel& kernel : kernels)
    text += concat("#define MILLRACE_KERNEL ", kernel.name, "\n#pragma GCC visibility push(default)\nnamespace of_",
                   kernel.name, " {\n#line 1 \"", kernel.name, "\"\n", kernel.text,
                   "\n}\n#pragma GCC visibility pop\n#undef MILLRACE_KERNEL\n");
  return text;
}

namespace {

// Runs the compiler with its flags and these arguments; nothing if it succeeds.
std::optional<CompileOutcome> run_compiler(const Compiler& compiler, const std::vector<std::string>& further,
                                           const std::string& folder, const std::string& directory, double seconds) {
  std::vector<std::string> arguments = {compiler.path};
  arguments.insert(arguments.end(), compiler.flags.begin(), compiler.flags.end());
  arguments.insert(arguments.end(), further.begin(), further.end());
  ProcessOptions options;
  options.timeout_seconds = seconds;
  options.output_limit = size_t{64} << 10;
  options.environment = {{"TMPDIR", folder}, {"LC_ALL", "C"}};
  const Result<Finished> finished = run_process(guarded(std::move(arguments)), options);
  if (!finished) return machine_failed(finished.error());
  if (finished->exit_code != 0 || finished->timed_out) return failed_to_compile(*finished, directory, seconds);
  return std::nullopt;
}

// The shared object at `path`, which the compiler made.
CompileOutcome taken(TemporaryDirectory folder, const std::string& path) {
  // The user's umask may make it group-writable; then it would not be loaded.
  if (chmod(path.c_str(), 0600) != 0)
    return text_failed(Error::make(ErrorKind::failed, concat("the compiler made no object: ", std::strerror(errno))));
  Result<std::string> bytes = read_file(path, kLargestObject);
  if (!bytes) return machine_failed(bytes.error());
  std::string hash = sha256(*bytes);
  CompileOutcome outcome;
  outcome.object = FreshObject{std::move(folder), path, std::move(*bytes), std::move(hash)};
  return outcome;
}

}  // namespace

CompileOutcome compile(const Compiler& compiler, const std::vector<TranslationUnit>& units,
                       const std::string& directory, double seconds) {
  Result<TemporaryDirectory> made = TemporaryDirectory::make(directory);
  if (!made) return machine_failed(with_room_as_remedy(made.error(), directory));
  const std::string& folder = made->path();
  const std::string path = folder + "/kernels.so";
  std::vector<std::vector<std::string>> arguments;
  for (const TranslationUnit& unit : units) {
    arguments.push_back(unit.flags);
    arguments.back().push_back(concat(folder, "/kernels", arguments.size() - 1, ".cpp"));
    if (const Result<Done> written = write_file(arguments.back().back(), unit.text); !written)
      return machine_failed(with_room_as_remedy(written.error(), directory));
  }
  if (units.size() == 1) {
    arguments.front().insert(arguments.front().end(), {"-o", path});
    auto failure = run_compiler(compiler, arguments.front(), folder, directory, seconds);
    return failure ? std::move(*failure) : taken(std::move(*made), path);
  }
  std::vector<std::future<std::optional<CompileOutcome>>> running;
  std::vector<std::string> linked;
  for (std::vector<std::string>& unit : arguments) {
    linked.push_back(unit.back() + ".o");
    unit.insert(unit.end(), {"-c", "-o", linked.back()});
    running.push_back(
        std::async(std::launch::async, [&] { return run_compiler(compiler, unit, folder, directory, seconds); }));
  }
  std::optional<CompileOutcome> failure;
  for (auto& one : running) {
    if (std::optional<CompileOutcome> outcome = one.get(); outcome && !failure) failure = std::move(outcome);
  }
  linked.insert(linked.end(), {"-o", path});
  if (!failure) failure = run_compiler(compiler, linked, folder, directory, seconds);
  return failure ? std::move(*failure) : taken(std::move(*made), path);
}

}  // namespace millrace
