// Whose a database's file is. A row decides only which kernel is taken for fast, never a result; still, what another
// user could have written is not read unless it was named to be merged.
#pragma once

#include <string>

#include "millrace/result.h"

namespace millrace {

// The file without links in its path; it and SQLite's files beside it are ours, and only ours to write.
Result<std::string> own_database_file(const std::string& path);

// The same for a file that is only read: anybody's.
Result<std::string> readable_database_file(const std::string& path);

// Makes an empty one that only we may read or write, unless there is one already.
Result<Done> create_database_file(const std::string& path);

}  // namespace millrace
