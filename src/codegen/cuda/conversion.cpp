#include "codegen/cuda/conversion.h"

#include "base/text.h"
#include "codegen/cuda/accesses.h"

namespace millrace::codegen {
namespace {

// The part of the tile at (x, y), for all k of a thread that are in the tensor.
Statement each_part(const ThreadMapping& map, int vector, const std::string& x, const std::string& y, Statements body) {
  const std::string across = Nest::index_name(map.config.block);
  const std::string down = Nest::index_name(map.config.vector);
  const std::string inside =
      concat(across, " < ", map.extent(map.config.block), " && ", down, " < ", map.extent(map.config.vector));
  Statements part = {{Declare{"const int", "x", x}},
                     {Declare{"const int", "y", y}},
                     {Declare{"const I", across, "left + x"}},
                     {Declare{"const I", down, "top + y"}},
                     {If{inside, std::move(body)}}};
  return {Loop{.unroll = Unroll::fully,
               .counter = "k",
               .end = concat(kTile * kTile / map.width(vector)),
               .body = std::move(part),
               .first = "thread",
               .stride = concat(map.shape.threads)}};
}

}  // namespace

Statements convert_vector(const ThreadMapping& map) {
  const Positions positions = map.own_positions(map.ports[0].tensor);
  const int vector = map.config.vector;
  return {{Declare{"F", concat("moved[", map.width(vector), "]")}},
          {Declare{elements_type(map, 0, positions, vector), "x0"}},
          {Load{"x0", "p0", offset_text(map, 0, positions)}},
          assign_each("l", map.width(vector), "moved[l]", "x0.get<F>(l)"),
          {store_of(map, 1, positions, vector, "moved")}};
}

// Half a warp writes neighbours of a column, and the other half those of the next vector, so that whole sectors are
// written.
Statements convert_tile(const ThreadMapping& map, KernelStatements& kernel) {
  const int across = map.config.block;
  const int down = map.config.vector;
  const Positions positions = map.own_positions(map.ports[0].tensor);
  std::vector<int> others;
  for (const int index : map.config.loops) {
    if (index != across && index != down) others.push_back(index);
  }
  const int64_t wide = map.tiles_along(across);
  const int64_t high = map.tiles_along(down);
  const std::string type = concat("mr::Tile<", map.type_of(map.ports[0]), ">");
  kernel.shared.push_back({Declare{"MR_SHARED " + type, "tile"}});
  Statements statements = {{Declare{"const I", "block", "I(mr::block_number())"}},
                           {Declare{"const I", "left", concat("block % ", wide, " * ", kTile)}},
                           {Declare{"const I", "top", concat("block / ", wide, " % ", high, " * ", kTile)}}};
  append(statements, map.decoded(others, concat("(block / ", wide * high, ")")));
  const int64_t vectors = kTile / map.width(across);
  statements.push_back(each_part(map, across, concat("k % ", vectors, " * ", map.width(across)),
                                 concat("k / ", vectors),
                                 {{Declare{elements_type(map, 0, positions, across), "vector"}},
                                  {Load{"vector", "p0", offset_text(map, 0, positions)}},
                                  {Call{concat("vector.store(tile.elements, y * ", type, "::kRow + x)")}}}));
  statements.push_back({Barrier{}});
  statements.push_back(each_part(map, down, "k % 16 + k / 32 % 4 * 16",
                                 concat("(k / 16 % 2 + k / 128 * 2) * ", map.width(down)),
                                 {{Declare{elements_type(map, 1, positions, down), "vector"}},
                                  assign_each("l", map.width(down), "vector.data.elements[l]",
                                              concat("tile.elements[(y + l) * ", type, "::kRow + x]")),
                                  {Call{concat("vector.store(p1, ", offset_text(map, 1, positions), ")")}}}));
  return statements;
}

}  // namespace millrace::codegen
