// Collects complaints about one text, each with its place, so that one run reports several.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/result.h"

namespace millrace {

// A byte of the text.
struct SourceLocation {
  size_t offset = 0;
};

class Diagnostics {
 public:
  Diagnostics(std::string file, std::string_view text) : file_(std::move(file)), text_(text) {}

  // Takes no complaints: for looking ahead. Counts as full, so that nobody prepares a remedy for it.
  static Diagnostics deaf() {
    Diagnostics diagnostics("", "");
    diagnostics.deaf_ = true;
    return diagnostics;
  }

  void complain(SourceLocation location, std::string_view message, std::string_view remedy = {});
  // About an option, which has no place in the text.
  void complain(std::string_view message, std::string_view remedy);
  bool any() const { return !diagnostics_.empty(); }

  // More would bury the first, which is the one to mend.
  bool full() const { return deaf_ || diagnostics_.size() >= 20; }

  Error error() const { return {ErrorKind::bad_input, diagnostics_}; }

 private:
  std::string file_;
  std::string_view text_;
  std::vector<Diagnostic> diagnostics_;
  bool deaf_ = false;
};

}  // namespace millrace
