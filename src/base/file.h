// Whole files in and out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/result.h"

namespace millrace {

// The file's bytes; refused, without reading them all, when there are more than `limit`.
Result<std::string> read_file(const std::string& path, int64_t limit);

// Writes beside `path` and renames, so that a reader or a kill never sees half a file.
Result<Done> write_file(const std::string& path, std::string_view bytes);

}  // namespace millrace
