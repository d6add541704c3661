// The program `millrace-worker`: started by explorations, one request a line.
#include "millrace/worker.h"

int main() { return millrace::worker_main(); }
