// Collects the errors and warnings of one program text with their source locations, so that one run reports several.
// Tests: tests/error/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/result.h"

namespace millrace {

// Offset of a byte in the text.
struct SourceLocation {
  size_t offset = 0;
};

class Diagnostics {
 public:
  Diagnostics(std::string file, std::string_view text) : file_(std::move(file)), text_(text) {}

  // Ignores all errors: for looking ahead. Counts as full, so that callers skip the search for a remedy.
  static Diagnostics silent() {
    Diagnostics diagnostics("", "");
    diagnostics.silent_ = true;
    return diagnostics;
  }

  void report(SourceLocation location, std::string_view message, std::string_view remedy = {});
  // For an option, which has no location in the text.
  void report(std::string_view message, std::string_view remedy);
  // A warning for the author; the program is read nevertheless.
  void warn(SourceLocation location, std::string_view message, std::string_view remedy);
  const std::vector<Diagnostic>& warnings() const { return warnings_; }

  bool any() const { return !diagnostics_.empty(); }
  size_t count() const { return diagnostics_.size(); }

  // Later errors are dropped: they are often consequences of the first ones.
  bool full() const { return silent_ || diagnostics_.size() >= kMost; }

  Error error() const { return {ErrorKind::bad_input, diagnostics_}; }

 private:
  static constexpr size_t kMost = 20;  // errors, and warnings

  Diagnostic located(SourceLocation location, std::string_view message, std::string_view remedy) const;

  std::string file_;
  std::string_view text_;
  std::vector<Diagnostic> diagnostics_;
  std::vector<Diagnostic> warnings_;
  bool silent_ = false;
};

}  // namespace millrace
