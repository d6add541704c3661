// A value, or the errors that prevented it. Nothing in Millrace throws across this API. Test:
// tests/error/error_test.cpp
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace millrace {

// The cause; it determines the program's exit code.
enum class ErrorKind {
  bad_input,         // the user's text, file or option: exit code 2
  failed,            // the machine, such as a full disk: exit code 1
  unavailable,       // a missing device or feature: exit code 3
  no_configuration,  // nothing valid to choose from: exit code 4
};

// One message. `line` and `column` count from 1; 0: no source location.
struct Diagnostic {
  std::string file;
  int line = 0;
  int column = 0;
  std::string message;  // what is wrong
  std::string remedy;   // what to do
  std::string excerpt;  // the offending line, or the section of a long line around the location
  int caret = 0;        // the location's offset in the excerpt, in characters
};

struct Error {
  ErrorKind kind = ErrorKind::failed;
  std::vector<Diagnostic> diagnostics;

  // An error without a source location.
  static Error make(ErrorKind kind, std::string message, std::string remedy = {});
};

// The printed form: `file:line:column: error: …`, the offending line with a caret, the remedy.
std::string to_string(const Error& error);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : value_(std::move(error)) {}

  explicit operator bool() const { return std::holds_alternative<T>(value_); }
  T& operator*() { return std::get<T>(value_); }
  const T& operator*() const { return std::get<T>(value_); }
  T* operator->() { return &std::get<T>(value_); }
  const T* operator->() const { return &std::get<T>(value_); }
  Error& error() { return std::get<Error>(value_); }
  const Error& error() const { return std::get<Error>(value_); }

 private:
  std::variant<T, Error> value_;
};

// For functions that may fail and return nothing.
struct Done {};

}  // namespace millrace
