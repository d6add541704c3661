// How many threads share a row, a block and the grid. Few of each, because similar shapes take similar times.
#include <algorithm>
#include <utility>
#include <vector>

#include "candidates/configs.h"

namespace millrace {
namespace {

constexpr int kWideBytes = 16;
constexpr int64_t kSectorBytes = 32;  // the unit of memory transfers
constexpr int64_t kMostKept = 64;     // elements of a row that a thread keeps in registers
constexpr int kMostBlockThreads = 1024;

int64_t power_above(int64_t x) {
  int64_t power = 1;
  while (power < x) power *= 2;
  return power;
}

void add(std::vector<GpuShape>& shapes, const GpuShape& shape) {
  if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
}

std::vector<int> widths_of(const GpuNest& nest) {
  const GpuShape widest{widest_access(nest.element_bytes), 1, 1, 0};
  const int first = static_cast<int>(width_along(widest, nest.vector_extent));
  if (first == 1) return {1};
  return {first, first / 2};
}

std::vector<GpuShape> flat_shapes(const GpuNest& nest) {
  std::vector<GpuShape> shapes;
  for (const int width : widths_of(nest)) {
    for (const int threads : {128, 256, 512}) add(shapes, {width, 1, threads, 0});
  }
  return shapes;
}

// Neighbours in memory belong to different rows here: threads of different rows read them together, at least a sector.
// Rows that stay in registers come first; longer ones go through memory.
std::vector<GpuShape> lane_shapes(const GpuNest& nest) {
  std::vector<GpuShape> shapes;
  for (const int width : widths_of(nest)) {
    for (const int threads : {256, 512, 1024}) {
      for (const int64_t vectors : {8, 4, 16}) {
        const int64_t row_threads = power_above((nest.row_points + vectors - 1) / vectors);
        const int64_t read_together = nest.element_bytes * width * threads / row_threads;
        if (vectors * width > kMostKept || read_together < kSectorBytes) continue;
        add(shapes, {width, static_cast<int>(row_threads), threads, 0});
      }
    }
  }
  for (const int width : widths_of(nest)) {
    for (const int row_threads : {16, 4, 1, 32}) {
      if (row_threads > 1 && row_threads > nest.row_points) continue;
      add(shapes, {width, row_threads, 256, 0});
    }
  }
  return shapes;
}

// Threads of a block, and blocks per multiprocessor, that share the rows of a reduction across rows. Partial sums of
// blocks go through memory, so there are few large blocks. Those of a thread stay in registers, one for each of its
// vectors. Blocks that do not fit on a multiprocessor together would run one after the other, so those that fit come
// first.
std::vector<std::pair<int, int>> shared_grids(int64_t vectors) {
  constexpr int64_t kFit = 1024;  // threads with one vector each
  std::vector<std::pair<int, int>> grids = {{1024, 1}, {512, 2}, {256, 4}, {512, 1}, {256, 2}, {128, 4}, {256, 1}};
  std::stable_partition(grids.begin(), grids.end(),
                        [&](const auto& grid) { return grid.first * grid.second * vectors <= kFit; });
  return grids;
}

std::vector<GpuShape> row_shapes(const GpuNest& nest, const GpuTarget& target) {
  std::vector<GpuShape> shapes;
  for (const int width : widths_of(nest)) {
    const int64_t most = power_above((nest.row_points + width - 1) / width);
    for (const int64_t vectors : {2, 1, 4, 8}) {
      const auto row_threads = static_cast<int>(std::clamp<int64_t>(most / vectors, 1, kMostBlockThreads));
      const bool kept = vectors * width <= kMostKept || row_threads == kMostBlockThreads;
      if (!kept || (row_threads < 4 && vectors > 1)) continue;
      if (!nest.reduces_across) {
        for (const int threads : {128, 256, 512}) add(shapes, {width, row_threads, std::max(threads, row_threads), 0});
        continue;
      }
      for (const auto& [threads, blocks] : shared_grids(vectors)) {
        for (const int prefetch : {0, 1})
          add(shapes, {width, row_threads, std::max(threads, row_threads), blocks * target.multiprocessors, prefetch});
      }
    }
  }
  return shapes;
}

}  // namespace

int widest_access(int64_t element_bytes) {
  return static_cast<int>(std::clamp<int64_t>(kWideBytes / element_bytes, 1, 8));
}

int64_t width_along(const GpuShape& shape, int64_t extent) {
  int64_t width = shape.width;
  while (extent % width != 0) width /= 2;
  return width;
}

std::vector<GpuShape> gpu_shapes(const GpuNest& nest, const GpuTarget& target) {
  if (nest.lanes) return lane_shapes(nest);
  if (!nest.rows && !nest.reduces && !nest.reduces_across) return flat_shapes(nest);
  return row_shapes(nest, target);
}

}  // namespace millrace
