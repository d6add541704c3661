// SQLite, loaded on first use, so that building Millrace needs no SQLite package, and a machine without SQLite can do
// everything else. A connection and its statements belong to one thread at a time and to one process: open them after a
// fork, not before. Test: tests/measure/database_test.cpp
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "millrace/result.h"

namespace millrace {

struct SqliteLibrary;

// The library's functions; an error if it cannot be loaded, lacks some of them, or is too old.
Result<const SqliteLibrary*> load_sqlite(const char* name);

// The version of the library in use, as "3.40.1".
Result<std::string> sqlite_version();

enum class SqliteMode {
  write,
  read,
  read_immutable,  // the medium is read-only: no locks and no further files are needed
};

// Shared by a connection and its statements.
struct SqliteHandle;

class SqliteStatement {
 public:
  SqliteStatement(SqliteHandle* handle, void* statement) : handle_(handle), statement_(statement) {}
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;
  SqliteStatement& operator=(SqliteStatement&&) = delete;
  ~SqliteStatement();

  // Parameters count from 1. The next step reports errors.
  void bind_text(int parameter, std::string_view text);
  void bind_integer(int parameter, int64_t value);
  void bind_real(int parameter, double value);

  // Whether there is a row.
  Result<bool> step();
  // Rewinds the statement, to run it with other parameters.
  void reset();

  // Columns count from 0. Nothing if the column has another type: a file can contain anything.
  std::optional<int64_t> integer(int column) const;
  std::optional<double> real(int column) const;
  std::optional<std::string> text(int column) const;

 private:
  void bound(int code);

  SqliteHandle* handle_;
  void* statement_;
  int bind_code_ = 0;
};

class SqliteConnection {
 public:
  // The file must exist.
  static Result<SqliteConnection> open(const std::string& path, SqliteMode mode, int busy_milliseconds);

  SqliteConnection(SqliteConnection&&) noexcept;
  SqliteConnection& operator=(SqliteConnection&&) noexcept;
  ~SqliteConnection();

  Result<SqliteStatement> prepare(std::string_view sql) const;
  // Runs one statement without parameters and ignores its rows.
  Result<Done> run(std::string_view sql) const;
  // The first column of the first row.
  Result<int64_t> integer(std::string_view sql) const;
  Result<std::string> text(std::string_view sql) const;
  const std::string& path() const;
  // Whether the path still names the file that was opened.
  bool is_in_place() const;
  // Whether the last failure was caused by another writer.
  bool was_busy() const;

 private:
  explicit SqliteConnection(std::unique_ptr<SqliteHandle> handle);

  std::unique_ptr<SqliteHandle> handle_;
};

// The error for a database that is no longer in place.
Error displaced_database(const std::string& path);

// The error for a damaged database, with instructions to rescue its rows.
Error damaged_database(const std::string& path, const std::string& how);

}  // namespace millrace
