// Creates database files and checks who owns them. Rows only decide which kernel is considered fast and never change a
// result. Still, a file that another user could have written is read only if the user asks to merge it. Test:
// tests/measure/database_test.cpp
#pragma once

#include <string>

#include "millrace/result.h"

namespace millrace {

// Resolves links in the path. The file, and SQLite's files next to it, must belong to the user, and nobody else may
// write them.
Result<std::string> own_database_file(const std::string& path);

// Resolves links in the path of a file that is only read; any user's.
Result<std::string> readable_database_file(const std::string& path);

// Creates an empty file that only the user may read or write, unless the file exists.
Result<Done> create_database_file(const std::string& path);

}  // namespace millrace
