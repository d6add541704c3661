// Starts a program that outlives this one, such as a browser. Test: tests/python/report_test.py
#pragma once

#include <string>
#include <vector>

#include "millrace/result.h"

namespace millrace {

// `arguments`: the program's path first. The program gets a session of its own and no input or output. We do not wait
// for it.
Result<Done> start_detached(const std::vector<std::string>& arguments);

}  // namespace millrace
