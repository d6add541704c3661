#include "base/process.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/spawn.h"
#include "base/text.h"

namespace millrace {
namespace {

constexpr size_t kErrorTail = 4096;  // bytes
constexpr int kTick = 50;            // milliseconds between checks whether a process has ended

using Clock = std::chrono::steady_clock;

class Deadline {
 public:
  explicit Deadline(double seconds) : seconds_(seconds), start_(Clock::now()) {}

  bool passed() const { return left() <= 0; }
  // Milliseconds for poll, rounded up, at most `most`.
  int left_or(int most) const {
    const double milliseconds = std::ceil(std::max(left(), 0.0) * 1000);
    return milliseconds < most ? static_cast<int>(milliseconds) : most;
  }

 private:
  double left() const { return seconds_ - std::chrono::duration<double>(Clock::now() - start_).count(); }

  double seconds_;
  Clock::time_point start_;
};

// Waits until one of the pipes is ready, at most `milliseconds`; then writes and reads without blocking.
void use_pipes(Descriptor& input, std::string_view& written, Descriptor& output, std::string& read_output,
               Descriptor& error, std::string& read_error, int milliseconds) {
  // poll ignores negative descriptors.
  std::array<pollfd, 3> polled = {pollfd{written.empty() ? -1 : input.number(), POLLOUT, 0},
                                  pollfd{output.number(), POLLIN, 0}, pollfd{error.number(), POLLIN, 0}};
  if (poll(polled.data(), polled.size(), milliseconds) <= 0) return;
  if (polled[0].revents != 0 && !write_some(input.number(), written)) input.reset();
  if (polled[1].revents != 0 && !read_some(output.number(), read_output)) output.reset();
  if (polled[2].revents != 0 && !read_some(error.number(), read_error)) error.reset();
}

void keep_front(std::string& text, size_t limit) {
  if (text.size() > limit) text.resize(limit);
}

void keep_tail(std::string& text) {
  if (text.size() > kErrorTail) text.erase(0, text.size() - kErrorTail);
}

}  // namespace

Result<Finished> run_process(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  Result<Spawned> started = spawn(arguments, options);
  if (!started) return started.error();
  Spawned& child = *started;
  const Deadline deadline(options.timeout_seconds > 0 ? options.timeout_seconds
                                                      : std::numeric_limits<double>::infinity());
  Finished finished;
  std::string_view input = options.input;
  const auto use = [&](int milliseconds) {
    if (input.empty()) child.input.reset();
    use_pipes(child.input, input, child.output, finished.output, child.error, finished.error, milliseconds);
    keep_front(finished.output, options.output_limit);
    keep_front(finished.error, options.output_limit);
  };
  while (!child.process.has_ended() && !finished.timed_out) {
    const bool silent = !child.output.is_open() && !child.error.is_open();
    use(deadline.left_or(silent ? 1 : kTick));
    finished.timed_out = deadline.passed() && !child.process.has_ended();
  }
  const Ending ending = child.process.kill_and_reap();
  finished.exit_code = ending.exit_code;
  finished.signal = ending.signal;
  // Read what is still in the pipes. A process that left the group may keep writing to them: do not wait for it.
  const Deadline drained(1);
  size_t before = 0;
  do {
    before = finished.output.size() + finished.error.size();
    use(0);
  } while (finished.output.size() + finished.error.size() > before && !drained.passed());
  return finished;
}

std::string to_string(const Ending& ending) {
  if (ending.signal != 0) return concat("was killed by signal ", ending.signal, " (", strsignal(ending.signal), ")");
  return concat("exited with code ", ending.exit_code);
}

Result<Child> Child::start(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  Result<Spawned> spawned = spawn(arguments, options);
  if (!spawned) return spawned.error();
  Child child;
  child.name_ = arguments.front();
  child.process_ = std::move(spawned->process);
  child.input_ = std::move(spawned->input);
  child.output_ = std::move(spawned->output);
  child.error_ = std::move(spawned->error);
  child.reply_limit_ = options.output_limit;
  return child;
}

// Sends requests and receives replies and errors at the same time, so that the two sides cannot deadlock.
void Child::exchange(double timeout_seconds) {
  const int milliseconds = Deadline(timeout_seconds).left_or(kTick);
  std::string_view unsent = requests_;
  use_pipes(input_, unsent, output_, replies_, error_, error_tail_, milliseconds);
  requests_.erase(0, input_.is_open() ? requests_.size() - unsent.size() : requests_.size());
  keep_tail(error_tail_);
}

Result<Done> Child::send(const std::string& line, double timeout_seconds) {
  if (line.find('\n') != std::string::npos)
    return Error::make(ErrorKind::bad_input, concat("a request to '", name_, "' has more than one line"));
  if (!input_.is_open()) return gone_error("take a request");
  requests_ += line + "\n";
  const Deadline deadline(timeout_seconds);
  while (!requests_.empty()) {
    exchange(deadline.left_or(kTick) / 1000.0);
    if (!input_.is_open()) return gone_error("take a request");
    if (replies_.size() > reply_limit_ || (deadline.passed() && !requests_.empty())) {
      const std::string why = replies_.size() > reply_limit_
                                  ? concat("wrote more than ", reply_limit_, " bytes without a request")
                                  : concat("did not read its request within ", timeout_seconds, " s");
      kill();  // half of a request was sent: later ones would be misread
      return Error::make(ErrorKind::failed, concat("'", name_, "' ", why, " and was killed"));
    }
  }
  return Done{};
}

std::optional<std::string> Child::take_line() {
  const size_t end = replies_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = replies_.substr(0, end);
  replies_.erase(0, end + 1);
  return line;
}

Result<std::optional<std::string>> Child::receive(double timeout_seconds) {
  const Deadline deadline(timeout_seconds);
  while (true) {
    if (std::optional<std::string> line = take_line()) return line;
    if (replies_.size() > reply_limit_) {
      kill();
      return Error::make(ErrorKind::failed,
                         concat("'", name_, "' wrote a line of more than ", reply_limit_, " bytes and was killed"));
    }
    if (!output_.is_open()) return gone_error("reply");
    // A process that it started may keep its output open.
    const bool ended = process_.has_ended();
    const size_t before = replies_.size();
    exchange(ended ? 0 : deadline.left_or(kTick) / 1000.0);
    if (replies_.size() != before) continue;
    if (ended) return gone_error("reply");
    if (deadline.passed()) return std::optional<std::string>();
  }
}

bool Child::alive() { return !process_.has_ended(); }

Error Child::gone_error(const std::string& verb) {
  // It ends shortly after it closes its pipes; without them it is of no use, so it is killed after a second.
  const Ending ending = wait(1);
  const std::string tail = ending.error.empty() ? "" : concat("; its last output: ", ending.error);
  return Error::make(ErrorKind::failed, concat("'", name_, "' can no longer ", verb, ": it ", to_string(ending), tail));
}

Ending Child::wait(double timeout_seconds) {
  if (ending_) return *ending_;
  input_.reset();
  requests_.clear();
  const Deadline deadline(timeout_seconds);
  while (!process_.has_ended() && !deadline.passed()) {
    const bool silent = !output_.is_open() && !error_.is_open();
    exchange(deadline.left_or(silent ? 1 : kTick) / 1000.0);
    if (replies_.size() > reply_limit_) output_.reset();  // more than any reply may have
  }
  return end();
}

Ending Child::kill() { return ending_ ? *ending_ : end(); }

Ending Child::end() {
  ending_ = process_.kill_and_reap();
  input_.reset();
  requests_.clear();
  // Read what it wrote before it ended, but at most 16 blocks: another process may keep writing to the pipes.
  for (int blocks = 0; blocks < 16 && (output_.is_open() || error_.is_open()); ++blocks) {
    const size_t before = replies_.size() + error_tail_.size();
    exchange(0);
    if (replies_.size() + error_tail_.size() == before) break;
  }
  output_.reset();
  error_.reset();
  ending_->error = error_tail_;
  return *ending_;
}

}  // namespace millrace
