// How threads share a nest:
// - A flat nest without reductions: each thread takes W neighbours along the vector, of any row.
// - Rows: a group of threads takes a row; each thread of it P pieces of W neighbours, which stay in its registers from
//   one loop over the row to the next. Reductions go through shuffles and, beyond a warp, shared memory.
// - Rows in lanes, the vector running across rows: a thread takes W rows at once, and a group of threads, far apart in
//   the block, the points of each.
// Where a reduction crosses rows, a block walks over many of them, keeps its part of the result in registers, and
// leaves it in scratch; a second kernel adds the partitions up, always in the same order.
#include "codegen/cuda/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "codegen/nest_writer.h"

namespace millrace {
namespace {

constexpr int64_t kWide = 16;            // bytes of the widest access
constexpr int64_t kAlignment = 256;      // of scratch, and of buffers
constexpr int64_t kTile = 64;            // the prelude's
constexpr int64_t kMostPieces = 16;      // of a loop that is unrolled
constexpr int64_t kMostEarly = 32;       // elements of a tensor that a thread loads at a row's beginning
constexpr int64_t kMostShared = 32768;   // bytes in which a block adds up its groups' partitions
constexpr int kFinishThreads = 512;      // of a block of the second stage
constexpr int kFinishAtOnce = 16;        // partitions that one of its threads loads before it adds them up
constexpr int64_t kFewElements = 32768;  // results for which the second stage spreads over many small blocks
constexpr int64_t kSector = 32;          // bytes that memory gives at once
constexpr int64_t kWarp = 32;
constexpr int64_t kIntegerRange = int64_t{1} << 31;

class CudaGenerator : NestWriter {
 public:
  CudaGenerator(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                const KernelConfig& config)
      : NestWriter(graph, partition, layouts, config), shape_(*config.gpu) {
    bool reduces = false;
    for (const Segment& segment : schedule_.segments) {
      for (const PlacedStep& placed : segment.steps) {
        reduces = reduces || reduces_really(placed);
        reduces_inside_ = reduces_inside_ || (reduces_really(placed) && !placed.across);
      }
    }
    simple_ = !config.rows && !reduces;
    next_row_ahead_ = shape_.ahead > 0 && reduces_inside_;
    columns_ = lanes_ ? shape_.threads / shape_.group : 1;
    groups_ = lanes_ ? columns_ : shape_.threads / shape_.group;
  }

  KernelText run() {
    find_partials();
    find_rows();
    brief_ = real_ == "float" && std::all_of(ports_.begin(), ports_.end(), [&](const Port& port) {
               const bool drawn =
                   port.layout.storage != MaskStorage::words && !is_computed_boolean(graph_, port.tensor);
               return !port.written || drawn || type_of(port) == "mr::f16";
             });
    std::string body = config_.block != kNoIndex ? tiles_text() : simple_ ? simple_text() : rows_text();
    body += flush_text();
    std::string text = head("MILLRACE_KERNEL", shape_.threads, dropouts_);
    text += shared_ + body + "}\n";
    made_.grids.push_back({"MILLRACE_KERNEL", blocks_, shape_.threads});
    if (!partials_.empty()) text += finish_text();
    made_.text = std::move(text);
    made_.scratch_bytes = scratch_bytes_;
    return std::move(made_);
  }

 private:
  // --- What there is ---

  bool reduces_really(const PlacedStep& placed) const {
    return is_reduction(placed.step.kind) && (placed.across || !schedule_.reduced[at(placed.member)].empty());
  }

  // A reduction across rows: what every block leaves of it, at the points of its segment.
  struct Partial {
    int member = 0;
    int number = 0;
    StepKind kind = StepKind::sum;
    std::vector<int> inner;  // the segment's indices
    int64_t width = 1;
    int64_t pieces = 1;
    std::string name;
    int64_t bytes_offset = 0;
  };

  void find_partials() {
    for (const Segment& segment : schedule_.segments) {
      for (const PlacedStep& placed : segment.steps) {
        if (!placed.across) continue;
        partials_.push_back({placed.member, placed.step.target, placed.step.kind, segment.indices, width_of(segment),
                             pieces_of(segment), concat("a", partials_.size()), 0});
      }
    }
  }

  const Partial& partial_of(const PlacedStep& placed) const {
    return *std::find_if(partials_.begin(), partials_.end(),
                         [&](const Partial& p) { return p.member == placed.member && p.number == placed.step.target; });
  }

