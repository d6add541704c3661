// How much memory a library may still reserve. Test: tests/python/limits_test.py
#pragma once

#include <cstdint>
#include <string>

namespace millrace {

// Bytes that `ulimit -v` and `ulimit -d` leave to this process; INT64_MAX if there is no limit.
int64_t free_address_space();

// Why the memory left is too little for a library of matrix products; empty if it suffices. OpenBLAS reserves 128 MiB
// for each thread when it is loaded, and if it cannot, tries for ever.
std::string lack_of_address_space();

}  // namespace millrace
