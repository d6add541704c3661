// The program `millrace-worker`, which tries candidates for an exploration and may crash without harm.
#pragma once

namespace millrace {

// Answers requests on standard input until it ends; the exit code.
int worker_main();

}  // namespace millrace
