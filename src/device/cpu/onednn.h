// A matrix product by oneDNN's primitive `matmul`, which generates code for the processor, the type and the shape.
// Test: tests/device/onednn_test.cpp
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/activation.h"
#include "base/or_rejected.h"
#include "base/stored_type.h"
#include "device/cpu/onednn_library.h"

namespace millrace {

// Strides in elements.
struct OneDnnMatrix {
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t row_stride = 1;
  int64_t column_stride = 1;
};

// C = f(factor · A·B + bias) + D, rounded once. D has the layout of C.
struct OneDnnProduct {
  StoredType type = StoredType::f32;
  OneDnnMatrix a;
  OneDnnMatrix b;
  OneDnnMatrix c;
  bool scaled = false;  // false: the factor is 1
  bool adds = false;    // false: there is no D
  // Whether the same vector is added to each row. For columns the library has only slow reference code.
  bool has_bias = false;
  Activation activation = Activation::none;  // f: not gelu_gradient
  int threads = 1;                           // of OpenMP, whenever it runs
};

// An object of the library, destroyed at the end.
using OneDnnObject = std::unique_ptr<void, int (*)(void*)>;

// Where the elements of a matrix are, for the library.
class OneDnnDescriptor {
 public:
  OneDnnDescriptor(int type, const OneDnnMatrix& matrix);
  OneDnnDescriptor(const OneDnnDescriptor&) = delete;
  OneDnnDescriptor& operator=(const OneDnnDescriptor&) = delete;

  bool is_valid() const { return valid_; }
  const void* get() const { return object_ ? object_.get() : bytes_.data(); }

 private:
  static constexpr size_t kBytes = 1024;  // version 2's struct has fewer

  bool valid_ = false;
  OneDnnObject object_;  // of version 3
  alignas(std::max_align_t) std::array<std::byte, kBytes> bytes_{};
};

class OneDnnMatmul {
 public:
  // Rejected if the library has no implementation of it for this processor but its slow reference.
  static OrRejected<std::shared_ptr<const OneDnnMatmul>> make(const OneDnnProduct& product);

  explicit OneDnnMatmul(const OneDnnProduct& product);  // incomplete; use make()

  // The scratch memory of each concurrent call, in whole cache lines.
  int64_t scratch_bytes() const { return scratch_bytes_; }
  const std::string& implementation() const { return implementation_; }

 private:
  friend class OneDnnCall;
  std::string complete();
  OneDnnObject attributes() const;
  OneDnnObject primitive_descriptor(const void* attributes) const;

  OneDnnProduct product_;
  OneDnnDescriptor a_;
  OneDnnDescriptor b_;
  OneDnnDescriptor c_;
  OneDnnDescriptor factor_;
  OneDnnDescriptor bias_;
  OneDnnObject descriptor_;  // of the primitive; it owns the scratchpad's descriptor
  OneDnnObject primitive_;
  std::string implementation_;
  int64_t scratch_bytes_ = 0;
};

// Runs of a product by one thread of the program, on any matrices. Ends the process if the library fails, which happens
// only when memory runs out.
class OneDnnCall {
 public:
  // `scratch`: the product's scratch_bytes(), aligned to 64.
  OneDnnCall(const OneDnnMatmul& matmul, float factor, char* scratch);
  OneDnnCall(const OneDnnCall&) = delete;
  OneDnnCall& operator=(const OneDnnCall&) = delete;

  // `added`: D, if the product adds; `bias`: if it has one.
  void run(const void* a, const void* b, void* c, const void* added, const void* bias);

 private:
  void* add(int number, const void* descriptor, void* data);

  const OneDnnMatmul& matmul_;
  float factor_;
  OneDnnObject stream_;
  std::vector<OneDnnObject> memory_;
  std::vector<OneDnnArgument> arguments_;
  void* a_ = nullptr;
  void* b_ = nullptr;
  void* c_ = nullptr;
  void* added_ = nullptr;
  void* bias_ = nullptr;
};

// The implementation that multiplies large matrices of a type on this processor, as the library names it; empty if
// there is none but the slow reference.
const std::string& onednn_implementation(StoredType type);

}  // namespace millrace
