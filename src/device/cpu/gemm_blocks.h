// A matrix split into one block per thread, as even and as square as possible. Test: tests/device/blas_test.cpp
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace millrace {

struct GemmBlock {
  int64_t row = 0;
  int64_t column = 0;
  int64_t rows = 0;  // for a thread without work, this or `columns` is 0
  int64_t columns = 0;
};

class GemmBlocks {
 public:
  // Of all grids with one cell per thread, the one whose threads read the least: a block's rows of A and columns of B.
  GemmBlocks(int64_t rows, int64_t columns, int threads) : rows_(rows), columns_(columns) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int down = 1; down <= threads; ++down) {
      if (threads % down != 0) continue;
      const int64_t height = part_of(rows, down);
      const int64_t width = part_of(columns, threads / down);
      if (height + width >= least) continue;
      least = height + width;
      height_ = height;
      width_ = width;
      across_ = threads / down;
    }
  }

  GemmBlock of(int thread) const {
    GemmBlock block;
    block.row = std::min(rows_, thread / across_ * height_);
    block.column = std::min(columns_, thread % across_ * width_);
    block.rows = std::min(height_, rows_ - block.row);
    block.columns = std::min(width_, columns_ - block.column);
    return block;
  }

 private:
  // The extent of one part, in whole tiles that suit the libraries' kernels.
  static int64_t part_of(int64_t extent, int parts) {
    constexpr int64_t kTile = 16;
    const int64_t tiles = (extent + kTile - 1) / kTile;
    return (tiles + parts - 1) / parts * kTile;
  }

  int64_t rows_;
  int64_t columns_;
  int64_t height_ = 0;  // of a block
  int64_t width_ = 0;
  int across_ = 1;  // blocks
};

}  // namespace millrace
