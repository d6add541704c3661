// Starts a process with pipes to its standard input, output and error: what run_process and Child have in common.
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
  Descriptor input;  // our ends of the pipes; none of them blocks
  Descriptor output;
  Descriptor error;
};

Result<Spawned> spawn(const std::vector<std::string>& arguments, const ProcessOptions& options);

// Writes what fits and removes it from the front of `bytes`; false when the reader has gone. No SIGPIPE comes of it.
bool write_some(int descriptor, std::string_view& bytes);

// Appends what is there; false at the end of the file.
bool read_some(int descriptor, std::string& bytes);

}  // namespace millrace
