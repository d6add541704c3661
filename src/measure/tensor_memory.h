// Writes a tensor's values to memory in a layout, and reads them back. Test: tests/exec/cpu_executor_test.cpp
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ir/layout.h"

namespace millrace {

// Uninitialized memory, aligned to 4096 bytes.
class Memory {
 public:
  explicit Memory(int64_t bytes);
  char* data() const { return bytes_.get(); }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(char* bytes) const;
  };
  int64_t size_ = 0;
  std::unique_ptr<char, Free> bytes_;
};

// Writes a tensor's values, row-major, rounded to its storage type.
void put_values(const Graph& graph, TensorId tensor, const Layout& layout, const std::vector<double>& values, char* to);

// A tensor's values, row-major. Bits are read as zeros and ones.
std::vector<double> take_values(const Graph& graph, TensorId tensor, const Layout& layout, const char* from);

}  // namespace millrace
