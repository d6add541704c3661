// What the tests of the database share.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "measure/database.h"

namespace millrace {

// What GoogleTest prints of a row.
inline void PrintTo(const MeasurementRow& row, std::ostream* stream) { *stream << to_lines({row}); }

inline MeasurementRow row_of(const std::string& device, const std::string& partition, const std::string& candidate) {
  return {{device, partition, candidate}, Outcome::measured, 1e-3, 0.9e-3, 1.1e-3, 30, "", "2024-05-31T12:00:00Z"};
}

inline MeasurementRow numbered(int k) { return row_of("H200", concat("partition ", k % 7), concat("candidate ", k)); }

inline std::vector<MeasurementRow> numbered_rows(int count) {
  std::vector<MeasurementRow> rows;
  for (int k = 0; k < count; ++k) rows.push_back(numbered(k));
  std::sort(rows.begin(), rows.end());
  return rows;
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

// Runs `work` in another process, which exits without the test framework's cleanup.
inline pid_t start_process(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work() ? 0 : 1);
  return child;
}

inline bool succeeded(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class DatabaseTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
    // In memory if possible: thousands of small files are slow on a busy disk.
    const std::filesystem::path memory = "/dev/shm";
    const bool writable = access(memory.c_str(), W_OK | X_OK) == 0;
    folder_ = (writable ? memory : std::filesystem::path(testing::TempDir())) /
              concat("millrace_database_test_", getpid(), "_", info->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name = "m.db") const { return (folder_ / name).string(); }

  static Database opened(const std::string& file, DatabaseAccess access = DatabaseAccess::write) {
    Result<Database> database = Database::open(file, access);
    EXPECT_TRUE(database) << to_string(database.error());
    return std::move(*database);
  }

  static void put(Database& database, const std::vector<MeasurementRow>& rows) {
    const Result<Done> done = database.put(rows);
    ASSERT_TRUE(done) << to_string(done.error());
  }

  static std::vector<MeasurementRow> all(const std::string& file) {
    const Database database = opened(file);
    const Result<std::vector<MeasurementRow>> rows = database.all();
    EXPECT_TRUE(rows) << to_string(rows.error());
    return rows ? *rows : std::vector<MeasurementRow>();
  }

  // A closed database of these rows, in one file.
  std::string made(const std::vector<MeasurementRow>& rows, const std::string& name = "m.db") const {
    Database database = opened(path(name));
    put(database, rows);
    return path(name);
  }

  static void expect_error(const Result<Database>& result, ErrorKind kind, const std::string& text) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, kind) << to_string(result.error());
    EXPECT_NE(to_string(result.error()).find(text), std::string::npos) << to_string(result.error());
  }

  std::filesystem::path folder_;
};

}  // namespace millrace
