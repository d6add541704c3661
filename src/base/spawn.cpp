#include "base/spawn.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/text.h"

namespace millrace {
namespace {

struct Pipe {
  Descriptor read;
  Descriptor write;
};

Error start_error(const std::string& program, int number) {
  return Error::make(ErrorKind::failed, concat("cannot start '", program, "': ", std::strerror(number)));
}

// Neither end may be 0, 1 or 2, which the child replaces.
bool make_pipe(Pipe& pipe) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return false;
  Pipe low;
  low.read = Descriptor(ends[0]);
  low.write = Descriptor(ends[1]);
  pipe.read = Descriptor(fcntl(ends[0], F_DUPFD_CLOEXEC, 3));
  pipe.write = Descriptor(fcntl(ends[1], F_DUPFD_CLOEXEC, 3));
  return pipe.read.is_open() && pipe.write.is_open();
}

bool never_blocks(const Descriptor& descriptor) {
  const int flags = fcntl(descriptor.number(), F_GETFL);
  return flags >= 0 && fcntl(descriptor.number(), F_SETFL, flags | O_NONBLOCK) == 0;
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& extra) {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!extra.contains(std::string(text.substr(0, text.find('='))))) variables.emplace_back(text);
  }
  for (const auto& [name, value] : extra) variables.push_back(concat(name, "=", value));
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// Everything that the child needs, prepared before the fork: between fork and exec nothing may be allocated.
struct Launch {
  std::string program;
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  std::vector<char*> argument_pointers;
  std::vector<char*> environment_pointers;
  std::string working_directory;
  uint64_t memory_limit = 0;
  pid_t parent = 0;
  Pipe input;
  Pipe output;
  Pipe error;
  Pipe failure;  // carries errno when the program could not be started
};

void default_signals() {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(number, &action, nullptr);  // fails for signals that cannot be changed or that the C library uses
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

bool limit(decltype(RLIMIT_DATA) resource, uint64_t most) {
  rlimit bounds{};
  if (getrlimit(resource, &bounds) != 0) return false;
  bounds.rlim_cur = bounds.rlim_max == RLIM_INFINITY || most < bounds.rlim_max ? most : bounds.rlim_max;
  bounds.rlim_max = bounds.rlim_cur;
  return setrlimit(resource, &bounds) == 0;
}

bool prepare_child(const Launch& launch) {
  default_signals();
  if (setpgid(0, 0) != 0) return false;
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  if (getppid() != launch.parent) _exit(127);  // our parent ended before PR_SET_PDEATHSIG took effect
  if (dup2(launch.input.read.number(), 0) < 0 || dup2(launch.output.write.number(), 1) < 0 ||
      dup2(launch.error.write.number(), 2) < 0)
    return false;
#ifdef SYS_close_range
  constexpr unsigned kCloseOnExec =
      4;  // CLOSE_RANGE_CLOEXEC; old kernels lack it, but our descriptors are marked already
  syscall(SYS_close_range, 3U, ~0U, kCloseOnExec);
#endif
  if (!launch.working_directory.empty() && chdir(launch.working_directory.c_str()) != 0) return false;
  return limit(RLIMIT_CORE, 0) && (launch.memory_limit == 0 || limit(RLIMIT_DATA, launch.memory_limit));
}

[[noreturn]] void run_child(const Launch& launch) {
  if (prepare_child(launch))
    execve(launch.program.c_str(), launch.argument_pointers.data(), launch.environment_pointers.data());
  const int number = errno;
  while (write(launch.failure.write.number(), &number, sizeof number) < 0 && errno == EINTR) {
  }
  _exit(127);
}

// Uses vfork: copying the page tables of gigabytes for each of thousands of compilers would take longer than starting
// them. The child shares our memory until exec, so all signals are blocked: none of our handlers may run in it.
pid_t fork_child(const Launch& launch) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork): nothing is written in the child
  if (child == 0) run_child(launch);
  const int number = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = number;
  return child;
}

// The errno of a child that could not start the program; 0 if it started.
int start_failure(const Descriptor& failure) {
  int number = 0;
  ssize_t count = 0;
  do {
    count = read(failure.number(), &number, sizeof number);
  } while (count < 0 && errno == EINTR);
  return count == sizeof number ? number : 0;
}

