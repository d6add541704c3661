// Recognizes a program, a plan or a file of measurements that the user gave in place of another. The error says what to
// do with it. Test: tests/python/command_line_test.py
#pragma once

#include <string>
#include <string_view>

#include "millrace/result.h"

namespace millrace {

enum class FileKind { program, plan, measurements };

// Decides by the text alone; nothing is verified.
FileKind kind_of(std::string_view text);

// An error if the file is known to be of a kind other than `wanted`.
Result<Done> check_kind(const std::string& path, std::string_view text, FileKind wanted);

// The text of a program; an error if a plan or measurements are given.
Result<std::string> read_program(const std::string& path);

}  // namespace millrace
