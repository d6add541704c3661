// How much memory a library may still reserve. Test: tests/python/limits_test.py
#pragma once

#include <cstdint>
#include <string>

namespace millrace {

// Bytes that `ulimit -v` and `ulimit -d` leave to this process; INT64_MAX if there is no limit.
int64_t free_address_space();

// Why too little is left for a library of matrix products; empty if there is enough. OpenBLAS reserves 128 MiB for each
// thread when it is loaded, and tries for ever if it cannot.
std::string lack_of_address_space();

}  // namespace millrace
