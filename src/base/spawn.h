// Starts a process with pipes to its standard input, output and error, for run_process and Child.
// Tests: tests/base/process_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "base/process.h"
#include "millrace/result.h"

namespace millrace {

struct Spawned {
  OwnedProcess process;
  Descriptor input;  // our ends of the pipes, non-blocking
  Descriptor output;
  Descriptor error;
};

Result<Spawned> spawn(const std::vector<std::string>& arguments, const ProcessOptions& options);

// Writes what fits and removes it from the front of `bytes`; false if the reader has closed. Never raises SIGPIPE.
bool write_some(int descriptor, std::string_view& bytes);

// Appends the available bytes; false at the end of the file.
bool read_some(int descriptor, std::string& bytes);

}  // namespace millrace
