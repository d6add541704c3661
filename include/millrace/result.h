// A value or the errors that kept it from being made. Nothing in Millrace throws across this API.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace millrace {

// Whose mistake it was; the program's exit code follows from it.
enum class ErrorKind {
  bad_input,         // the user's text, file or option: exit code 2
  failed,            // the machine: a full disk, a failed write: exit code 1
  unavailable,       // a device or feature that is not there: exit code 3
  no_configuration,  // nothing valid to choose from: exit code 4
};

// One complaint. `line` and `column` count from 1; 0 means that it has no place in a text.
struct Diagnostic {
  std::string file;
  int line = 0;
  int column = 0;
  std::string message;  // what is wrong
  std::string remedy;   // what would be right
  std::string excerpt;  // the offending line of the text, or the part of a long one around the place
  int caret = 0;        // the place's offset in the excerpt, in characters
};

struct Error {
  ErrorKind kind = ErrorKind::failed;
  std::vector<Diagnostic> diagnostics;

  // An error without a place in a text.
  static Error make(ErrorKind kind, std::string message, std::string remedy = {});
};

// As a person reads it: `file:line:column: error: …`, the offending line with a caret, the remedy.
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

// For functions that make nothing but may fail.
struct Done {};

}  // namespace millrace