Result<Launch> prepare_launch(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  if (arguments.empty() || arguments.front().empty())
    return Error::make(ErrorKind::bad_input, "the argument list to start a process is empty");
  const std::optional<std::string> program = find_program(arguments.front());
  if (!program)
    return Error::make(ErrorKind::unavailable, concat("the program '", arguments.front(), "' was not found"),
                       "install it, or add its folder to PATH");
  Launch launch;
  launch.program = *program;
  launch.arguments = arguments;
  launch.environment = environment_with(options.environment);
  launch.argument_pointers = pointers(launch.arguments);
  launch.environment_pointers = pointers(launch.environment);
  launch.working_directory = options.working_directory;
  launch.memory_limit = options.memory_limit;
  launch.parent = getpid();
  if (!make_pipe(launch.input) || !make_pipe(launch.output) || !make_pipe(launch.error) || !make_pipe(launch.failure))
    return start_error(*program, errno);
  if (!never_blocks(launch.input.write) || !never_blocks(launch.output.read) || !never_blocks(launch.error.read))
    return start_error(*program, errno);
  return launch;
}

}  // namespace

std::optional<std::string> find_program(const std::string& name) {
  const auto runs = [](const std::string& path) {
    std::error_code failed;
    return std::filesystem::is_regular_file(path, failed) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) {
    std::error_code failed;
    const std::string path = std::filesystem::absolute(name, failed).string();
    return !failed && runs(path) ? std::optional(path) : std::nullopt;
  }
  const char* folders = std::getenv("PATH");
  if (name.empty() || folders == nullptr) return std::nullopt;
  for (const std::string& folder : split(folders, ':')) {
    const std::string path = concat(folder, "/", name);
    if (folder.starts_with('/') && runs(path)) return path;
  }
  return std::nullopt;
}

Result<Spawned> spawn(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  Result<Launch> launch = prepare_launch(arguments, options);
  if (!launch) return launch.error();
  const pid_t child = fork_child(*launch);
  if (child < 0) return start_error(launch->program, errno);
  Spawned spawned;
  spawned.process = OwnedProcess(child);
  launch->failure.write.reset();
  if (const int number = start_failure(launch->failure.read); number != 0) return start_error(launch->program, number);
  spawned.input = std::move(launch->input.write);
  spawned.output = std::move(launch->output.read);
  spawned.error = std::move(launch->error.read);
  return spawned;
}

bool write_some(int descriptor, std::string_view& bytes) {
  sigset_t broken_pipe;
  sigset_t before;
  sigset_t pending;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, &before);
  const ssize_t count = write(descriptor, bytes.data(), bytes.size());
  const int number = errno;
  if (count < 0 && number == EPIPE && sigismember(&pending, SIGPIPE) == 0) {
    const timespec now{};
    while (sigtimedwait(&broken_pipe, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (count < 0) return number == EAGAIN || number == EINTR;
  bytes.remove_prefix(static_cast<size_t>(count));
  return true;
}

bool read_some(int descriptor, std::string& bytes) {
  std::array<char, 65536> block{};
  const ssize_t count = read(descriptor, block.data(), block.size());
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  bytes.append(block.data(), static_cast<size_t>(count));
  return count > 0;
}

OwnedProcess::OwnedProcess(OwnedProcess&& other) noexcept : id_(std::exchange(other.id_, -1)) {}

OwnedProcess& OwnedProcess::operator=(OwnedProcess&& other) noexcept {
  if (this != &other) {
    if (!is_reaped()) kill_and_reap();
    id_ = std::exchange(other.id_, -1);
  }
  return *this;
}

OwnedProcess::~OwnedProcess() {
  if (!is_reaped()) kill_and_reap();
}

bool OwnedProcess::has_ended() const {
  if (id_ < 0) return true;
  siginfo_t information{};
  const int failed = waitid(P_PID, static_cast<id_t>(id_), &information, WEXITED | WNOHANG | WNOWAIT);
  return failed != 0 ? errno != EINTR : information.si_pid == id_;
}

Ending OwnedProcess::kill_and_reap() {
  // If starting failed, the group may not exist yet, but the process does.
  ::kill(-id_, SIGKILL);
  ::kill(id_, SIGKILL);
  int status = 0;
  pid_t reaped = 0;
  do {
    reaped = waitpid(id_, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  id_ = -1;
  Ending ending;
  if (reaped > 0 && WIFEXITED(status)) ending.exit_code = WEXITSTATUS(status);
  if (reaped < 0 || WIFSIGNALED(status)) ending.exit_code = -1;
  if (reaped > 0 && WIFSIGNALED(status)) ending.signal = WTERMSIG(status);
  return ending;
}

}  // namespace millrace
