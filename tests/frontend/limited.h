// Runs something in a child process and measures it, so that a crash, a hang or too much memory fails only one test.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitized.h"

namespace millrace {

// Limits for hostile text. An answer takes about a second on a slow core; the limit is several times that, because it
// must catch only work that grows faster than the text, and tests share their core with others. A sanitizer makes
// everything slower and needs extra memory.
inline constexpr double kSecondsAllowed = kSanitized ? 40 : 5;
inline constexpr long kMegabytesAllowed = 256;

struct LimitedOutcome {
  bool exited = false;  // by itself: neither crashed nor killed
  int code = 0;         // its exit code, or the signal that killed it
  double seconds = 0;   // processor time, which does not depend on other processes
  long megabytes = 0;   // peak memory, minus this process's memory, with which it began
  std::string text;     // its output
};

// Resident memory of a process in megabytes.
inline long resident(const std::string& process) {
  long pages = 0;
  if (std::FILE* const file = std::fopen(("/proc/" + process + "/statm").c_str(), "r")) {
    if (std::fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * (sysconf(_SC_PAGESIZE) / 1024) / 1024;
}

// Runs `work` in the child; it writes to the given descriptor. Beyond twice the limits, the child is killed.
inline LimitedOutcome run_limited(const std::function<int(int)>& work) {
  LimitedOutcome outcome;
  std::FILE* const output = std::tmpfile();
  if (output == nullptr) return outcome;
  const int descriptor = fileno(output);
  const long before = resident("self");
  const pid_t child = fork();
  if (child == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    _exit(work(descriptor));
  }
  int status = 0;
  rusage usage{};
  while (wait4(child, &status, WNOHANG, &usage) == 0) {
    clockid_t clock = 0;
    timespec used{};
    if (clock_getcpuclockid(child, &clock) == 0) clock_gettime(clock, &used);
    const bool too_large = resident(std::to_string(child)) - before > (kSanitized ? 8 : 2) * kMegabytesAllowed;
    if (too_large || static_cast<double>(used.tv_sec) >= 2 * kSecondsAllowed) kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  outcome.exited = WIFEXITED(status);
  outcome.code = outcome.exited ? WEXITSTATUS(status) : WTERMSIG(status);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  outcome.seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  outcome.megabytes = usage.ru_maxrss / 1024 - before;
  outcome.text.resize(1 << 16);
  const ssize_t length = pread(descriptor, outcome.text.data(), outcome.text.size(), 0);
  outcome.text.resize(length > 0 ? static_cast<size_t>(length) : 0);
  std::fclose(output);
  return outcome;
}

// Runs a program with its arguments; the outcome's text is its standard error.
inline LimitedOutcome run_limited(std::vector<std::string> command) {
  return run_limited([&](int descriptor) {
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
    dup2(descriptor, STDERR_FILENO);
    execv(words[0], words.data());
    return 127;
  });
}

}  // namespace millrace
