// A point in time by which work must be done. Test: tests/base/deadline_test.cpp
#pragma once

#include <algorithm>
#include <limits>

#include "base/clock.h"

namespace millrace {

class Deadline {
 public:
  static Deadline never() { return Deadline(std::numeric_limits<double>::infinity()); }
  static Deadline after(double seconds) { return Deadline(now() + seconds); }

  // A time on the clock of base/clock.h; infinite: never.
  double at() const { return at_; }
  bool is_never() const { return at_ == std::numeric_limits<double>::infinity(); }
  bool passed() const { return now() >= at_; }
  // Seconds left; 0 if it has passed, infinite if it never comes.
  double left() const { return std::max(0.0, at_ - now()); }

  // The deadline of a share of the time left.
  Deadline share(double of_rest) const {
    return is_never() ? *this : Deadline(std::min(at_, now() + of_rest * left()));
  }
  Deadline later_by(double seconds) const { return Deadline(at_ + seconds); }
  Deadline earlier_by(double seconds) const { return later_by(-seconds); }
  Deadline or_earlier(const Deadline& other) const { return Deadline(std::min(at_, other.at_)); }

 private:
  explicit Deadline(double at) : at_(at) {}

  double at_;
};

}  // namespace millrace
