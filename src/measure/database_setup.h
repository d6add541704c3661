// Opens SQLite connections to the database: creates its tables, and checks files that may be damaged, malicious or of
// another program. Test: tests/measure/database_test.cpp
#pragma once

#include <cstdint>
#include <string>

#include "measure/database.h"
#include "measure/sqlite.h"
#include "millrace/result.h"

namespace millrace {

// The size of a file; 0 if it does not exist.
int64_t bytes_of_file(const std::string& file);

// Whether nothing was ever written: we created the file just now, or a process was killed right after creating it.
Result<bool> is_fresh(const SqliteConnection& connection);

// Checks the file and sets the connection's options. With write access, creates the tables of a fresh file.
Result<Done> set_up(const SqliteConnection& connection, DatabaseAccess access, const DatabaseLimits& limits);

// A read-only connection. On a medium where SQLite cannot create its own files, the database is opened as immutable.
Result<SqliteConnection> open_to_read(const std::string& file, int busy_milliseconds);

}  // namespace millrace
