// Loads and stores of a CPU kernel: tensors, buffers that carry a row from one loop to the next, and masks.
// Test: tests/codegen/cpu_kernel_test.cpp, cpu_masks_test.cpp
#pragma once

#include "codegen/nest.h"
#include "codegen/statement.h"

namespace millrace::codegen {

// A nest whose innermost loop takes vectors.
struct VectorNest : Nest {
  explicit VectorNest(const NestInput& input);

  int64_t lanes = 8;  // elements of a vector

  // The index along which a segment's loop takes vectors. The loops of a row may differ in it.
  static int vector_of(const Segment& segment) { return segment.indices.empty() ? kNoIndex : segment.indices.back(); }
  int64_t stride_of(const Segment& segment, const Positions& positions, const std::vector<int64_t>& strides) const;
  std::string offset_of(int port, const Positions& positions) const;
  // The index that moves from lane to lane of a segment's vectors, or kNoIndex.
  int moving_in(const Segment& segment) const;
};

// Memory of one thread.
class Scratch {
 public:
  explicit Scratch(int64_t element_bytes) : element_bytes_(element_bytes) {}

  // Declares a pointer to this number of elements.
  std::string reserve(const std::string& name, int64_t elements);
  int64_t bytes() const { return bytes_; }
  const Statements& pointers() const { return pointers_; }

 private:
  int64_t element_bytes_;
  int64_t bytes_ = 0;
  Statements pointers_;
};

// The statements of a segment while it is generated. A line is the points along the segment's vector index.
struct VectorStatements {
  const Segment& segment;
  Statements declared = {};  // before the loop
  Statements before_line = {};
  Statements points = {};
  Statements after_line = {};
  Statements reduced = {};                         // after the loop
  std::map<std::string, std::string> loaded = {};  // name of a vector, by tensor and indices or by value
};

class VectorAccesses {
 public:
  // `made`: takes the values and subsequences that the accesses need.
  VectorAccesses(const VectorNest& nest, Scratch& scratch, KernelText& made);

  // `guards`: where it may be read. `needed`: a condition, the same in all lanes; where it does not hold, the value is
  // zero.
  std::string loaded(int port, const Positions& positions, const std::vector<Guard>& guards, VectorStatements& to,
                     const std::string& needed = "");
  std::string drawn_mask(int member, VectorStatements& to);
  void store(const PlacedInstruction& placed, const std::string& name, VectorStatements& to);

  // A value that an earlier loop computed, and a later one uses.
  std::string load_carried(const NestValue& value, VectorStatements& to) const;
  void store_carried(const NestValue& value, VectorStatements& to) const;

  const Statements& dropouts() const { return dropouts_; }

 private:
  std::string carried_address(const NestValue& value) const;
  void store_bits(const PlacedInstruction& placed, const std::string& name, VectorStatements& to);
  std::string stored_mask(int port, const Positions& positions, VectorStatements& to);
  Statement draw_call(const std::string& buffer, TensorId mask, const Positions& positions, const std::string& dropout,
                      const Segment& segment) const;
  std::string dropout_name(const Operator& dropout);
  std::string bits_offset(TensorId mask, const Positions& positions) const;

  bool has_line(const Segment& segment) const;
  std::string line_length(const Segment& segment) const;
  std::string reserve_line(const Segment& segment);
  std::string from_line(const Segment& segment, const std::string& buffer) const;

  const VectorNest& nest_;
  Scratch& scratch_;
  KernelText& made_;
  Statements dropouts_;
  std::map<NestValue, std::string> carried_;
  std::map<int, std::string> mask_lines_;  // by the dropout's member
  int loads_ = 0;
  int lines_ = 0;
};

}  // namespace millrace::codegen
