// Loads and stores of a CUDA kernel: where a load is placed, how wide an access is, and how masks are packed or drawn.
// Test: tests/codegen/cuda_kernel_test.cpp
#pragma once

#include "codegen/cuda/kernel_statements.h"
#include "codegen/cuda/thread_mapping.h"

namespace millrace::codegen {

// The type of W neighbours of a tensor in registers.
std::string elements_type(const ThreadMapping& map, int port, const Positions& positions, int vector);
// The offset of a point in a tensor.
std::string offset_text(const ThreadMapping& map, int port, const Positions& positions);
Store store_of(const ThreadMapping& map, int port, const Positions& positions, int vector, const std::string& values);

class Accesses {
 public:
  Accesses(const ThreadMapping& map, KernelStatements& kernel) : map_(map), kernel_(kernel) {}

  // Text of a tensor's element; the first use in a segment adds the load.
  // `guards`: where it may be read. `needed`: a condition, the same in all lanes; where it does not hold, nothing uses
  // the value.
  std::string loaded(int port, const Positions& positions, const std::vector<Guard>& guards, SegmentStatements& to,
                     const std::string& needed = "");

  // Text of an element of a dropout's own mask; the first use draws it.
  std::string drawn_mask(int member, SegmentStatements& to);

  // Stores an output, if the partition writes it.
  void store(const PlacedInstruction& placed, const std::string& name, SegmentStatements& to) const;

 private:
  // What is loaded: the prelude's type, pointer and offset, and where it may be read.
  struct Loaded {
    std::string type;
    std::string pointer;
    std::string offset;
    std::vector<Guard> guards = {};
    std::string needed = {};
  };
  std::string place_load(const std::string& key, const Loaded& loaded, SegmentStatements& to);
  Statement load_of(const Segment& segment, const std::string& target, const Loaded& loaded) const;

  std::string stored_mask(int port, const Positions& positions, SegmentStatements& to);
  std::string store_guard(const Segment& segment) const;
  Statement stored_bits(const PlacedInstruction& placed, int port, const std::string& values) const;

  std::string dropout_name(const Operator& dropout);
  Position mask_element(TensorId mask, const Positions& positions) const;
  bool in_blocks(TensorId mask, const Positions& positions, int vector, int64_t block) const;
  std::string draw_call(const std::string& name, TensorId mask, const Positions& positions, int vector,
                        const std::string& dropout) const;
  std::string lane_suffix(const Segment& segment) const;

  const ThreadMapping& map_;
  KernelStatements& kernel_;
  std::map<std::string, std::string> row_loads_;  // text of a vector, by tensor, its indices and the segment's
  std::map<int, std::string> masks_;              // by the dropout's member
  int load_count_ = 0;
  int mask_count_ = 0;
};

}  // namespace millrace::codegen
