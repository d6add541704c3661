// Partial results of reductions across rows, after a block's last row: to scratch memory, then to the output.
#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "codegen/cuda/accesses.h"
#include "codegen/cuda/reductions.h"

namespace millrace::codegen {
namespace {

constexpr int kFinishBatch = 16;         // partial results that a thread of the second kernel loads before it adds them
constexpr int64_t kFewElements = 32768;  // results for which the second kernel has many small blocks
constexpr int64_t kSectorBytes = 32;     // the smallest unit that memory transfers

// For how many rows of a block partial results fit into shared memory together.
int64_t rows_in_shared(const ThreadMapping& map, const Partial& partial) {
  int64_t rows = map.block_rows;
  while (rows > 1 && rows * map.points(partial.inner) * map.real_bytes() > kMostShared) rows /= 2;
  return rows;
}

// Partials that a block adds between the same two barriers: as many as fit into shared memory. Returns the end.
size_t flushed_together(const ThreadMapping& map, size_t from) {
  int64_t bytes = 0;
  size_t end = from;
  for (; end < map.partials.size(); ++end) {
    const Partial& partial = map.partials[end];
    const int64_t rows = rows_in_shared(map, partial);
    bytes += rows * map.points(partial.inner) * map.real_bytes();
    if (end > from && (bytes > kMostShared || rows < map.block_rows)) break;
    if (rows < map.block_rows) return end + 1;
  }
  return end;
}

// Runs a statement at each vector q of a partial result.
Statement each_vector(const ThreadMapping& map, const Partial& partial, Statement body, Braces braces) {
  return {Loop{Unroll::fully,
               "p",
               concat(partial.vectors),
               {{Declare{"const I", "q", concat("I(p * ", map.shape.row_threads, " + lane) * ", partial.width)}},
                {If{concat("q < ", map.points(partial.inner)), {std::move(body)}, braces}}}}};
}

Statement scratch_pointer(const ThreadMapping& map, const Partial& partial, const std::string& result) {
  return {Declare{"F* const", "to",
                  concat("reinterpret_cast<F*>(args.scratch + ", partial.bytes_offset, ") + (", result, " * ",
                         map.fixed_points(), " + fixed) * ", map.points(partial.inner))}};
}

Statement store_partial(const ThreadMapping& map, const Partial& partial) {
  const int64_t aligned = std::gcd(kWideBytes, std::gcd(map.points(partial.inner), partial.width) * map.real_bytes());
  const Store store{concat(partial.width, ", 1, ", aligned), "to", "q", partial.name + "[p]"};
  const std::string result = map.combined ? "chunk" : concat("(chunk * ", map.block_rows, " + block_row)");
  return {Block{{scratch_pointer(map, partial, result), each_vector(map, partial, {store}, Braces::none)}}};
}

// Stores every row's partial result in shared memory. If fewer fit than there are rows, later rows add to earlier ones.
Statements combine(const ThreadMapping& map, const Partial& partial, int64_t offset) {
  const int64_t rows = rows_in_shared(map, partial);
  Statements statements;
  for (int64_t first = 0; first < map.block_rows; first += rows) {
    if (first > 0) statements.push_back({Barrier{}});
    const std::string to =
        concat("combined.elements[", offset, " + (block_row - ", first, ") * ", map.points(partial.inner), " + q + l]");
    const std::string own = partial.name + "[p][l]";
    const std::string sum = first == 0 ? own : concat(Nest::operation(partial.kind), "::of(", to, ", ", own, ")");
    const Statement added = each_vector(map, partial, assign_each("l", partial.width, to, sum), Braces::always);
    statements.push_back({If{concat("block_row >= ", first, " && block_row < ", first + rows), {added}}});
  }
  return statements;
}

Statement sum_combined(const ThreadMapping& map, const Partial& partial, int64_t offset) {
  const int64_t count = map.points(partial.inner);
  const int64_t threads = map.shape.threads;
  const std::string next =
      concat(Nest::operation(partial.kind), "::of(total, combined.elements[", offset, " + row * ", count, " + q])");
  const Statements sum = {
      {Declare{"F", "total", concat("combined.elements[", offset, " + q]")}},
      {Loop{Unroll::partly, "row", concat(rows_in_shared(map, partial)), {{Assign{"total", next}}}, Braces::none, "1"}},
      {Assign{"to[q]", "total"}}};
  return {Block{
      {scratch_pointer(map, partial, "chunk"),
       {Loop{Unroll::fully,
             "k",
             concat((count + threads - 1) / threads),
             {{Declare{"const int", "q", concat("k * ", threads, " + thread")}}, {If{concat("q < ", count), sum}}}}}}}};
}

Statements flush_combined(const ThreadMapping& map, KernelStatements& kernel) {
  Statements statements;
  int64_t most = 0;
  for (size_t from = 0; from < map.partials.size();) {
    const size_t end = flushed_together(map, from);
    if (from > 0) statements.push_back({Barrier{}});
    Statements sums;
    int64_t offset = 0;
    for (; from < end; ++from) {
      const Partial& partial = map.partials[from];
      append(statements, combine(map, partial, offset));
      sums.push_back(sum_combined(map, partial, offset));
      offset += rows_in_shared(map, partial) * map.points(partial.inner);
    }
    statements.push_back({Barrier{}});
    append(statements, std::move(sums));
    most = std::max(most, offset);
  }
  if (most > 0) kernel.shared.push_back({Declare{concat("MR_SHARED mr::Aligned<F, ", most, ">"), "combined"}});
  return statements;
}

// The second kernel waits for memory, not for arithmetic. With few columns per block there are many blocks, and many
// slices of a column's partial results, whose loads do not wait for each other. A block has at least a sector of
// neighbours.
int64_t finish_columns(const ThreadMapping& map) {
  int64_t elements = 0;
  for (const Partial& partial : map.partials) elements += map.points(map.kept_by(partial.member));
  return elements <= kFewElements ? kSectorBytes / map.real_bytes() : kWarp;
}

// A thread's slice of a column: it loads a batch of partial results, then adds them in order.
Statement sum_slice(const ThreadMapping& map, const Partial& partial, const std::vector<int>& kept, int64_t columns) {
  std::vector<int> reduced;
  for (const std::vector<int>* indices : {&map.fixed, &partial.inner}) {
    for (const int index : *indices) {
      if (std::find(kept.begin(), kept.end(), index) == kept.end()) reduced.push_back(index);
    }
  }
  const int64_t results = map.partial_results();
  const int64_t terms = results * map.points(reduced);
  const int64_t slices = kFinishThreads / columns;
  const int64_t batch = std::min<int64_t>((terms + slices - 1) / slices, kFinishBatch);
  Statements load = {{Declare{"const int", "term", concat("first + k * ", slices)}},
                     {Declare{"const I", "slot", concat("term % ", results)}},
                     {Declare{"const I", "inside", concat("term / ", results)}}};
  if (reduced.empty()) load.push_back({Call{"static_cast<void>(inside)"}});
  append(load, map.decoded(reduced, "inside"));
  load.push_back({Assign{"partial[k]", Nest::identity(partial.kind)}});
  const Assign loaded{"partial[k]", concat("reinterpret_cast<const F*>(args.scratch + ", partial.bytes_offset,
                                           ")[(slot * ", map.fixed_points(), " + ", map.offset_in(map.fixed, 1), ") * ",
                                           map.points(partial.inner), " + ", map.offset_in(partial.inner, 1), "]")};
  load.push_back({If{concat("term < ", terms), {{loaded}}, Braces::none}});
  Statements sum = {{Declare{"F", concat("partial[", batch, "]")}},
                    {Loop{Unroll::fully, "k", concat(batch), load}},
                    assign_each("k", batch, "total", concat(Nest::operation(partial.kind), "::of(total, partial[k])"))};
  return {Loop{.unroll = Unroll::never,
               .counter = "first",
               .end = concat(terms),
               .body = std::move(sum),
               .first = "slice",
               .stride = concat(batch * slices)}};
}

Statements finish_one(const ThreadMapping& map, const Partial& partial, int64_t first_block, int64_t columns) {
  const std::vector<int> kept = map.kept_by(partial.member);
  Statements statements = {
      {Declare{"const I", "element", concat("I(block - ", first_block, ") * ", columns, " + column")}},
      {Declare{"const bool", "there", concat("element < ", map.points(kept))}},
      {Declare{"const I", "at", "there ? element : 0"}}};
  append(statements, map.decoded(kept, "at"));
  statements.push_back({Declare{"F", "total", Nest::identity(partial.kind)}});
  statements.push_back(sum_slice(map, partial, kept, columns));
  statements.push_back({Assign{"total", concat("mr::reduce_slices<", Nest::operation(partial.kind), ", ",
                                               kFinishThreads, ", ", columns, ">(total, sums)")}});
  Statements stored;
  const Access& access = map.op(partial.member).outputs[Nest::at(partial.number)];
  const int port = map.written_port(access.tensor);
  if (port >= 0) {
    const Positions positions = map.positions_along(partial.member, access);
    stored.push_back({Call{concat("mr::narrow(total, p", port, "[", offset_text(map, port, positions), "])")}});
  }
  statements.push_back({If{"slice == 0 && there", stored}});
  return statements;
}

}  // namespace

Statements flush_partials(const ThreadMapping& map, KernelStatements& kernel) {
  if (map.combined && map.block_rows > 1) return flush_combined(map, kernel);
  Statements statements;
  for (const Partial& partial : map.partials) statements.push_back(store_partial(map, partial));
  return statements;
}

FinishKernel finish_partials(const ThreadMapping& map) {
  const int64_t columns = finish_columns(map);
  FinishKernel made;
  made.body = {{Declare{"MR_SHARED F", concat("sums[", kFinishThreads / kWarp * columns, "]")}},
               {Declare{"const int", "column", concat("thread % ", columns)}},
               {Declare{"const int", "slice", concat("thread / ", columns)}},
               {Declare{"const int", "block", "mr::block_number()"}}};
  for (const Partial& partial : map.partials) {
    const int64_t own = (map.points(map.kept_by(partial.member)) + columns - 1) / columns;
    made.body.push_back({If{concat("block >= ", made.blocks, " && block < ", made.blocks + own),
                            finish_one(map, partial, made.blocks, columns)}});
    made.blocks += own;
  }
  return made;
}

}  // namespace millrace::codegen
