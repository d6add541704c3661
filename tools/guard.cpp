// The program `millrace-guard PROGRAM ARGUMENT...`: runs a compiler, and kills it with everything that it started when
// Millrace ends, however it ends. Without it, the programs that a compiler starts would go on. Test:
// tests/python/optimize_test.py
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

namespace {

constexpr int kWrongUsage = 2;
constexpr int kCannotStart = 127;

extern "C" void end_all(int) { kill(0, SIGKILL); }

// A group of its own, so that the signal ends nothing else. Millrace has made one already.
bool leads_group() { return getpgrp() == getpid() || setpgid(0, 0) == 0; }

[[noreturn]] void start(char** arguments) {
  std::signal(SIGTERM, SIG_DFL);
  execv(arguments[0], arguments);
  std::perror(arguments[0]);
  _exit(kCannotStart);
}

// Ends as the program ended.
int end_as(int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
  return kCannotStart;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: millrace-guard PROGRAM ARGUMENT...\n", stderr);
    return kWrongUsage;
  }
  // Until here, the end of our parent kills us, and there is nothing else to end.
  if (!leads_group() || std::signal(SIGTERM, end_all) == SIG_ERR || prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) {
    std::perror("millrace-guard");
    return kCannotStart;
  }
  const pid_t child = fork();
  if (child == 0) start(argv + 1);
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return kCannotStart;
  }
  return child > 0 ? end_as(status) : kCannotStart;
}
