#include "base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/scratch.h"

namespace millrace {
namespace {

std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

Finished run(const std::vector<std::string>& arguments, const ProcessOptions& options = {}) {
  Result<Finished> finished = run_process(arguments, options);
  EXPECT_TRUE(finished) << to_string(finished.error());
  return finished ? *finished : Finished{};
}

Child start(const std::string& script, const ProcessOptions& options = {}) {
  Result<Child> child = Child::start(shell(script), options);
  EXPECT_TRUE(child) << to_string(child.error());
  return std::move(*child);
}

std::string line_of(Child& child, double seconds = 20) {
  const Result<std::optional<std::string>> line = child.receive(seconds);
  if (!line) return to_string(line.error());
  return *line ? **line : "(timeout)";
}

// Whether the process ends within a few seconds; a zombie counts as ended.
bool goes_away(pid_t id) {
  for (int k = 0; k < 500; ++k) {
    if (kill(id, 0) != 0) return true;
    const Result<std::string> status = read_file(concat("/proc/", id, "/stat"), 4096);
    if (status && status->find(") Z ") != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

class ProcessTest : public ScratchTest {};

TEST_F(ProcessTest, OutputErrorAndExitCode) {
  const Finished finished = run(shell("echo out; echo err >&2; exit 7"));
  EXPECT_EQ(finished.exit_code, 7);
  EXPECT_EQ(finished.signal, 0);
  EXPECT_FALSE(finished.timed_out);
  EXPECT_EQ(finished.output, "out\n");
  EXPECT_EQ(finished.error, "err\n");
}

TEST_F(ProcessTest, ArgumentsArePassedAsTheyAre) {
  const std::vector<std::string> hostile = {"/bin/sh", "-c",      "printf '<%s>' \"$@\"", "sh", "$(id)", "; rm x", "",
                                            "a b",     "\"'\\\n*"};
  EXPECT_EQ(run(hostile).output, "<$(id)><; rm x><><a b><\"'\\\n*>");
}

TEST_F(ProcessTest, InputLargerThanAPipeComesBackWhole) {
  ProcessOptions options;
  for (int k = 0; k < 300'000; ++k) options.input += static_cast<char>('a' + k % 26);
  EXPECT_EQ(run({"cat"}, options).output, options.input);
}

TEST_F(ProcessTest, AProgramNeedNotReadItsInput) {
  ProcessOptions options;
  options.input = std::string(1'000'000, 'x');
  EXPECT_EQ(run(shell("exec <&-; echo ok"), options).output, "ok\n");
  EXPECT_EQ(run({"true"}, options).exit_code, 0);
}

TEST_F(ProcessTest, WithoutInputItReadsTheEndOfTheFile) { EXPECT_EQ(run({"cat"}).output, ""); }

TEST_F(ProcessTest, ASignalIsReported) {
  const Finished finished = run(shell("kill -SEGV $$"));
  EXPECT_EQ(finished.signal, SIGSEGV);
  EXPECT_EQ(finished.exit_code, -1);
  EXPECT_EQ(to_string(Ending{-1, SIGSEGV, ""}), "was killed by signal 11 (Segmentation fault)");
  EXPECT_EQ(to_string(Ending{3, 0, ""}), "exited with code 3");
}

TEST_F(ProcessTest, OutputBeyondTheLimitIsReadAndDropped) {
  ProcessOptions options;
  options.output_limit = 1000;
  const Finished finished = run(shell("head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; exit 3"), options);
  EXPECT_EQ(finished.output, std::string(1000, '\0'));
  EXPECT_EQ(finished.error.size(), 1000U);
  EXPECT_EQ(finished.exit_code, 3);
}

TEST_F(ProcessTest, ATimeoutKillsTheWholeGroup) {
  ProcessOptions options;
  options.timeout_seconds = 0.2;
  const Finished finished = run(shell("echo before; sleep 600 & echo $!; wait"), options);
  EXPECT_TRUE(finished.timed_out);
  EXPECT_EQ(finished.signal, SIGKILL);
  ASSERT_TRUE(finished.output.starts_with("before\n"));
  EXPECT_TRUE(goes_away(std::stoi(finished.output.substr(7))));
}

TEST_F(ProcessTest, ATimeoutHoldsWhenOutputIsClosed) {
  ProcessOptions options;
  options.timeout_seconds = 0.1;
  EXPECT_TRUE(run(shell("exec >&- 2>&- <&-; sleep 600"), options).timed_out);
}

TEST_F(ProcessTest, ProcessesThatItLeavesRunningAreKilled) {
  const Finished finished = run(shell("sleep 600 & echo $!"));
  EXPECT_FALSE(finished.timed_out);
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_TRUE(goes_away(std::stoi(finished.output)));
}

TEST_F(ProcessTest, TheEnvironmentIsOursAndMore) {
  set_variable("MILLRACE_TEST_OURS", "ours");
  set_variable("MILLRACE_TEST_BOTH", "ours");
  ProcessOptions options;
  options.environment = {{"MILLRACE_TEST_BOTH", "theirs"}, {"MILLRACE_TEST_NEW", "a=b c"}};
  EXPECT_EQ(
      run(shell("echo $MILLRACE_TEST_OURS $MILLRACE_TEST_BOTH $MILLRACE_TEST_NEW; env | grep -c TEST_BOTH"), options)
          .output,
      "ours theirs a=b c\n1\n");
}

TEST_F(ProcessTest, TheWorkingDirectory) {
  ProcessOptions options;
  options.working_directory = folder_.string();
  EXPECT_EQ(run({"pwd", "-P"}, options).output, std::filesystem::canonical(folder_).string() + "\n");
  options.working_directory = path("absent");
  const Result<Finished> finished = run_process({"pwd"}, options);
  ASSERT_FALSE(finished);
  EXPECT_NE(to_string(finished.error()).find("No such file"), std::string::npos);
}

TEST_F(ProcessTest, TheMemoryLimitHolds) {
  ProcessOptions options;
  options.memory_limit = uint64_t{256} << 20;
  EXPECT_EQ(run(shell("ulimit -d; ulimit -c"), options).output, "262144\n0\n");
}

TEST_F(ProcessTest, AMissingProgramIsNamed) {
  for (const std::string name : {"millrace-no-such-program", "/no/such/program", "./no-such"}) {
    const Result<Finished> finished = run_process({name}, {});
    ASSERT_FALSE(finished) << name;
    EXPECT_EQ(finished.error().kind, ErrorKind::unavailable);
    EXPECT_NE(to_string(finished.error()).find("'" + name + "'"), std::string::npos) << to_string(finished.error());
    EXPECT_FALSE(Child::start({name}, {}));
  }
  EXPECT_FALSE(run_process({}, {}));
  EXPECT_FALSE(run_process({""}, {}));
}

TEST_F(ProcessTest, AFileThatIsNotAProgramIsAnError) {
  ASSERT_TRUE(write_file(path("program"), "\x7F nothing that runs"));
  std::filesystem::permissions(path("program"), std::filesystem::perms::owner_all);
  const Result<Finished> finished = run_process({path("program")}, {});
  ASSERT_FALSE(finished);
  EXPECT_NE(to_string(finished.error()).find("Exec format error"), std::string::npos) << to_string(finished.error());
}

TEST_F(ProcessTest, ProgramsAreFoundInAbsoluteFoldersOfThePathOnly) {
  EXPECT_EQ(find_program("/bin/sh"), "/bin/sh");
  ASSERT_TRUE(write_file(path("tool"), "#!/bin/sh\n"));
  set_variable("PATH", folder_.string());
  EXPECT_EQ(find_program("tool"), std::nullopt) << "not executable";
  std::filesystem::permissions(path("tool"), std::filesystem::perms::owner_all);
  EXPECT_EQ(find_program("tool"), path("tool"));
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  for (const char* value : {"", ".", ":", "./"}) {
    set_variable("PATH", value);
    EXPECT_EQ(find_program("tool"), std::nullopt) << value;
  }
  EXPECT_EQ(find_program("./tool").has_value(), true);
  std::filesystem::current_path(before);
  set_variable("PATH", std::nullopt);
  EXPECT_EQ(find_program("tool"), std::nullopt);
}

TEST_F(ProcessTest, AChildGetsNoDescriptorsOfOurs) {
  const int open_everywhere = open("/dev/null", O_RDONLY);  // not close-on-exec, as a careless library would open it
  const std::string listed = run(shell("ls /proc/self/fd | tr '\\n' ' '")).output;
  close(open_everywhere);
  EXPECT_EQ(listed, "0 1 2 3 ") << "3 is ls's own";
}

TEST_F(ProcessTest, SignalsAreAsAFreshProgramExpects) {
  signal(SIGTERM, SIG_IGN);
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const Finished finished = run(shell("kill -TERM $$; echo survived"));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  signal(SIGTERM, SIG_DFL);
  EXPECT_EQ(finished.signal, SIGTERM);
}

TEST_F(ProcessTest, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<std::string> outputs(8);
  for (size_t k = 0; k < outputs.size(); ++k) {
    threads.emplace_back([&outputs, k] {
      for (int round = 0; round < 5; ++round) {
        ProcessOptions options;
        options.input = std::to_string(k);
        const Result<Finished> finished = run_process({"cat"}, options);
        if (finished) outputs[k] += finished->output;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t k = 0; k < outputs.size(); ++k) EXPECT_EQ(outputs[k], std::string(5, static_cast<char>('0' + k)));
}

TEST_F(ProcessTest, NoZombiesAreLeft) {
  run({"true"});
  { const Child dropped = start("sleep 600"); }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

class ChildTest : public ScratchTest {};

TEST_F(ChildTest, RequestsAndRepliesLineByLine) {
  Child child = start("while read -r line; do echo \"got $line\"; done; exit 4");
  EXPECT_TRUE(child.alive());
  for (const char* request : {"a", "", "two words"}) {
    ASSERT_TRUE(child.send(request));
    EXPECT_EQ(line_of(child), std::string("got ") + request);
  }
  EXPECT_FALSE(child.send("two\nlines"));
  const Ending ending = child.wait();
  EXPECT_EQ(ending.exit_code, 4);
  EXPECT_FALSE(child.alive());
  EXPECT_EQ(child.kill().exit_code, 4) << "how it ended stays";
}

TEST_F(ChildTest, NoReplyInTimeIsNotAnError) {
  Child child = start("read -r line; echo late; sleep 600");
  const Result<std::optional<std::string>> nothing = child.receive(0.01);
  ASSERT_TRUE(nothing) << to_string(nothing.error());
  EXPECT_FALSE(nothing->has_value());
  ASSERT_TRUE(child.send("x"));
  EXPECT_EQ(line_of(child), "late");
  EXPECT_EQ(child.kill().signal, SIGKILL);
}

TEST_F(ChildTest, ACrashIsReportedWithItsLastOutput) {
  Child child = start("echo reply; printf half; echo 'last words' >&2; kill -SEGV $$");
  EXPECT_EQ(line_of(child), "reply");
  const Result<std::optional<std::string>> line = child.receive(20);
  ASSERT_FALSE(line);
  const std::string said = to_string(line.error());
  EXPECT_NE(said.find("signal 11"), std::string::npos) << said;
  EXPECT_NE(said.find("last words"), std::string::npos) << said;
  EXPECT_EQ(said.find("half"), std::string::npos) << "half a reply is none";
  EXPECT_EQ(child.wait().signal, SIGSEGV);
  EXPECT_EQ(child.wait().error, "last words\n");
}

TEST_F(ChildTest, SendingToAnEndedChildIsAnErrorAndRaisesNoSignal) {
  Child child = start("exit 5");
  EXPECT_FALSE(child.receive(20));
  const Result<Done> sent = child.send("x");
  ASSERT_FALSE(sent);
  EXPECT_NE(to_string(sent.error()).find("exited with code 5"), std::string::npos) << to_string(sent.error());
  Child second = start("exit 6");
  while (second.alive()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(second.send("x"));
}

TEST_F(ChildTest, RepliesGivenBeforeItsEndAreNotLost) {
  Child child = start("echo one; echo two");
  while (child.alive()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(line_of(child), "one");
  EXPECT_EQ(child.wait().exit_code, 0);
  EXPECT_EQ(line_of(child), "two");
  EXPECT_FALSE(child.receive(1));
}

TEST_F(ChildTest, LongErrorOutputDoesNotBlock) {
  Child child = start("head -c 300000 /dev/zero | tr '\\0' x >&2; read -r line; echo ${#line}; echo end >&2");
  ASSERT_TRUE(child.send(std::string(200'000, 'y')));
  EXPECT_EQ(line_of(child), "200000");
  const std::string tail = child.wait().error;
  EXPECT_LE(tail.size(), 4096U);
  EXPECT_TRUE(tail.ends_with("xend\n"));
}

TEST_F(ChildTest, AChildThatDoesNotReadIsKilledAfterTheTimeout) {
  Child child = start("sleep 600");
  const Result<Done> sent = child.send(std::string(1'000'000, 'y'), 0.1);
  ASSERT_FALSE(sent);
  EXPECT_NE(to_string(sent.error()).find("did not read its request"), std::string::npos) << to_string(sent.error());
  EXPECT_FALSE(child.alive());
}

TEST_F(ChildTest, AnEndlessReplyIsAnError) {
  ProcessOptions options;
  options.output_limit = 100'000;
  Child child = start("head -c 10000000 /dev/zero", options);
  EXPECT_NE(line_of(child).find("a line of more than 100000 bytes"), std::string::npos);
}

TEST_F(ChildTest, AChildThatDoesNotEndIsKilled) {
  Child child = start("trap '' TERM; echo ready; sleep 600");
  EXPECT_EQ(line_of(child), "ready");
  EXPECT_EQ(child.wait(0.05).signal, SIGKILL);
}

TEST_F(ChildTest, MovingKeepsTheChildAndAssigningEndsTheOldOne) {
  Child first = start("echo $$; read -r line; echo $line");
  const pid_t first_id = std::stoi(line_of(first));
  Child second = start("read -r line; echo $line");
  first = std::move(second);
  EXPECT_TRUE(goes_away(first_id));
  ASSERT_TRUE(first.send("moved"));
  EXPECT_EQ(line_of(first), "moved");
}

TEST_F(ChildTest, DiesWithItsParent) {
  // An intermediate process starts the child, prints its id and is killed without a chance to clean up.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    Child child = start("echo $$; sleep 600");
    const std::string id = line_of(child) + "\n";
    if (write(ends[1], id.data(), id.size()) > 0) kill(getpid(), SIGKILL);
    _exit(1);
  }
  close(ends[1]);
  char text[32] = {};
  ASSERT_GT(read(ends[0], text, sizeof text - 1), 0);
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(goes_away(std::stoi(text)));
}

}  // namespace
}  // namespace millrace
