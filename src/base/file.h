// Reads and writes whole files. Tests: tests/base/file_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/result.h"

namespace millrace {

// The bytes of a regular file; an error, without reading them all, if there are more than `limit`. Never waits: a named
// pipe in place of a file is refused.
Result<std::string> read_file(const std::string& path, int64_t limit);

// The same for a file named by the user, which may also be a pipe or a device: <(command), /dev/stdin.
Result<std::string> read_file_or_pipe(const std::string& path, int64_t limit);

// Replaces the file at once, so that no reader sees a partial file, even after a crash: writes a temporary file with an
// unpredictable name next to it and renames that. Follows a link to its target. Writes into what is not a regular file,
// such as /dev/null or a named pipe.
Result<Done> write_file(const std::string& path, std::string_view bytes);

}  // namespace millrace
