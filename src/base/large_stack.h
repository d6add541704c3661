// Runs a program on a stack that is large enough for any value of `ulimit -s`. Test: tests/python/limits_test.py
#pragma once

#include <functional>

namespace millrace {

// Returns what `program` returns. If the limit is small, it runs in a thread with a stack of its own, and threads that
// it starts get one as large.
int on_large_stack(std::function<int()> program);

}  // namespace millrace
