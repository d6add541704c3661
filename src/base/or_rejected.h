// A value, or the reason why a stage rejected a choice. A rejection is not an error: it is counted and shown. An error
// that stops the program is a Result. Tests: tests/fusion/explain_test.cpp.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace millrace {

struct Rejection {
  std::string reason;
};

template <class T>
class [[nodiscard]] OrRejected {
 public:
  OrRejected(T value) : value_(std::move(value)) {}
  OrRejected(Rejection rejection) : value_(std::move(rejection)) {}

  explicit operator bool() const { return std::holds_alternative<T>(value_); }
  T& operator*() { return std::get<T>(value_); }
  const T& operator*() const { return std::get<T>(value_); }
  T* operator->() { return &std::get<T>(value_); }
  const T* operator->() const { return &std::get<T>(value_); }
  const std::string& reason() const { return std::get<Rejection>(value_).reason; }

 private:
  std::variant<T, Rejection> value_;
};

}  // namespace millrace
