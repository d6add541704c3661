// The public API: what the `millrace` program does, as functions from options to the text it prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/result.h"

namespace millrace {

// A program on disk and how to read it.
struct ProgramSource {
  std::string path;
  std::string entry;               // the function to take; empty: the last one
  std::vector<std::string> sizes;  // "tiny" (a set of SIZES) or "J=128"; later ones win
  std::string dtype;               // stores every tensor as this; empty: as annotated
};

enum class Format {
  text,   // a table for people
  json,   // for programs, with a schema_version
  dot,    // for Graphviz
  graph,  // the dataflow graph, one line an operator
};

// One stage of the way through, as it was run.
struct StageTime {
  std::string name;
  double seconds = 0;
};

struct AnalyzeOptions {
  ProgramSource program;
  Format format = Format::text;
  int64_t fast_memory_bytes = int64_t{50} << 20;  // an H200's L2 cache
  int width = 100;                                // columns of the table
  std::vector<StageTime>* timings = nullptr;      // filled when there
};

// Flop, words, class and lower bound of every operator of forward and backward.
Result<std::string> analyze_program(const AnalyzeOptions& options);

struct FuseOptions {
  ProgramSource program;
  Format format = Format::text;
  bool explain = false;  // every neighbouring pair, and why it fused or did not
  int width = 100;
  std::vector<StageTime>* timings = nullptr;
};

// The groups of operators that run as one kernel each, and the words that saves.
Result<std::string> fuse_program(const FuseOptions& options);

struct RunOptions {
  ProgramSource program;
  std::string device = "reference";
  std::string in;     // a safetensors file with the arguments, and d_NAME for results' gradients; empty: all are drawn
  std::string out;    // where results and gradients go; empty: nowhere
  uint64_t seed = 0;  // of drawn tensors and of dropout
  uint32_t step = 0;  // of dropout
  Format format = Format::text;
};

// Forward and backward once; the text says what came out.
Result<std::string> run_program(const RunOptions& options);

// "0.1.0"
std::string version();

}  // namespace millrace
