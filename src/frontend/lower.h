// Syntax tree to graph: declares arguments, inlines calls, lowers expressions. Tests: tests/frontend/lower_test.cpp.
#pragma once

#include "frontend/diagnostics.h"
#include "frontend/frontend.h"
#include "frontend/sizes.h"
#include "frontend/syntax.h"
#include "ir/graph.h"

namespace millrace {

// The graph of the entry function; meaningless after an error.
Graph lower_module(const Module& module, const Numbers& numbers, const ProgramOptions& options,
                   Diagnostics& diagnostics);

}  // namespace millrace
