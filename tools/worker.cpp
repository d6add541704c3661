// The program `millrace-worker`: started by explorations, one request a line.
#include "millrace/worker.h"

#include "base/large_stack.h"

int main() { return millrace::on_large_stack(millrace::worker_main); }
