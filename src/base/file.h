// Reads and writes whole files. Tests: tests/base/file_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/result.h"

namespace millrace {

// The file's bytes; an error, without reading them all, if there are more than `limit`.
Result<std::string> read_file(const std::string& path, int64_t limit);

// Writes a temporary file next to `path` and renames it, so that no reader sees a partial file, even after a crash.
Result<Done> write_file(const std::string& path, std::string_view bytes);

}  // namespace millrace
