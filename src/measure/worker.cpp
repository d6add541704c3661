#include "measure/worker.h"

#include <csignal>

#include "base/text.h"

namespace millrace {
namespace {

constexpr double kStartSeconds = 60;
constexpr const char* kReady = "ready";

// The last line of its standard error, which says why it ended.
std::string last_words(const Ending& ending) {
  std::string last;
  for (const std::string& line : split(ending.error, '\n')) {
    if (!line.empty()) last = line;
  }
  return last.empty() ? "" : concat(": ", last);
}

// Whether it was killed: by the kernel when memory ran out, or by a person or program.
bool is_from_outside(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

}  // namespace

Result<Done> Worker::start() {
  if (child_) return Done{};
  ProcessOptions options;
  options.memory_limit = command_.memory_limit;
  options.environment = command_.environment;
  Result<Child> child = Child::start(command_.arguments, options);
  if (!child) return child.error();
  if (Result<Done> sent = child->send(command_.greeting); !sent) return sent.error();
  child_ = std::move(*child);
  return Done{};
}

void Worker::end() {
  child_.reset();
  ready_ = false;
}

Result<bool> Worker::is_ready(double timeout_seconds) {
  if (ready_) return true;
  if (Result<Done> started = start(); !started) return started.error();
  const Result<std::optional<std::string>> answer = child_->receive(timeout_seconds);
  if (answer && !*answer) return false;
  if (answer && **answer == kReady) return ready_ = true;
  end();
  if (!answer) return answer.error();
  return Error::make(ErrorKind::failed, concat("the worker did not start: ", **answer),
                     concat("run ", command_.arguments.front(), " yourself to see why"));
}

Result<MeasurementRow> Worker::run(const TrialRequest& request, double timeout_seconds) {
  Result<MeasurementRow> row = run_once(request, timeout_seconds);
  return row && in_doubt_ ? run_once(request, timeout_seconds) : row;
}

Result<MeasurementRow> Worker::run_once(const TrialRequest& request, double timeout_seconds) {
  in_doubt_ = false;
  const Result<bool> ready = is_ready(kStartSeconds);
  if (!ready) return ready.error();
  if (!*ready) {
    return Error::make(ErrorKind::failed,
                       concat("the worker did not start within ", fixed(kStartSeconds, 0), " s: no answer"),
                       concat("run ", command_.arguments.front(), " yourself to see why"));
  }
  const Result<Done> sent = child_->send(to_line(request));
  const Result<std::optional<std::string>> answer =
      sent ? child_->receive(timeout_seconds) : Result<std::optional<std::string>>(sent.error());
  if (answer && *answer) {
    if (std::optional<MeasurementRow> row = parse_reply(**answer)) return *row;
    child_->kill();
    end();
    in_doubt_ = true;
    return failed_row(Outcome::crashed, "two workers sent invalid answers: the candidate overwrites their memory");
  }
  const bool hung = answer.operator bool();
  const Ending ending = child_->kill();
  end();
  if (hung) return failed_row(Outcome::hung, concat("not finished after ", fixed(timeout_seconds, 1), " s"));
  in_doubt_ = is_from_outside(ending.signal);
  const std::string last = last_words(ending);
  const bool no_memory = in_doubt_ || last.find("bad_alloc") != std::string::npos;
  return failed_row(no_memory ? Outcome::out_of_memory : Outcome::crashed,
                    concat("the worker ", to_string(ending), last));
}

}  // namespace millrace