  // Which rows there are, and how many blocks share them. With reductions across rows, a block stays at one point of
  // the indices that any of them keeps, and walks along the others.
  void find_rows() {
    for (const int index : outer_loops()) {
      const bool kept = std::any_of(partials_.begin(), partials_.end(), [&](const Partial& partial) {
        const std::vector<int> of = kept_by(partial.member);
        return std::find(of.begin(), of.end(), index) != of.end();
      });
      (partials_.empty() || !kept ? walked_ : fixed_).push_back(index);
    }
    const int64_t rows = trips(walked_);
    fixed_points_ = points(fixed_);
    int64_t largest = rows;
    for (const Port& port : ports_) largest = std::max(largest, elements_of(graph_, port.tensor));
    integer_ = 2 * largest + 65536 < kIntegerRange ? "int" : "long long";
    if (simple_) {
      const int64_t chunks = rows * (config_.vector == kNoIndex ? 1 : extent(config_.vector) / width(config_.vector));
      blocks_ = (chunks + shape_.threads - 1) / shape_.threads;
      return;
    }
    const int64_t steps = (rows + groups_ - 1) / groups_;
    if (partials_.empty()) {
      blocks_ = steps;
      return;
    }
    chunks_ = std::clamp<int64_t>(shape_.blocks / fixed_points_, 1, steps);
    blocks_ = fixed_points_ * chunks_;
    for (Partial& partial : partials_) {
      const int64_t bytes = points(partial.inner) * real_bytes();
      combined_ = combined_ && bytes <= kMostShared;
    }
    for (Partial& partial : partials_) {
      partial.bytes_offset = scratch_bytes_;
      const int64_t bytes = slots() * fixed_points_ * points(partial.inner) * real_bytes();
      scratch_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
  }

  int64_t real_bytes() const { return real_ == "double" ? 8 : 4; }

  // How many partitions there are of a result.
  int64_t slots() const { return combined_ ? chunks_ : chunks_ * groups_; }

  // Rows in lanes come in bundles.
  int64_t trips(int index) const {
    return lanes_ && index == config_.vector ? extent(index) / width(index) : extent(index);
  }
  int64_t trips(const std::vector<int>& indices) const {
    int64_t count = 1;
    for (const int index : indices) count *= trips(index);
    return count;
  }

  // Neighbours along an index that a thread takes at once: a power of two that leaves no rest.
  int64_t width(int index) const {
    if (index == kNoIndex) return 1;
    int64_t wide = shape_.width;
    while (extent(index) % wide != 0) wide /= 2;
    return wide;
  }

  int vector_of(const Segment& segment) const {
    if (lanes_) return config_.vector;
    return !segment.loop || segment.indices.empty() ? kNoIndex : segment.indices.back();
  }
  int64_t width_of(const Segment& segment) const { return width(vector_of(segment)); }

  // Points of a segment that one thread comes past.
  int64_t pieces_of(const Segment& segment) const {
    if (simple_) return 1;
    const int64_t at_once = shape_.group * (lanes_ ? 1 : width_of(segment));
    return (points(segment.indices) + at_once - 1) / at_once;
  }
  bool unrolled(const Segment& segment) const { return pieces_of(segment) <= kMostPieces; }

  // --- Kernels ---

  std::string head(const std::string& name, int threads, const std::string& dropouts) {
    std::string text;
    line(text, 0,
         concat("MR_KERNEL(", threads, ") ", name, "(MR_PARAMETER mr::Arguments<", std::max<size_t>(ports_.size(), 1),
                ", ", std::max<size_t>(made_.values.size(), 1), ", ", std::max<size_t>(made_.subsequences.size(), 1),
                "> args) {"));
    line(text, 1, concat("using F = ", real_, ";"));
    line(text, 1, "using E = F;");
    line(text, 1, concat("using I = ", integer_, ";"));
    line(text, 1, concat("using U = unsigned ", integer_, ";  // what is divided: never negative, and cheaper so"));
    line(text, 1, "const int thread = mr::thread_number();");
    line(text, 1, "mr::begin();");
    for (size_t k = 0; k < ports_.size(); ++k) {
      if (ports_[k].layout.storage == MaskStorage::regenerated) continue;
      const std::string type = (ports_[k].written ? "" : "const ") + type_of(ports_[k]);
      line(text, 1, concat(type, "* __restrict__ const p", k, " = static_cast<", type, "*>(args.tensors[", k, "]);"));
    }
    for (size_t k = 0; k < made_.values.size(); ++k)
      line(text, 1, concat("const F c", k, " = F(args.values[", k, "]);"));
    return text + dropouts;
  }

  // The indices of a point, from its number among the points of `indices`; the last one in steps of `step`.
  void decode(std::string& text, int depth, const std::vector<int>& indices, const std::string& number, int vector,
              int64_t step) const {
    int64_t below = 1;
    for (const int index : indices) below *= index == vector ? extent(index) / step : extent(index);
    for (const int index : indices) {
      const int64_t count = index == vector ? extent(index) / step : extent(index);
      below /= count;
      std::string position = concat("U(", number, ")", below == 1 ? "" : concat(" / ", below));
      if (index != indices.front()) position += concat(" % ", count);
      line(text, depth,
           concat("const I ", index_name(index), " = I(", position, ")",
                  index == vector && step > 1 ? concat(" * ", step) : "", ";"));
    }
  }

  std::string simple_text() {
    std::string text;
    const int64_t wide = width(config_.vector);
    const int64_t chunks = trips(walked_) * (config_.vector == kNoIndex ? 1 : extent(config_.vector) / wide);
    line(text, 1, concat("const I chunk = I(mr::block_number()) * ", shape_.threads, " + thread;"));
    line(text, 1, concat("if (chunk < ", chunks, ") {"));
    std::vector<int> indices = walked_;
    if (config_.vector != kNoIndex) indices.push_back(config_.vector);
    decode(text, 2, indices, "chunk", config_.vector, wide);
    line(text, 2, "constexpr int p = 0;");
    std::string segments;
    if (partition_.members.empty()) segments += conversion_text();
    for (const Segment& segment : schedule_.segments) segments += segment_text(segment);
    text += kept_ + segments;
    line(text, 1, "}");
    return text;
  }

  std::string rows_text() {
    std::string text;
    const int64_t rows = trips(walked_);
    if (lanes_) {
      line(text, 1, concat("const int lane = thread / ", columns_, ";  // among those that share its rows"));
      line(text, 1, concat("const int group = thread % ", columns_, ";"));
    } else {
      line(text, 1, concat("const int lane = thread % ", shape_.group, ";"));
      line(text, 1, concat("const int group = thread / ", shape_.group, ";"));
    }
    for (const Partial& partial : partials_) {
      line(text, 1, concat("F ", partial.name, "[", partial.pieces, "][", partial.width, "];"));
      line(text, 1, "MR_UNROLL");
      line(text, 1, concat("for (int p = 0; p < ", partial.pieces, "; ++p) {"));
      line(text, 2, "MR_UNROLL");
      line(text, 2,
           concat("for (int l = 0; l < ", partial.width, "; ++l) ", partial.name, "[p][l] = ", identity(partial.kind),
                  ";"));
      line(text, 1, "}");
    }
    rows_at_once_ = find_rows_at_once(rows);
    guarded_ = rows % (partials_.empty() ? groups_ : chunks_ * groups_ * rows_at_once_) != 0;
    std::string segments;
    for (const Segment& segment : schedule_.segments) segments += segment_text(segment);
    if (partials_.empty()) {
      line(text, 1, "constexpr int turn = 0;");
      line(text, 1, "{");
      text += kept_;
      line(text, 2, concat("const I number = I(mr::block_number()) * ", groups_, " + group;"));
    } else {
      const int64_t at_once = chunks_ * groups_ * rows_at_once_;
      const int64_t turns = (rows + at_once - 1) / at_once;
      line(text, 1, concat("const I fixed = I(mr::block_number()) / ", chunks_, ";"));
      line(text, 1, concat("const I chunk = I(mr::block_number()) % ", chunks_, ";"));
      decode(text, 1, fixed_, "fixed", kNoIndex, 1);
      text += next_declared_ + fetch_text("0");
      line(text, 1, "MR_NO_UNROLL");
      line(text, 1, concat("for (int turn = 0; turn < ", turns, "; ++turn) {"));
      text += kept_;
      if (!next_loads_.empty()) line(text, 2, concat("if (turn + 1 < ", turns, ")"));
      text += fetch_text("(turn + 1)");
      if (rows_at_once_ > 1) {
        text += each_row(row_loads_) + each_row(segments);
        line(text, 1, "}");
        return text;
      }
      row_number(text, "turn");
    }
    find_row(text);
    text += row_loads_ + segments;
    line(text, 1, "}");
    return text;
  }

  // Rows without a reduction of their own: a group loads several before it works on the first of them.
  int64_t find_rows_at_once(int64_t rows) const {
    if (partials_.empty() || reduces_inside_) return 1;
    int64_t pieces = 1;
    for (const Segment& segment : schedule_.segments) pieces = std::max(pieces, pieces_of(segment));
    const int64_t turns = (rows + chunks_ * groups_ - 1) / (chunks_ * groups_);
    const int64_t most = std::clamp<int64_t>((shape_.ahead > 0 ? 8 : 4) / pieces, 1, turns);
    const int64_t batches = (turns + most - 1) / most;
    return (turns + batches - 1) / batches;
  }

  std::string each_row(const std::string& body) const {
    std::string text;
    line(text, 2, "MR_UNROLL");
    line(text, 2, concat("for (int r = 0; r < ", rows_at_once_, "; ++r) {"));
    row_number(text, concat("(turn * ", rows_at_once_, " + r)"));
    find_row(text);
    text += body;
    line(text, 2, "}");
    return text;
  }

  void row_number(std::string& text, const std::string& turn) const {
    line(text, 2, concat("const I number = (I(", turn, ") * ", chunks_, " + chunk) * ", groups_, " + group;"));
  }

  // A group without a row does the last one again, and keeps nothing of it: barriers need all threads.
  void find_row(std::string& text) const {
    const int64_t rows = trips(walked_);
    if (guarded_) {
      line(text, 2, concat("const bool active = number < ", rows, ";"));
      line(text, 2, concat("const I row = active ? number : ", rows - 1, ";"));
    } else {
      line(text, 2, "const I row = number;");
    }
    decode(text, 2, walked_, "row", lanes_ ? config_.vector : kNoIndex, lanes_ ? width(config_.vector) : 1);
  }

  // Loads the row of a turn ahead of it.
  std::string fetch_text(const std::string& turn) const {
    if (next_loads_.empty()) return "";
    std::string text;
    line(text, 1, "{");
    row_number(text, turn);
    find_row(text);
    text += next_loads_;
    line(text, 1, "}");
    return text;
  }

  std::string conversion_text() {
    const std::vector<int> indices = own_indices(ports_[0].tensor);
    std::string text;
    line(text, 2, concat("F moved[", width(config_.vector), "];"));
    line(text, 2, concat(elements_type(0, indices, config_.vector), " x0;"));
    line(text, 2, concat("x0.load(p0, I(", sum_of(steps_of(indices, ports_[0].strides)), "));"));
    line(text, 2, "MR_UNROLL");
    line(text, 2, concat("for (int l = 0; l < ", width(config_.vector), "; ++l) moved[l] = x0.get<F>(l);"));
    line(text, 2, store_call(1, indices, config_.vector, "moved"));
    return text;
  }

  // A conversion through tiles: read along what is contiguous on one side, written along what is on the other. Half a
  // warp takes neighbours of the tile's row, the other half those a chunk below: whole sectors are written.
  std::string tiles_text() {
    const int across = config_.block;
    const int down = config_.vector;
    const std::vector<int> indices = own_indices(ports_[0].tensor);
    std::vector<int> others;
    for (const int index : config_.loops) {
      if (index != across && index != down) others.push_back(index);
    }
    const int64_t wide = (extent(across) + kTile - 1) / kTile;
    const int64_t high = (extent(down) + kTile - 1) / kTile;
    blocks_ = points(others) * wide * high;
    const std::string type = concat("mr::Tile<", type_of(ports_[0]), ">");
    line(shared_, 1, concat("MR_SHARED ", type, " tile;"));
    std::string text;
    line(text, 1, "const I block = I(mr::block_number());");
    line(text, 1, concat("const I left = block % ", wide, " * ", kTile, ";"));
    line(text, 1, concat("const I top = block / ", wide, " % ", high, " * ", kTile, ";"));
    decode(text, 1, others, concat("(block / ", wide * high, ")"), kNoIndex, 1);
    const auto each = [&](int vector, const std::string& x, const std::string& y, const std::string& body) {
      line(text, 1, "MR_UNROLL");
      line(text, 1,
           concat("for (int k = thread; k < ", kTile * kTile / width(vector), "; k += ", shape_.threads, ") {"));
      line(text, 2, concat("const int x = ", x, ";"));
      line(text, 2, concat("const int y = ", y, ";"));
      line(text, 2, concat("const I ", index_name(across), " = left + x;"));
      line(text, 2, concat("const I ", index_name(down), " = top + y;"));
      line(text, 2,
           concat("if (", index_name(across), " < ", extent(across), " && ", index_name(down), " < ", extent(down),
                  ") {"));
      text += indented(body, 3);
      line(text, 2, "}");
      line(text, 1, "}");
    };
    const auto elements = [&](int port, int vector) {
      return concat(elements_type(port, indices, vector), " piece;\n");
    };
    const auto place = [&](int port) { return concat("I(", sum_of(steps_of(indices, ports_[at(port)].strides)), ")"); };
    const int64_t chunks = kTile / width(across);
    each(across, concat("k % ", chunks, " * ", width(across)), concat("k / ", chunks),
         concat(elements(0, across), "piece.load(p0, ", place(0), ");\npiece.store(tile.elements, y * ", type,
                "::kRow + x);"));
    line(text, 1, "mr::barrier();");
    each(down, "k % 16 + k / 32 % 4 * 16", concat("(k / 16 % 2 + k / 128 * 2) * ", width(down)),
         concat(elements(1, down), "MR_UNROLL\nfor (int l = 0; l < ", width(down),
                "; ++l) piece.data.elements[l] = tile.elements[(y + l) * ", type, "::kRow + x];\npiece.store(p1, ",
                place(1), ");"));
    return text;
  }

  // --- A segment ---

  // The text of one while it is written. Row numbers stand between the loops; points in them.
  struct Writing {
    const Segment* segment = nullptr;
    std::string loads;     // at a piece, before anything is computed
    std::string early;     // those at the row's beginning
    std::string ahead;     // those of the next row
    std::string before;    // arrays and masks of a piece
    std::string lanes;     // for each l
    std::string after;     // stores
    std::string behind;    // behind the loop: reductions
    std::string gathered;  // what they still need behind one barrier for all of them
    std::string declared;  // in front of it
    std::map<std::string, std::string> loaded;
  };

  // A row's number is one, or one for each of the rows that a thread has.
  std::string row_reference(const std::string& name) const { return lanes_ ? name + "[l]" : name; }

  std::string segment_text(const Segment& segment) {
    Writing writing;
    writing.segment = &segment;
    for (const PlacedStep& placed : segment.steps) emit(placed, writing);
    return segment.loop ? loop_text(segment, writing) : once_text(writing);
  }

  static std::string indented(const std::string& text, int more) {
    std::string made;
    for (const std::string& content : split(text, '\n')) {
      if (!content.empty()) line(made, more, content);
    }
    return made;
  }

  std::string lanes_loop(const std::string& body, int64_t wide, int depth) const {
    if (body.empty()) return "";
    std::string text;
    line(text, depth, "MR_UNROLL");
    line(text, depth, concat("for (int l = 0; l < ", wide, "; ++l) {"));
    text += indented(body, depth + 1);
    line(text, depth, "}");
    return text;
  }

  std::string loop_text(const Segment& segment, const Writing& writing) {
    std::string text = indented(writing.declared, 2);
    const int64_t wide = width_of(segment);
    if (simple_) {
      text += indented(writing.loads + writing.before, 2) + lanes_loop(writing.lanes, wide, 2);
      return text + indented(writing.after, 2);
    }
    if (!writing.ahead.empty()) next_loads_ += pieces_loop(segment, indented(writing.ahead, 4));
    if (!writing.early.empty()) row_loads_ += pieces_loop(segment, indented(writing.early, 4));
    const bool split_loads = unrolled(segment) && pieces_of(segment) > 1 && !writing.loads.empty();
    if (split_loads) text += pieces_loop(segment, indented(writing.loads, 4));
    std::string body = split_loads ? "" : indented(writing.loads, 4);
    body += indented(writing.before, 4) + lanes_loop(writing.lanes, wide, 4) + indented(writing.after, 4);
    text += pieces_loop(segment, body) + indented(writing.behind, 2);
    if (!writing.gathered.empty()) line(text, 2, concat("mr::group_barrier<", shape_.group, ", ", groups_, ">();"));
    return text + indented(writing.gathered, 2);
  }

  // A thread's points of a segment.
  std::string pieces_loop(const Segment& segment, const std::string& body) const {
    std::string text;
    const int64_t count = points(segment.indices);
    const int64_t wide = lanes_ ? 1 : width_of(segment);
    const int64_t pieces = pieces_of(segment);
    line(text, 2, unrolled(segment) ? "MR_UNROLL" : "MR_NO_UNROLL");
    line(text, 2, concat("for (int p = 0; p < ", pieces, "; ++p) {"));
    line(text, 3, concat("const I q = I(p * ", shape_.group, " + lane) * ", wide, ";"));
    line(text, 3, pieces * shape_.group * wide == count ? "{" : concat("if (q < ", count, ") {"));
    decode(text, 4, segment.indices, concat("(q / ", wide, ")"), lanes_ ? kNoIndex : vector_of(segment), wide);
    text += body;
    line(text, 3, "}");
    line(text, 2, "}");
    return text;
  }

  std::string once_text(const Writing& writing) {
    std::string text = indented(writing.declared + writing.loads + writing.before, 2);
    text += lanes_ ? lanes_loop(writing.lanes, width(config_.vector), 2) : indented(writing.lanes, 2);
    return text + indented(writing.after, 2);
  }

  // --- Steps ---

  // Whether it is one number a row, and not one of each point.
  bool at_row(const Segment& segment) const { return !segment.loop; }

  void emit(const PlacedStep& placed, Writing& writing) {
    const Segment& segment = *writing.segment;
    const std::string expression = expanded(placed, writing);
    if (placed.across) {
      const std::string to = concat(partial_of(placed).name, "[p][l]");
      const std::string added = concat(operation(placed.step.kind), "::of(", to, ", F(", expression, "))");
      line(writing.lanes, 0, concat(to, " = ", guarded_ ? concat("active ? ", added, " : ", to) : added, ";"));
      return;
    }
    const StepValue value = value_of(placed);
    const std::string name = value_name(value);
    if (reduces_really(placed)) return emit_reduction(placed, name, expression, writing);
    if (at_row(segment)) {
      line(writing.declared, 0,
           lanes_ ? concat("F ", name, "[", width(config_.vector), "];") : concat("F ", name, ";"));
      line(writing.lanes, 0, concat(row_reference(name), " = ", expression, ";"));
    } else {
      const bool carried = schedule_.carried.contains(value);
      line(carried ? kept_ : writing.before, carried ? 2 : 0,
           concat("F ", name, carried ? concat("[", pieces_of(segment), "]") : "", "[", width_of(segment), "];"));
      line(writing.lanes, 0, concat(name, carried ? "[p]" : "", "[l] = ", expression, ";"));
    }
    if (value.kind == StepValue::Kind::output) emit_store(placed, name, writing);
  }

  void emit_reduction(const PlacedStep& placed, const std::string& name, const std::string& expression,
                      Writing& writing) {
    const std::string with = operation(placed.step.kind);
    if (lanes_) {
      const int64_t wide = width(config_.vector);
      line(writing.declared, 0, concat("F ", name, "[", wide, "];"));
      line(writing.declared, 0, "MR_UNROLL");
      line(writing.declared, 0,
           concat("for (int l = 0; l < ", wide, "; ++l) ", name, "[l] = ", identity(placed.step.kind), ";"));
      line(writing.lanes, 0, concat(name, "[l] = ", with, "::of(", name, "[l], F(", expression, "));"));
      const std::string slots = shared_slots(apart() > 1 ? apart() * columns_ * wide : 0);
      line(writing.behind, 0,
           concat("mr::all_reduce_apart<", with, ", ", shape_.group, ", ", columns_, ">(", name, ", ", slots, ");"));
      return;
    }
    line(writing.declared, 0, concat("F ", name, " = ", identity(placed.step.kind), ";"));
    line(writing.lanes, 0, concat(name, " = ", with, "::of(", name, ", F(", expression, "));"));
    const std::string group = concat("<", with, ", ", shape_.group, ">(");
    line(writing.behind, 0, concat(name, " = mr::reduce_warp", group, name, ");"));
    if (shape_.group <= kWarp) return;
    const std::string slots = shared_slots(shape_.threads / kWarp);
    line(writing.behind, 0, concat("mr::put_warp(", name, ", ", slots, ");"));
    line(writing.gathered, 0, concat(name, " = mr::gather_warps", group, slots, ");"));
  }

  // Parts of a sum over rows in lanes that no shuffle reaches: the prelude's kPartitionsApart.
  int64_t apart() const { return columns_ < 32 ? shape_.group * columns_ / 32 : shape_.group; }

  // Shared memory of one reduction, two of them taking turns: a thread that is ahead writes where no other still reads.
  std::string shared_slots(int64_t count) {
    if (count == 0) return "static_cast<F*>(nullptr)";
    const std::string name = concat("s", shared_count_++);
    const int64_t turns = partials_.empty() ? 1 : 2;
    line(shared_, 1, concat("MR_SHARED F ", name, "[", turns, "][", count, "];"));
    return concat(name, "[turn % ", turns, "]");
  }

  void emit_store(const PlacedStep& placed, const std::string& name, Writing& writing) {
    const Segment& segment = *writing.segment;
    const Access& access = op(placed.member).outputs[at(placed.step.target)];
    const int port = port_of(access.tensor, true);
    if (port < 0) return;
    const Port& to = ports_[at(port)];
    if (to.layout.storage == MaskStorage::regenerated) return;
    const std::vector<int> indices = indices_along(placed.member, access);
    std::string condition;
    if (at_row(segment)) condition = simple_ ? concat(first_of_row()) : "lane == 0";
    if (guarded_) condition += condition.empty() ? "active" : " && active";
    const std::string guard = condition.empty() ? "" : concat("if (", condition, ") ");
    const bool carried = schedule_.carried.contains(value_of(placed)) && !at_row(segment);
    if (to.layout.storage == MaskStorage::bits) {
      const TensorId mask = to.tensor;
      const int64_t run = graph_.extent(graph_.tensor(mask).dims.back());
      const std::string element = concat("U(", element_of(mask, indices), ")");
      const std::string byte =
          run % 8 == 0 ? concat(element, " / 8")
                       : concat(element, " / ", run, " * ", (run + 7) / 8, " + ", element, " % ", run, " / 8");
      const bool drawn = op(placed.member).kind == OperatorKind::dropout;
      const std::string bits = drawn ? concat("mr::u8(", masks_.at(placed.member), "_bits)")
                                     : concat("mr::packed(", name, carried ? "[p]" : "", ")");
      line(writing.after, 0, concat(guard, "p", port, "[", byte, "] = ", bits, ";"));
      return;
    }
    if (at_row(segment) && !lanes_) {
      line(writing.after, 0,
           concat(guard, "mr::narrow(", name, ", p", port, "[I(", sum_of(steps_of(indices, to.strides)), ")]);"));
      return;
    }
    line(writing.after, 0, guard + store_call(port, indices, vector_of(segment), name + (carried ? "[p]" : "")));
  }

  // Of the threads that know one number of a row, the one at its beginning.
  std::string first_of_row() const {
    return config_.vector == kNoIndex ? "true" : concat(index_name(config_.vector), " == 0");
  }

  // --- Accesses ---

  // What every address of an access is aligned to, in bytes.
  int64_t alignment_of(int port, const std::vector<int>& indices, int vector) const {
    const Port& of = ports_[at(port)];
    const int64_t size = bytes_of(graph_.tensor(of.tensor).dtype);
    int64_t aligned = std::gcd(kWide, stored_bytes(graph_, of.tensor, of.layout));
    for (const auto& [index, step] : steps_of(indices, of.strides)) {
      if (extent(index) > 1) aligned = std::gcd(aligned, size * step * (index == vector ? width(vector) : 1));
    }
    return aligned;
  }

  std::string shape_of(int port, const std::vector<int>& indices, int vector) const {
    return concat(width(vector), ", ", step_along(vector, indices, ports_[at(port)].strides), ", ",
                  alignment_of(port, indices, vector));
  }

  std::string elements_type(int port, const std::vector<int>& indices, int vector) const {
    return concat("mr::Elements<", type_of(ports_[at(port)]), ", ", shape_of(port, indices, vector), ">");
  }

  std::string store_call(int port, const std::vector<int>& indices, int vector, const std::string& values) const {
    return concat("mr::store<", shape_of(port, indices, vector), ">(p", port, ", I(",
                  sum_of(steps_of(indices, ports_[at(port)].strides)), "), ", values, ");");
  }

  // --- Operands ---

  std::string expanded(const PlacedStep& placed, Writing& writing) {
    std::string text = placed.step.expression;
    std::map<std::string, std::string> names;
    for (const auto& [token, number] : operands_in(text)) {
      const std::string key = concat(token, number);
      if (names.contains(key)) continue;
      const auto kind = token == '%' ? StepValue::Kind::row : StepValue::Kind::temporary;
      names[key] = token == '$' ? input_name(placed.member, number, writing)
                                : own_value({kind, placed.member, number}, *writing.segment);
    }
    for (const auto& [key, name] : names) text = replaced(text, key, name);
    if (brief_) text = replaced(text, "mr::exp(", "mr::brief_exp(");
    if (text.find('#') != std::string::npos) text = replaced(text, "#", concat(reduced_points(placed.member)));
    if (text.find("VALUE") != std::string::npos)
      text = replaced(text, "VALUE", concat("c", number_value({TensorId(), op(placed.member).value})));
    if (text.find("MASK") != std::string::npos) text = replaced(text, "MASK", drawn_mask(placed.member, writing));
    if (text.find("CONDITION") != std::string::npos) {
      const auto place = [&](size_t own) { return place_of(*writing.segment, placed.member, own); };
      text = replaced(text, "CONDITION", concat("(", condition(placed.member, place), ")"));
    }
    return text;
  }

  std::string own_value(const StepValue& value, const Segment& segment) const {
    const std::string name = value_name(value);
    if (schedule_.once_a_row.contains(value)) return row_reference(name);
    if (at_row(segment)) return row_reference(name);
    return concat(name, schedule_.carried.contains(value) ? "[p]" : "", "[l]");
  }

  std::string input_name(int member, int number, Writing& writing) {
    const Access& access = op(member).inputs[at(number)];
    const Tensor& tensor = graph_.tensor(access.tensor);
    if (tensor.role == TensorRole::constant || tensor.role == TensorRole::scalar) {
      const bool known = tensor.role == TensorRole::constant;
      return concat("c", number_value({known ? TensorId() : access.tensor, known ? tensor.value : 0}));
    }
    if (const std::optional<StepValue> made = made_inside(access.tensor)) return own_value(*made, *writing.segment);
    return loaded_name(port_of(access.tensor, false), indices_along(member, access), writing);
  }

  // A tensor's elements, loaded once for all steps of a segment; and for later ones over the same points.
  std::string loaded_name(int port, const std::vector<int>& indices, Writing& writing) {
    const Segment& segment = *writing.segment;
    const Port& from = ports_[at(port)];
    const std::string key = concat("p", port, ":", join(indices, ","));
    std::string& reference = writing.loaded[key];
    if (!reference.empty()) return reference;
    if (from.layout.storage != MaskStorage::words)
      return reference = stored_mask(port, indices, writing) + lane_suffix(segment);
    const std::string from_where = concat("(p", port, ", I(", sum_of(steps_of(indices, from.strides)), "));");
    const std::string loaded = place_load(key, elements_type(port, indices, vector_of(segment)), from_where, writing);
    return reference = concat(loaded, ".get<F>(", segment.loop || lanes_ ? "l" : "0", ")");
  }

  // A load at the place where it is wanted; or where a row is kept, at the row's beginning, or with the row before. A
  // load behind a reduction would be waited for once more. `type`: what it is loaded into.
  std::string place_load(const std::string& key, const std::string& type, const std::string& from, Writing& writing) {
    const Segment& segment = *writing.segment;
    const bool by_pieces = segment.loop && unrolled(segment);
    if (!by_pieces) {
      const std::string name = concat("x", loads_++);
      line(writing.loads, 0, concat(type, " ", name, ";"));
      line(writing.loads, 0, concat(name, ".load", from));
      return name;
    }
    std::string& known = kept_loads_[concat(key, " over ", join(segment.indices, ","))];
    if (!known.empty()) return known;
    const std::string name = concat("x", loads_++);
    const std::string pieces = concat("[", pieces_of(segment), "];");
    line(kept_, 2, concat(type, " ", name, rows_at_once_ > 1 ? concat("[", rows_at_once_, "]") : "", pieces));
    const std::string here = concat(name, rows_at_once_ > 1 ? "[r]" : "", "[p]");
    if (next_row_ahead_) {
      line(next_declared_, 1, concat(type, " next_", name, pieces));
      line(kept_, 2, "MR_UNROLL");
      line(kept_, 2, concat("for (int p = 0; p < ", pieces_of(segment), "; ++p) ", name, "[p] = next_", name, "[p];"));
      line(writing.ahead, 0, concat("next_", name, "[p].load", from));
    } else {
      const bool few = !simple_ && pieces_of(segment) * width_of(segment) <= kMostEarly;
      line(few ? writing.early : writing.loads, 0, concat(here, ".load", from));
    }
    return known = here;
  }

  std::string lane_suffix(const Segment& segment) const { return segment.loop || lanes_ ? "[l]" : "[0]"; }

  // --- Masks ---

  std::string dropout_name(const Operator& dropout) {
    const std::string name = concat("d", made_.subsequences.size());
    const double rounded = std::min(std::floor(dropout.value * 65536 + 0.5), 65535.0);
    const size_t threshold = number_value({TensorId(), rounded * 65536});
    const size_t scale = number_value({TensorId(), 1.0 / (1.0 - dropout.value)});
    line(dropouts_, 1,
         concat("const mr::Dropout ", name, "(args.state, args.subsequences[", made_.subsequences.size(),
                "], args.values[", threshold, "], args.values[", scale, "]);"));
    made_.subsequences.push_back(dropout.subsequence);
    return name;
  }

  // A mask's element number at a point.
  std::string element_of(TensorId mask, const std::vector<int>& indices) const {
    return sum_of(steps_of(indices, strides_of(graph_, mask, written_layout(graph_, mask))));
  }

  // Whether the vector runs along a mask's neighbours, and the first of every W begins a block of them.
  bool in_blocks(TensorId mask, const std::vector<int>& indices, int vector, int64_t block) const {
    const std::map<int, int64_t> steps = steps_of(indices, strides_of(graph_, mask, written_layout(graph_, mask)));
    if (!steps.contains(vector)) return false;
    return std::all_of(steps.begin(), steps.end(), [&](const auto& of) {
      const auto [index, step] = of;
      return index == vector ? step == 1 && width(vector) <= 8 : step % block == 0 || extent(index) == 1;
    });
  }

  std::string draw_text(const std::string& name, TensorId mask, const std::vector<int>& indices, int vector,
                        const std::string& dropout) const {
    const std::map<int, int64_t> steps = steps_of(indices, strides_of(graph_, mask, written_layout(graph_, mask)));
    const bool whole = (width(vector) == 4 || width(vector) == 8) && in_blocks(mask, indices, vector, width(vector));
    const auto along = steps.find(vector);
    const int64_t step = along == steps.end() ? 0 : along->second;
    return concat("mr::draw<", width(vector), ", ", step, ", ", whole ? "true" : "false", ">(", name, ", mr::u64(",
                  sum_of(steps), "), ", dropout, ");");
  }

  std::string drawn_mask(int member, Writing& writing) {
    const Segment& segment = *writing.segment;
    const TensorId mask = op(member).outputs[1].tensor;
    const std::vector<int> indices = indices_along(member, op(member).outputs[1]);
    std::string& name = masks_[member];
    if (name.empty()) {
      name = concat("m", masks_count_++);
      const int vector = vector_of(segment);
      line(writing.before, 0, concat("F ", name, "[", width(vector), "];"));
      line(
          writing.before, 0,
          concat("const mr::u32 ", name, "_bits = ", draw_text(name, mask, indices, vector, dropout_name(op(member)))));
    }
    return name + lane_suffix(segment);
  }

  std::string stored_mask(int port, const std::vector<int>& indices, Writing& writing) {
    const Segment& segment = *writing.segment;
    const TensorId mask = ports_[at(port)].tensor;
    const Operator* const of = dropout_of(graph_, mask);
    const std::string dropout = of == nullptr ? "" : dropout_name(*of);
    const std::string name = concat("m", masks_count_++);
    const int vector = vector_of(segment);
    line(writing.before, 0, concat("F ", name, "[", width(vector), "];"));
    if (ports_[at(port)].layout.storage == MaskStorage::regenerated) {
      line(writing.before, 0, draw_text(name, mask, indices, vector, dropout));
    } else {
      const int64_t run = graph_.extent(graph_.tensor(mask).dims.back());
      const int64_t step = step_along(vector, indices, strides_of(graph_, mask, written_layout(graph_, mask)));
      const bool whole = run % 8 == 0 && in_blocks(mask, indices, vector, width(vector));
      const std::string type =
          concat("mr::MaskBits<", width(vector), ", ", step, ", ", run, ", ", whole ? "true" : "false", ">");
      const std::string from = concat("(p", port, ", mr::u64(", element_of(mask, indices), "));");
      const std::string bits = place_load(concat("p", port, ":", join(indices, ",")), type, from, writing);
      line(writing.before, 0, concat(bits, ".unpack(", name, dropout.empty() ? "" : ", ", dropout, ");"));
    }
    return name;
  }

  // --- Conditions on a point's place ---

  std::string place_of(const Segment& segment, int member, size_t own_index) const {
    const int index = partition_.index_of[at(member)][own_index];
    if (index == kNoIndex) return "I(0)";
    const bool moves = index == vector_of(segment) && (segment.loop || lanes_);
    return moves ? concat("(", index_name(index), " + l)") : index_name(index);
  }

  // --- The second stage of reductions across rows ---

  // Groups of a block whose parts of a result lie side by side in shared memory.
  int64_t side_by_side(const Partial& partial) const {
    int64_t rows = groups_;
    while (rows > 1 && rows * points(partial.inner) * real_bytes() > kMostShared) rows /= 2;
    return rows;
  }

  // Partials that a block adds up between the same two barriers: as many as there is shared memory for.
  size_t flushed_together(size_t from) const {
    int64_t bytes = 0;
    size_t end = from;
    for (; end < partials_.size(); ++end) {
      bytes += side_by_side(partials_[end]) * points(partials_[end].inner) * real_bytes();
      if (end > from && (bytes > kMostShared || side_by_side(partials_[end]) < groups_)) break;
      if (side_by_side(partials_[end]) < groups_) return end + 1;
    }
    return end;
  }

  std::string each_piece(const Partial& partial, int depth, const std::string& body) const {
    std::string text;
    line(text, depth, "MR_UNROLL");
    line(text, depth, concat("for (int p = 0; p < ", partial.pieces, "; ++p) {"));
    line(text, depth + 1, concat("const I q = I(p * ", shape_.group, " + lane) * ", partial.width, ";"));
    line(text, depth + 1, concat("if (q < ", points(partial.inner), ") ", body));
    line(text, depth, "}");
    return text;
  }

  std::string slot_text(const Partial& partial, const std::string& slot) const {
    return concat("F* const to = reinterpret_cast<F*>(args.scratch + ", partial.bytes_offset, ") + (", slot, " * ",
                  fixed_points_, " + fixed) * ", points(partial.inner), ";");
  }

  // What a block's groups have of each result, to scratch: added up before, in their order, where there is room.
  std::string flush_text() {
    std::string text;
    if (combined_ && groups_ > 1) return combined_flush_text();
    for (const Partial& partial : partials_) {
      line(text, 1, "{");
      line(text, 2, slot_text(partial, combined_ ? "chunk" : concat("(chunk * ", groups_, " + group)")));
      const int64_t aligned = std::gcd(kWide, std::gcd(points(partial.inner), partial.width) * real_bytes());
      text += each_piece(partial, 2,
                         concat("mr::store<", partial.width, ", 1, ", aligned, ">(to, q, ", partial.name, "[p]);"));
      line(text, 1, "}");
    }
    return text;
  }

  std::string combined_flush_text() {
    std::string text;
    int64_t most = 0;
    for (size_t from = 0; from < partials_.size();) {
      const size_t end = flushed_together(from);
      if (from > 0) line(text, 1, "mr::barrier();");
      std::string sums;
      int64_t place = 0;
      for (; from < end; ++from) {
        text += combine_text(partials_[from], place);
        sums += combined_sum_text(partials_[from], place);
        place += side_by_side(partials_[from]) * points(partials_[from].inner);
      }
      line(text, 1, "mr::barrier();");
      text += sums;
      most = std::max(most, place);
    }
    if (most > 0) line(shared_, 1, concat("MR_SHARED mr::Aligned<F, ", most, "> combined;"));
    return text;
  }

  // Every group's partition to its place. With less room than groups, later ones add theirs to those of earlier ones.
  std::string combine_text(const Partial& partial, int64_t place) const {
    const int64_t rows = side_by_side(partial);
    const int64_t count = points(partial.inner);
    std::string text;
    for (int64_t first = 0; first < groups_; first += rows) {
      if (first > 0) line(text, 1, "mr::barrier();");
      const std::string to = concat("combined.elements[", place, " + (group - ", first, ") * ", count, " + q + l]");
      const std::string own = concat(partial.name, "[p][l]");
      const std::string sum = first == 0 ? own : concat(operation(partial.kind), "::of(", to, ", ", own, ")");
      line(text, 1, concat("if (group >= ", first, " && group < ", first + rows, ") {"));
      text += each_piece(partial, 2,
                         concat("{\n      MR_UNROLL\n      for (int l = 0; l < ", partial.width, "; ++l) ", to, " = ",
                                sum, ";\n    }"));
      line(text, 1, "}");
    }
    return text;
  }

  std::string combined_sum_text(const Partial& partial, int64_t place) const {
    const int64_t rows = side_by_side(partial);
    const int64_t count = points(partial.inner);
    std::string text;
    line(text, 1, "{");
    line(text, 2, slot_text(partial, "chunk"));
    line(text, 2, "MR_UNROLL");
    line(text, 2, concat("for (int k = 0; k < ", (count + shape_.threads - 1) / shape_.threads, "; ++k) {"));
    line(text, 3, concat("const int q = k * ", shape_.threads, " + thread;"));
    line(text, 3, concat("if (q < ", count, ") {"));
    line(text, 4, concat("F total = combined.elements[", place, " + q];"));
    line(text, 4, "MR_UNROLL_SOME");
    line(text, 4,
         concat("for (int row = 1; row < ", rows, "; ++row) total = ", operation(partial.kind),
                "::of(total, combined.elements[", place, " + row * ", count, " + q]);"));
    line(text, 4, "to[q] = total;");
    line(text, 3, "}");
    line(text, 2, "}");
    line(text, 1, "}");
    return text;
  }

  // The second stage waits for memory, not for arithmetic: few columns a block, so that there are many blocks, and many
  // slices of a column's partitions, whose loads do not wait for each other. At least a sector of neighbours.
  int64_t finish_columns() const {
    int64_t elements = 0;
    for (const Partial& partial : partials_) elements += points(kept_by(partial.member));
    return elements <= kFewElements ? kSector / real_bytes() : kWarp;
  }

  std::string finish_text() {
    const int64_t columns = finish_columns();
    std::string text = head("MILLRACE_KERNEL_finish", kFinishThreads, "");
    line(text, 1, concat("MR_SHARED F sums[", kFinishThreads / kWarp * columns, "];"));
    line(text, 1, concat("const int column = thread % ", columns, ";"));
    line(text, 1, concat("const int slice = thread / ", columns, ";"));
    line(text, 1, "const int block = mr::block_number();");
    int64_t blocks = 0;
    for (const Partial& partial : partials_) {
      const int64_t count = points(kept_by(partial.member));
      const int64_t own = (count + columns - 1) / columns;
      line(text, 1, concat("if (block >= ", blocks, " && block < ", blocks + own, ") {"));
      text += finish_one(partial, blocks, count, columns);
      line(text, 1, "}");
      blocks += own;
    }
    line(text, 0, "}");
    made_.grids.push_back({"MILLRACE_KERNEL_finish", blocks, kFinishThreads});
    return text;
  }

  std::string finish_one(const Partial& partial, int64_t first_block, int64_t count, int64_t columns) const {
    const std::vector<int> kept = kept_by(partial.member);
    std::string text;
    line(text, 2, concat("const I element = I(block - ", first_block, ") * ", columns, " + column;"));
    line(text, 2, concat("const bool there = element < ", count, ";"));
    line(text, 2, "const I at = there ? element : 0;");
    decode(text, 2, kept, "at", kNoIndex, 1);
    line(text, 2, concat("F total = ", identity(partial.kind), ";"));
    text += finish_sum(partial, kept, columns);
    const std::string with = operation(partial.kind);
    line(text, 2, concat("total = mr::reduce_slices<", with, ", ", kFinishThreads, ", ", columns, ">(total, sums);"));
    line(text, 2, "if (slice == 0 && there) {");
    const Access& access = op(partial.member).outputs[at(partial.number)];
    const int port = port_of(access.tensor, true);
    const std::vector<int> indices = indices_along(partial.member, access);
    if (port >= 0)
      line(text, 3,
           concat("mr::narrow(total, p", port, "[I(", sum_of(steps_of(indices, ports_[at(port)].strides)), ")]);"));
    line(text, 2, "}");
    return text;
  }

  // A slice's parts of a column: a number of them is loaded, then added in their order.
  std::string finish_sum(const Partial& partial, const std::vector<int>& kept, int64_t columns) const {
    std::vector<int> reduced;
    for (const std::vector<int>* indices : {&fixed_, &partial.inner}) {
      for (const int index : *indices) {
        if (std::find(kept.begin(), kept.end(), index) == kept.end()) reduced.push_back(index);
      }
    }
    const int64_t terms = slots() * points(reduced);
    const int64_t slices = kFinishThreads / columns;
    const int64_t each = (terms + slices - 1) / slices;
    const int64_t batch = std::min<int64_t>(each, kFinishAtOnce);
    std::string text;
    line(text, 2, "MR_NO_UNROLL");
    line(text, 2, concat("for (int first = slice; first < ", terms, "; first += ", batch * slices, ") {"));
    line(text, 3, concat("F partition[", batch, "];"));
    line(text, 3, "MR_UNROLL");
    line(text, 3, concat("for (int k = 0; k < ", batch, "; ++k) {"));
    line(text, 4, concat("const int term = first + k * ", slices, ";"));
    line(text, 4, concat("const I slot = term % ", slots(), ";"));
    line(text, 4, concat("const I inside = term / ", slots(), ";"));
    if (reduced.empty()) line(text, 4, "static_cast<void>(inside);");
    decode(text, 4, reduced, "inside", kNoIndex, 1);
    line(text, 4, concat("partition[k] = ", identity(partial.kind), ";"));
    line(text, 4,
         concat("if (term < ", terms, ") partition[k] = reinterpret_cast<const F*>(args.scratch + ",
                partial.bytes_offset, ")[(slot * ", fixed_points_, " + ", place_in(fixed_, 1), ") * ",
                points(partial.inner), " + ", place_in(partial.inner, 1), "];"));
    line(text, 3, "}");
    line(text, 3, "MR_UNROLL");
    line(text, 3,
         concat("for (int k = 0; k < ", batch, "; ++k) total = ", operation(partial.kind),
                "::of(total, partition[k]);"));
    line(text, 2, "}");
    return text;
  }

  const GpuShape shape_;
  bool simple_ = false;
  bool guarded_ = false;
  bool reduces_inside_ = false;  // rows, each on its own
  bool next_row_ahead_ = false;
  bool brief_ = false;  // only float16 is written
  bool combined_ = true;
  int64_t columns_ = 1;
  int64_t groups_ = 1;
  int64_t rows_at_once_ = 1;  // that a group has loaded
  int64_t chunks_ = 1;
  int64_t blocks_ = 1;
  int64_t fixed_points_ = 1;
  int64_t scratch_bytes_ = 0;
  std::vector<int> fixed_;   // outer indices at which a block stays
  std::vector<int> walked_;  // those of the rows that its groups take
  std::string integer_ = "int";
  std::string dropouts_;
  std::string shared_;
  std::string kept_;           // arrays that live as long as a row
  std::string next_declared_;  // of the next row, while this one is worked on
  std::string next_loads_;
  std::string row_loads_;
  std::map<std::string, std::string> kept_loads_;
  std::vector<Partial> partials_;
  std::map<int, std::string> masks_;  // by the dropout's member
  int loads_ = 0;
  int masks_count_ = 0;
  int shared_count_ = 0;
};

}  // namespace

KernelText generate_cuda_kernel(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                                const KernelConfig& config) {
  return CudaGenerator(graph, partition, layouts, config).run();
}

}  // namespace millrace
