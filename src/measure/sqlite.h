// SQLite, loaded when it is first needed, so that building Millrace takes no package of it and a machine without it can
// do everything else. A connection and its statements belong to one thread at a time, and to one process: open after a
// fork, not before.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "millrace/result.h"

namespace millrace {

struct SqliteLibrary;

// The library's functions; unavailable when it cannot be loaded, has not all of them, or is too old.
Result<const SqliteLibrary*> load_sqlite(const char* name);

// Of the library that databases are opened by, as "3.40.1".
Result<std::string> sqlite_version();

enum class SqliteMode {
  write,
  read,
  read_immutable,  // the file is on a medium that nobody writes: neither locks nor files beside it are needed
};

// What a connection and its statements share.
struct SqliteHandle;

class SqliteStatement {
 public:
  SqliteStatement(SqliteHandle* handle, void* statement) : handle_(handle), statement_(statement) {}
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;
  SqliteStatement& operator=(SqliteStatement&&) = delete;
  ~SqliteStatement();

  // Parameters count from 1. What goes wrong is said by the next step.
  void bind_text(int parameter, std::string_view text);
  void bind_integer(int parameter, int64_t value);
  void bind_real(int parameter, double value);

  // Whether there is a row.
  Result<bool> step();
  // To its beginning, for other parameters.
  void reset();

  // Columns of the row count from 0. Nothing when the column holds another type: a file can hold anything.
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
  // The file must be there.
  static Result<SqliteConnection> open(const std::string& path, SqliteMode mode, int busy_milliseconds);

  SqliteConnection(SqliteConnection&&) noexcept;
  SqliteConnection& operator=(SqliteConnection&&) noexcept;
  ~SqliteConnection();

  Result<SqliteStatement> prepare(std::string_view sql) const;
  // One statement without parameters, its rows unread.
  Result<Done> run(std::string_view sql) const;
  // The first column of the first row.
  Result<int64_t> integer(std::string_view sql) const;
  Result<std::string> text(std::string_view sql) const;
  const std::string& path() const;
  // Whether the last thing that failed did so because another process writes.
  bool was_busy() const;

 private:
  explicit SqliteConnection(std::unique_ptr<SqliteHandle> handle);

  std::unique_ptr<SqliteHandle> handle_;
};

// What to say, and do, of a database that is damaged.
Error damaged_database(const std::string& path, const std::string& how);

}  // namespace millrace
