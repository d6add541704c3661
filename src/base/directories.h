// The directories for Millrace's own files, and checks that no other user wrote them: Millrace may execute them.
// Tests: tests/base/directories_test.cpp.
#pragma once

#include <string>

#include "millrace/result.h"

namespace millrace {

// For files that can be regenerated: $MILLRACE_CACHE_DIR, else $XDG_CACHE_HOME/millrace, else $HOME/.cache/millrace.
// Created if absent.
Result<std::string> cache_directory();

// For measurements: $MILLRACE_DATA_DIR, else $XDG_DATA_HOME/millrace, else $HOME/.local/share/millrace.
Result<std::string> data_directory();

// The same paths, without creating the directories.
Result<std::string> find_cache_directory();
Result<std::string> find_data_directory();

// Creates `path` and its parents if absent, for the user alone (0700). An error if it, or the target of a symbolic link
// there, belongs to another user, or if group or others may write to it.
Result<Done> make_private_directory(const std::string& path);

// Checks for a regular file (not a link to one) of this user or root that neither group nor others may write.
Result<Done> check_own_file(const std::string& path);

// The same for an open file; `path` is for the error message.
Result<Done> check_own_file(int descriptor, const std::string& path);

}  // namespace millrace
