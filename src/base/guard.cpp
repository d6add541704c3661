#include "base/guard.h"

#include <unistd.h>

#include "base/installation.h"

namespace millrace {
namespace {

// The path of millrace-guard; empty if it is not there.
std::string guard_path() {
  for (const auto& place : installed_places("millrace-guard", InstalledIn::libexec)) {
    if (access(place.c_str(), X_OK) == 0) return place.string();
  }
  return "";
}

}  // namespace

std::vector<std::string> guarded(std::vector<std::string> arguments) {
  static const std::string kGuard = guard_path();
  // A program that cannot be started is an error of its own.
  if (!kGuard.empty() && access(arguments.front().c_str(), X_OK) == 0) arguments.insert(arguments.begin(), kGuard);
  return arguments;
}

}  // namespace millrace
