// The `millrace` program: options in, text out. Data goes to standard output, messages to standard error.
#include "millrace/millrace.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

#include "base/large_stack.h"
#include "tools/command_line.h"
#include "tools/status_line.h"
#include "tools/usage_error.h"

namespace {

using millrace::Error;
using millrace::ErrorKind;
using millrace::Result;

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;
constexpr int kUnavailable = 3;
constexpr int kNoConfiguration = 4;

enum class Errors { text, json };

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::bad_input: return kWrongUsage;
    case ErrorKind::unavailable: return kUnavailable;
    case ErrorKind::no_configuration: return kNoConfiguration;
    case ErrorKind::failed: break;
  }
  return kFailed;
}

int fail(const Error& error, Errors form) {
  const int code = exit_code(error.kind);
  std::cerr << (form == Errors::json ? millrace::error_json(error, code) : millrace::to_string(error));
  return code;
}

int finish(const Result<std::string>& result, Errors form) {
  if (!result) return fail(result.error(), form);
  std::cout << *result << std::flush;
  if (std::cout) return kDone;
  return fail(Error::make(ErrorKind::failed, "cannot write to standard output"), form);
}

// A thread of OpenMP that waits spins for milliseconds unless it is told otherwise. On a busy machine it then takes the
// core from the thread that it waits for: kernels of 10 µs took 2 ms on average. After a short spin it should sleep.
// The library reads this when the program starts, hence the restart.
void spin_briefly(char** argv) {
  constexpr const char* kSpins = "GOMP_SPINCOUNT";
  if (std::getenv(kSpins) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (setenv(kSpins, millrace::kSpinCount, 1) == 0) execv("/proc/self/exe", argv);
}

// Every outcome is stored at once, so an interrupt loses at most the trial that runs.
void say_what_is_kept(int signal) {
  constexpr std::string_view kText =
      "\ninterrupted: the measurements so far are kept; the same command continues from them\n";
  if (write(STDERR_FILENO, kText.data(), kText.size()) < 0) _exit(128 + signal);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Interrupts that the caller ignores stay ignored: a script that starts the command with & wants it to go on.
void tell_of_interrupts() {
  if (std::signal(SIGINT, say_what_is_kept) == SIG_IGN) std::signal(SIGINT, SIG_IGN);
}

// Prints each phase once, as it begins.
class Phases {
 public:
  explicit Phases(StatusLine& status) : status_(status) {}

  void tell(const std::string& doing) {
    if (doing == told_ || doing.empty()) return;
    told_ = doing;
    status_.print(doing);
  }

 private:
  StatusLine& status_;
  std::string told_;
};

int act_quietly(CommandLine& line, Errors form) {
  line.notice = [](const std::string&) {};
  return finish(line.action(), form);
}

// Runs the chosen action. An error as JSON is the only text on standard error, so that a program can read it.
int act(CommandLine& line, Errors form) {
  if (line.quiet || (form == Errors::json && isatty(STDERR_FILENO) == 0)) return act_quietly(line, form);
  StatusLine status(line.doing);
  Phases phases(status);
  line.notice = [&](const std::string& text) { status.print(text); };
  line.progress = [&](const millrace::Progress& progress) {
    if (line.verbose) phases.tell(progress.doing);
    status.show(progress);
  };
  if (line.verbose) phases.tell(line.doing);
  const Result<std::string> result = line.action();
  status.finish();
  return finish(result, form);
}

int run(int argc, char** argv) {
  const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
  const Errors form = json ? Errors::json : Errors::text;
  CommandLine line;
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::CallForVersion&) {
    return finish(millrace::version() + "\n", form);
  } catch (const CLI::Success&) {
    return finish(line.app.help(), form);
  } catch (const CLI::ParseError& error) {
    return fail(usage_error(line.app, error), form);
  }
  if (!line.action) return finish(line.app.help(), form);
  if (line.interruptible) tell_of_interrupts();
  const int code = act(line, form);
  for (const millrace::StageTime& stage : line.times) std::cerr << stage.name << ": " << stage.seconds * 1e3 << " ms\n";
  return code;
}

// If one is closed, the next file that is opened takes its number, and messages would be written into that file.
// Writing to the standard output still fails.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0) static_cast<void>(open("/dev/null", O_RDONLY));
}

int run_safely(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return kFailed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  // A write beyond `ulimit -f` fails with an error, which says so, instead of a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  spin_briefly(argv);
  return millrace::on_large_stack([&] { return run_safely(argc, argv); });
}
