// Starts other programs by an argument list, never through a shell. Tests: tests/base/process_test.cpp.
//
// A child gets none of our descriptors, default signal handling, no core file and its own process group. It is killed
// when the thread that started it ends (Linux ties this to the thread, not to the process): start a long-lived child
// from a thread that outlives it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "millrace/result.h"

namespace millrace {

struct ProcessOptions {
  std::string input;                               // its standard input; a Child reads what is sent instead
  double timeout_seconds = 0;                      // then its process group is killed; 0: no limit
  size_t output_limit = size_t{16} << 20;          // bytes kept of standard output and of standard error
  std::map<std::string, std::string> environment;  // added to ours; overrides ours
  uint64_t memory_limit = 0;                       // bytes that it may allocate; 0: no limit
  std::string working_directory;                   // empty: ours
};

struct Finished {
  int exit_code = 0;       // -1 when a signal ended it
  int signal = 0;          // 0 when it exited by itself
  bool timed_out = false;  // we killed it
  std::string output;
  std::string error;
};

// The path of a program: `name` itself if it contains a slash, else the first executable file of that name in the
// absolute folders of $PATH.
std::optional<std::string> find_program(const std::string& name);

// Runs `arguments` (the program first) to its end, then kills processes that it started and left running.
Result<Finished> run_process(const std::vector<std::string>& arguments, const ProcessOptions& options);

// How a child ended.
struct Ending {
  int exit_code = 0;  // -1 when a signal ended it
  int signal = 0;     // 0 when it exited by itself
  std::string error;  // the end of its standard error
};

// "exited with code 3", "was killed by signal 11 (Segmentation fault)"
std::string to_string(const Ending& ending);

// A process and its group; the destructor kills and reaps it.
class OwnedProcess {
 public:
  OwnedProcess() = default;
  explicit OwnedProcess(pid_t id) : id_(id) {}
  OwnedProcess(OwnedProcess&& other) noexcept;
  OwnedProcess& operator=(OwnedProcess&& other) noexcept;
  OwnedProcess(const OwnedProcess&) = delete;
  OwnedProcess& operator=(const OwnedProcess&) = delete;
  ~OwnedProcess();

  // Whether it has ended. Until it is reaped, it stays a zombie, so that its group's id is not reused.
  bool has_ended() const;
  // Kills the whole group, waits for the process and returns how it ended.
  Ending kill_and_reap();
  bool is_reaped() const { return id_ < 0; }

 private:
  pid_t id_ = -1;
};

// A long-lived child that answers requests of one line each.
class Child {
 public:
  // Ignores the options input and timeout_seconds; output_limit applies to each reply.
  static Result<Child> start(const std::vector<std::string>& arguments, const ProcessOptions& options);

  // Sends `line` and a newline. An error if the child has ended, or has not read it after `timeout_seconds`.
  Result<Done> send(const std::string& line, double timeout_seconds = 60);

  // The next line, without its newline; nullopt if none came in time, an error if the child has ended.
  Result<std::optional<std::string>> receive(double timeout_seconds);

  bool alive();

  // Closes its input, which tells it to end, and waits; kills it if it has not ended after `timeout_seconds`.
  Ending wait(double timeout_seconds = 10);
  Ending kill();

 private:
  Child() = default;

  void exchange(double timeout_seconds);
  std::optional<std::string> take_line();
  Error gone_error(const std::string& verb);
  Ending end();

  std::string name_;
  OwnedProcess process_;
  Descriptor input_;   // our end of its standard input
  Descriptor output_;  // our end of its standard output
  Descriptor error_;
  std::string requests_;  // not yet written
  std::string replies_;   // not yet taken
  std::string error_tail_;
  size_t reply_limit_ = 0;
  std::optional<Ending> ending_;
};

}  // namespace millrace
