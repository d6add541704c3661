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

}  // namespace

Result<Done> Worker::start() {
  ProcessOptions options;
  options.memory_limit = command_.memory_limit;
  options.environment = command_.environment;
  Result<Child> child = Child::start(command_.arguments, options);
  if (!child) return child.error();
  if (Result<Done> sent = child->send(command_.greeting); !sent) return sent.error();
  const Result<std::optional<std::string>> answer = child->receive(kStartSeconds);
  if (!answer) return answer.error();
  if (!*answer || **answer != kReady) {
    return Error::make(ErrorKind::failed,
                       concat("the worker did not start: ", *answer ? **answer : std::string("no answer")),
                       concat("run ", command_.arguments.front(), " yourself to see why"));
  }
  child_ = std::move(*child);
  return Done{};
}

Result<MeasurementRow> Worker::run(const TrialRequest& request, double timeout_seconds) {
  if (!child_) {
    if (Result<Done> started = start(); !started) return started.error();
  }
  const Result<Done> sent = child_->send(to_line(request));
  const Result<std::optional<std::string>> answer =
      sent ? child_->receive(timeout_seconds) : Result<std::optional<std::string>>(sent.error());
  if (answer && *answer) {
    if (std::optional<MeasurementRow> row = parse_reply(**answer)) return *row;
    child_->kill();
    child_.reset();
    return failed_row(Outcome::crashed, "the worker sent an invalid answer: the candidate overwrote its memory");
  }
  const bool hung = answer.operator bool();
  const Ending ending = child_->kill();
  child_.reset();
  if (hung) return failed_row(Outcome::hung, concat("not finished after ", fixed(timeout_seconds, 0), " s"));
  const bool killed = ending.signal == SIGKILL;
  return failed_row(killed ? Outcome::out_of_memory : Outcome::crashed,
                    concat("the worker ", to_string(ending), last_words(ending)));
}

}  // namespace millrace
