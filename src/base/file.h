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

// What is wrong with a file that begins with these bytes. It may be called several times, with more bytes each time.
using CheckBeginning = Result<Done> (*)(std::string_view beginning);

// The same for a file named by the user, which may also be a pipe or a device: <(command), /dev/stdin. A device may be
// endless, such as /dev/zero: reading ends as soon as the beginning is wrong.
Result<std::string> read_file_or_pipe(const std::string& path, int64_t limit, CheckBeginning check = nullptr);

// Replaces the file at once, so that no reader sees a partial file, even after a crash: writes a temporary file with an
// unpredictable name next to it and renames that. Follows a link to its target. Users who may not read the earlier file
// may not read the new one. Writes into what is not a regular file, such as /dev/null or a named pipe.
Result<Done> write_file(const std::string& path, std::string_view bytes);

// The same for a file that Millrace names, such as report.html in the folder of a plan: replaces whatever is there. A
// folder from elsewhere may have a link there to a file of the user's, or a pipe that nobody reads.
Result<Done> write_own_file(const std::string& path, std::string_view bytes);

}  // namespace millrace
