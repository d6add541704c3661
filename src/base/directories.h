// Where Millrace keeps files of its own, and that nobody else wrote them: what it finds there it may execute.
#pragma once

#include <string>

#include "millrace/result.h"

namespace millrace {

// What can be made again: $MILLRACE_CACHE_DIR, else $XDG_CACHE_HOME/millrace, else $HOME/.cache/millrace. Made when
// absent.
Result<std::string> cache_directory();

// What took long to measure: $MILLRACE_DATA_DIR, else $XDG_DATA_HOME/millrace, else $HOME/.local/share/millrace.
Result<std::string> data_directory();

// Where they are or would be; makes nothing.
Result<std::string> find_cache_directory();
Result<std::string> find_data_directory();

// Makes `path` and its parents where absent, for the user alone (0700). Refused when it, or what a symbolic link there
// points to, is another user's, or when group or others may write into it.
Result<Done> make_private_directory(const std::string& path);

// A regular file (not a link to one) of this user or root that neither group nor others may write.
Result<Done> check_own_file(const std::string& path);

// The same of a file that is open already; `path` is for the error.
Result<Done> check_own_file(int descriptor, const std::string& path);

}  // namespace millrace
