// Finds the row of a join by what its cells are made of: the usages that both sides share, the left row's own cells and
// the right row's, each as a small number. Test: tests/select/select_test.cpp
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace millrace {

struct RowKey {
  size_t shared = 0;
  size_t left = 0;
  size_t right = 0;
};

class RowIndex {
 public:
  static constexpr int64_t kNone = -1;

  // `lefts`, `rights`: how many different cells the sides have.
  RowIndex(size_t lefts, size_t rights) : lefts_(lefts), rights_(rights), dense_(lefts * rights <= kDense) {}

  // The row's number, or kNone. Assign to it.
  int64_t& operator[](const RowKey& key) {
    const size_t pair = key.left * rights_ + key.right;
    if (!dense_ || key.shared >= kTables)
      return rows_.try_emplace(key.shared * lefts_ * rights_ + pair, kNone).first->second;
    if (key.shared >= tables_.size()) tables_.resize(key.shared + 1);
    if (tables_[key.shared].empty()) tables_[key.shared].assign(lefts_ * rights_, kNone);
    return tables_[key.shared][pair];
  }

  void clear() {
    rows_.clear();
    tables_.clear();
  }

 private:
  static constexpr size_t kDense = 1024;  // combinations of left and right for which a table is small
  static constexpr size_t kTables = 256;

  size_t lefts_;
  size_t rights_;
  bool dense_;
  std::vector<std::vector<int64_t>> tables_;    // by shared usages, then by left and right
  std::unordered_map<uint64_t, int64_t> rows_;  // where there are many combinations
};

}  // namespace millrace
