// What a command is doing, for the user's status line, and when it must end. Test: tests/python/terminal_test.py
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "measure/explore.h"
#include "millrace/millrace.h"

namespace millrace {

class Phases {
 public:
  // `show` may be null.
  Phases(std::function<void(const Progress&)> show, Deadline deadline) : show_(std::move(show)), deadline_(deadline) {}

  const Deadline& deadline() const { return deadline_; }

  // Counts and times of an exploration stay on the line in later phases.
  void begin(const std::string& doing) {
    last_.doing = doing;
    tell();
  }

  void explore(const ExploreProgress& so_far) {
    last_ = {so_far.done, so_far.total, so_far.bound, so_far.seconds, 0, so_far.doing};
    tell();
  }

 private:
  void tell() {
    last_.left = deadline_.is_never() ? 0 : deadline_.left();
    if (show_) show_(last_);
  }

  std::function<void(const Progress&)> show_;
  Deadline deadline_;
  Progress last_;
};

}  // namespace millrace
