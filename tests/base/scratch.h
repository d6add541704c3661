// A fixture for tests with files: each runs in its own folder, which is removed afterwards; restores environment
// variables.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/text.h"

namespace millrace {

class ScratchTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              concat("millrace_", info->test_suite_name(), "_", info->name(), "_", getpid());
    std::filesystem::create_directories(folder_);
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
  }
  void TearDown() override {
    for (const auto& [name, value] : variables_) put(name, value);
    std::filesystem::remove_all(folder_);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // Sets a variable until the test ends; nullopt unsets it.
  void set_variable(const std::string& name, const std::optional<std::string>& value) {
    const char* old = std::getenv(name.c_str());
    variables_.try_emplace(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    put(name, value);
  }

  std::filesystem::path folder_;

 private:
  static void put(const std::string& name, const std::optional<std::string>& value) {
    if (value)
      setenv(name.c_str(), value->c_str(), 1);
    else
      unsetenv(name.c_str());
  }

  std::map<std::string, std::optional<std::string>> variables_;
};

}  // namespace millrace
