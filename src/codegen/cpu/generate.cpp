#include "codegen/cpu/generate.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "codegen/nest.h"

namespace millrace {
namespace {

constexpr int64_t kBlock = 16;  // of an index that is taken in blocks: a cache line of float
constexpr int64_t kAlignment = 64;
constexpr int64_t kVectorBytes = 64;  // as the prelude says

class Generator : Nest {
 public:
  explicit Generator(const NestInput& input) : Nest(input) { lanes_count_ = kVectorBytes / real_bytes(); }

  KernelText run() {
    find_carried_buffers();
    find_partials();
    const std::string row = row_text();
    std::string text;
    line(text, 0,
         "extern \"C\" __attribute__((visibility(\"default\"))) void MILLRACE_KERNEL(const mr::Arguments* args) {");
    line(text, 1, concat("using F = ", real, ";"));
    line(text, 1, "using V = mr::Vec<F>;");
    line(text, 1, "constexpr long W = mr::kLanes<F>;");
    line(text, 1, concat("using R = ", rows_in_lanes ? "V" : "F", ";"));
    for (size_t k = 0; k < ports.size(); ++k) {
      if (ports[k].layout.storage == MaskStorage::regenerated) continue;
      const std::string type = (ports[k].written ? "" : "const ") + type_of(ports[k]);
      line(text, 1, concat(type, "* __restrict p", k, " = static_cast<", type, "*>(args->tensors[", k, "]);"));
    }
    for (size_t k = 0; k < made_.values.size(); ++k)
      line(text, 1, concat("const F c", k, " = F(args->values[", k, "]);"));
    text += dropouts_;
    line(text, 1, "const auto work = [&](long thread) {");
    text += scratch_text();
    text += loops_text(row);
    line(text, 1, "};");
    if (config.threads > 1) {
      line(text, 0, concat("#pragma omp parallel num_threads(", config.threads, ")"));
      line(text, 1,
           concat("for (long thread = omp_get_thread_num(); thread < ", config.threads,
                  "; thread += omp_get_num_threads()) work(thread);"));
    } else {
      line(text, 1, "work(0);");
    }
    text += combine_text();
    line(text, 0, "}");
    made_.text = std::move(text);
    made_.scratch_bytes = thread_bytes_ * config.threads;
    return std::move(made_);
  }

 private:
  // Σ stride · index, over the indices that `counted` admits.
  template <class Counted>
  static std::string offset(const std::vector<int>& indices, const std::vector<int64_t>& strides, Counted counted) {
    std::map<int, int64_t> counted_strides = index_strides(indices, strides);
    std::erase_if(counted_strides, [&](const auto& stride) { return !counted(stride.first); });
    return sum_of(counted_strides);
  }

  static bool all(int) { return true; }

  // --- Scratch memory: buffers that carry a row between loops, lines of masks, partial results ---

  int64_t reserve(int64_t elements) {
    const int64_t bytes = elements * real_bytes();
    const int64_t offset = thread_bytes_;
    thread_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }

  std::string reserve_named(const std::string& name, int64_t elements) {
    reserved_ += concat("    F* __restrict ", name, " = reinterpret_cast<F*>(scratch + ", reserve(elements), ");\n");
    return name;
  }

  void find_carried_buffers() {
    for (const NestValue& value : schedule.carried) {
      const int64_t row = points(schedule.inner[at(value.member)]);
      buffers_[value] =
          reserve_named(concat("b", buffers_.size()), rows_in_lanes ? row * lanes_count_ : row + lanes_count_);
    }
  }

  // Where a point of a row lies in a buffer.
  std::string buffer_offset(const std::vector<int>& inner) const {
    return offset_in(inner, rows_in_lanes ? lanes_count_ : 1);
  }

  // A reduction across rows: a partial result of each thread, along the indices that it keeps.
  struct Partial {
    int member = 0;
    int number = 0;
    InstructionKind kind = InstructionKind::sum;
    std::vector<int> kept;  // in the order of the loops
    std::string name;
    int64_t bytes_offset = 0;
  };

  void find_partials() {
    for (const Segment& segment : schedule.segments) {
      for (const PlacedInstruction& placed : segment.instructions) {
        if (!placed.across) continue;
        Partial partial{placed.member, placed.instruction.target, placed.instruction.kind, kept_by(placed.member), "",
                        thread_bytes_};
        partial.name = reserve_named(concat("a", partials_.size()), points(partial.kept) + lanes_count_);
        partials_.push_back(std::move(partial));
      }
    }
  }

  const Partial& partial_of(const PlacedInstruction& placed) const {
    return *std::find_if(partials_.begin(), partials_.end(), [&](const Partial& p) {
      return p.member == placed.member && p.number == placed.instruction.target;
    });
  }

  std::string partial_offset(const Partial& partial) const { return offset_in(partial.kept, 1); }

  std::string scratch_text() {
    std::string text;
    if (thread_bytes_ > 0) line(text, 2, concat("char* scratch = args->scratch + thread * ", thread_bytes_, ";"));
    text += reserved_;
    for (const Partial& partial : partials_) {
      line(text, 2,
           concat("for (long k = 0; k < ", points(partial.kept), "; ++k) ", partial.name,
                  "[k] = ", identity(partial.kind), ";"));
    }
    return text;
  }

  // --- Loops ---

  int64_t trips(int index) const {
    if (rows_in_lanes && index == config.vector) return (extent(index) + lanes_count_ - 1) / lanes_count_;
    if (index == config.block) return (extent(index) + kBlock - 1) / kBlock;
    return extent(index);
  }

  std::string loops_text(const std::string& row) const {
    const std::vector<int> outer = outer_loops();
    int64_t rows = 1;
    for (const int index : outer) rows *= trips(index);
    std::string text;
    line(text, 2, concat("const long begin = ", rows, "L * thread / ", config.threads, ";"));
    line(text, 2, concat("const long end = ", rows, "L * (thread + 1) / ", config.threads, ";"));
    line(text, 2, "for (long r = begin; r < end; ++r) {");
    int64_t below = rows;
    for (const int index : outer) {
      below /= trips(index);
      std::string position = concat("r / ", below, " % ", trips(index));
      if (rows_in_lanes && index == config.vector) {
        line(text, 3, concat("const long ", index_name(index), " = ", position, " * W;"));
      } else if (index == config.block) {
        line(text, 3, concat("const long block = ", position, " * ", kBlock, ";"));
      } else {
        line(text, 3, concat("const long ", index_name(index), " = ", position, ";"));
      }
    }
    text += row;
    line(text, 2, "}");
    return text;
  }

  // A row in lanes is the same text for full vectors and for what is left at the end.
  std::string row_text() {
    std::string text;
    if (!rows_in_lanes) {
      line(text, 3, "using L = mr::Lanes<1>;");
      line(text, 3, "using E = F;");
      if (partition.members.empty()) return text + conversion_text();
      for (const Segment& segment : schedule.segments) text += segment_text(segment);
      return text;
    }
    line(text, 3, "const auto row = [&](auto lanes) __attribute__((always_inline)) {");
    line(text, 3, "using L = decltype(lanes);");
    line(text, 3, "using E = V;");
    for (const Segment& segment : schedule.segments) text += segment_text(segment);
    line(text, 3, "};");
    const int64_t rest = extent(config.vector) % lanes_count_;
    const std::string index = index_name(config.vector);
    if (extent(config.vector) >= lanes_count_)
      line(text, 3, concat("if (", index, " + W <= ", extent(config.vector), ") row(mr::Lanes<W>{});"));
    if (rest > 0)
      line(text, 3, concat("if (", index, " + W > ", extent(config.vector), ") row(mr::Lanes<", rest, ">{});"));
    return text;
  }

  std::string conversion_text() {
    Body body;
    const std::vector<int> indices = own_indices(ports[0].tensor);
    line(body.text, 5,
         concat("mr::store<L, ", stride_along(config.vector, indices, ports[1].strides), ">(p1 + ",
                offset(indices, ports[1].strides, all), ", mr::load<E, L, ",
                stride_along(config.vector, indices, ports[0].strides), ">(p0 + ",
                offset(indices, ports[0].strides, all), "));"));
    return vector_loop(body);
  }

  // --- A segment: its body at each point, what comes before and behind a line along the vector, and behind the loop
  // ---

  struct Body {
    std::string text;
    std::string before_line;
    std::string after_line;
    std::map<std::string, std::string> loaded;  // by what is loaded: its name
  };

  std::string segment_text(const Segment& segment) {
    Body body;
    std::string text;
    std::string after;
    for (const PlacedInstruction& placed : segment.instructions) emit(segment, placed, body, text, after);
    if (!segment.loop) return text + body.before_line + body.text;
    if (rows_in_lanes || segment.indices.empty()) {
      for (const int index : segment.indices) line(text, 3, for_each(index));
      line(text, 4, "{");
      text += body.before_line + body.text;
      line(text, 4, "}");
    } else {
      for (size_t k = 0; k + 1 < segment.indices.size(); ++k) line(text, 3, for_each(segment.indices[k]));
      text += vector_loop(body, segment.indices.back());
    }
    return text + after;
  }

  std::string for_each(int index) const {
    const std::string i = index_name(index);
    return concat("for (long ", i, " = 0; ", i, " < ", extent(index), "; ++", i, ")");
  }

  std::string vector_loop(const Body& body) { return vector_loop(body, config.vector); }

  std::string vector_loop(const Body& body, int index) const {
    std::string text;
    line(text, 3, "{");
    text += body.before_line;
    const std::string i = index == kNoIndex ? "unused" : index_name(index);
    std::string parameters = concat("auto lanes, long ", i);
    std::string blocks;
    std::string extra;
    if (config.block != kNoIndex) {
      const std::string w = index_name(config.block);
      parameters += concat(", long ", w);
      blocks = concat("for (long ", w, " = block; ", w, " < block + ", kBlock, " && ", w, " < ", extent(config.block),
                      "; ++", w, ") ");
      extra = ", " + w;
    }
    line(text, 4, concat("const auto body = [&](", parameters, ") __attribute__((always_inline)) {"));
    line(text, 5, "using L = decltype(lanes);");
    line(text, 5, "using E = V;");
    text += body.text;
    line(text, 4, "};");
    const int64_t length = index == kNoIndex ? 1 : extent(index);
    const int64_t rest = length % lanes_count_;
    if (length >= lanes_count_)
      line(text, 4,
           concat("for (long v = 0; v + W <= ", length, "; v += W) ", blocks, "body(mr::Lanes<W>{}, v", extra, ");"));
    if (rest > 0) line(text, 4, concat(blocks, "body(mr::Lanes<", rest, ">{}, ", length - rest, extra, ");"));
    text += body.after_line;
    line(text, 3, "}");
    return text;
  }

  // --- Steps ---

  // `text` is the row's, `after` stands behind the segment's loop.
  void emit(const Segment& segment, const PlacedInstruction& placed, Body& body, std::string& text,
            std::string& after) {
    const int depth = segment.loop ? 5 : 3;
    const std::string expression = expression_of(segment, placed, body);
    const Instruction& instruction = placed.instruction;
    if (placed.across) return emit_across(segment, placed, expression, body);
    const bool in_row = !schedule.reduced[at(placed.member)].empty();
    if (is_reduction(instruction.kind) && in_row) {
      const NestValue value{NestValue::Kind::row, placed.member, instruction.target};
      const std::string name = value_name(value);
      line(text, 3, concat("V ", name, "_v = mr::splat<V>(", identity(instruction.kind), ");"));
      line(body.text, depth,
           concat("mr::accumulate<", operation(instruction.kind), ", L>(", name, "_v, ", expression, ");"));
      line(after, 3,
           rows_in_lanes ? concat("const R ", name, " = ", name, "_v;")
                         : concat("const R ", name, " = mr::combine<", operation(instruction.kind), ", mr::Lanes<W>>(",
                                  name, "_v);"));
      return;
    }
    const bool output = instruction.kind == InstructionKind::map || instruction.kind == InstructionKind::row_map;
    const NestValue value = value_of(placed);
    const std::string name = value_name(value);
    line(body.text, depth, concat("const E ", name, " = ", expression, ";"));
    if (schedule.carried.contains(value)) {
      line(body.text, depth,
           concat("mr::store<L, 1>(", buffers_.at(value), " + ", buffer_offset(schedule.inner[at(placed.member)]), ", ",
                  name, ");"));
    }
    if (output) emit_store(segment, placed, name, body);
  }

  void emit_store(const Segment& segment, const PlacedInstruction& placed, const std::string& name, Body& body) {
    const Access& access = op(placed.member).outputs[at(placed.instruction.target)];
    const int port = port_of(access.tensor, true);
    if (port < 0) return;
    const Port& to = ports[at(port)];
    if (to.layout.storage == MaskStorage::regenerated) return;
    const std::vector<int> indices = indices_along(placed.member, access);
    if (to.layout.storage == MaskStorage::bits) return emit_bits(segment, placed, name, body);
    line(body.text, segment.loop ? 5 : 3,
         concat("mr::store<L, ", stride_of(segment, indices, to.strides), ">(p", port, " + ",
                offset(indices, to.strides, all), ", ", name, ");"));
  }

  // A dropout's mask was drawn before its line; booleans are gathered along it.
  void emit_bits(const Segment& segment, const PlacedInstruction& placed, const std::string& name, Body& body) {
    const Access& access = op(placed.member).outputs[at(placed.instruction.target)];
    const bool drawn = op(placed.member).kind == OperatorKind::dropout;
    std::string buffer;
    if (drawn) {
      buffer = mask_lines_.at(placed.member);
    } else {
      buffer = reserve_named(concat("m", lines_++), line_capacity(segment));
      line(body.text, 5, concat("mr::store<L, 1>(", buffer, " + ", index_name(vector_of(segment)), ", ", name, ");"));
    }
    line(drawn ? body.before_line : body.after_line, 4,
         concat("mr::pack_bits(p", port_of(access.tensor, true), " + ",
                bits_offset(access.tensor, indices_along(placed.member, access)), ", ", buffer, ", ",
                extent(config.vector), ");"));
  }

  // A partial result along the vector is added to vector by vector; one that is not, once a line or once a point.
  void emit_across(const Segment& segment, const PlacedInstruction& placed, const std::string& expression, Body& body) {
    const Partial& partial = partial_of(placed);
    const std::string to = concat(partial.name, " + ", partial_offset(partial));
    const std::string with = operation(placed.instruction.kind);
    const int vector = rows_in_lanes || !segment.loop ? kNoIndex : vector_of(segment);
    const bool along = std::find(partial.kept.begin(), partial.kept.end(), vector) != partial.kept.end();
    const int depth = segment.loop ? 5 : 3;
    if (along) {
      line(body.text, depth, concat("mr::accumulate_at<", with, ", L>(", to, ", ", expression, ");"));
    } else if (segment.loop && !rows_in_lanes && config.block == kNoIndex) {
      const std::string name = concat(partial.name, "_v");
      line(body.before_line, 4, concat("V ", name, " = mr::splat<V>(", identity(placed.instruction.kind), ");"));
      line(body.text, depth, concat("mr::accumulate<", with, ", L>(", name, ", ", expression, ");"));
      line(body.after_line, 4,
           concat("*(", to, ") = ", with, "::of(*(", to, "), mr::combine<", with, ", mr::Lanes<W>>(", name, "));"));
    } else {
      line(body.text, depth,
           concat("*(", to, ") = ", with, "::of(*(", to, "), mr::combine<", with, ", L>(", expression, "));"));
    }
  }

  // The index along which a segment's loop takes vectors.
  int vector_of(const Segment& segment) const { return segment.indices.empty() ? kNoIndex : segment.indices.back(); }

  // --- Operands ---

  std::string expression_of(const Segment& segment, const PlacedInstruction& placed, Body& body) {
    const OperandTexts texts{
        [&](int number) { return input_name(segment, placed.member, number, body); },
        [&](const NestValue& value) { return own_value(segment, value, body); },
        [&] { return drawn_mask(segment, placed.member, body); },
        [&](size_t own_index) { return position_of(segment, placed.member, own_index); },
    };
    return expanded(placed, texts, made_.values);
  }

  std::string own_value(const Segment& segment, const NestValue& value, Body& body) {
    const std::string name = value_name(value);
    if (schedule.once_a_row.contains(value)) return segment.loop ? concat("mr::splat<E>(", name, ")") : name;
    const bool here = std::any_of(segment.instructions.begin(), segment.instructions.end(),
                                  [&](const PlacedInstruction& placed) { return value_of(placed) == value; });
    if (here) return name;
    std::string& loaded = body.loaded[name];
    if (loaded.empty()) {
      loaded = name;
      line(body.text, 5,
           concat("const E ", name, " = mr::load<E, L, 1>(", buffers_.at(value), " + ",
                  buffer_offset(schedule.inner[at(value.member)]), ");"));
    }
    return loaded;
  }

  std::string input_name(const Segment& segment, int member, int number, Body& body) {
    const Access& access = op(member).inputs[at(number)];
    if (const std::optional<KernelValue> number_given = number_in(access.tensor))
      return concat("mr::splat<E>(c", number_value(made_.values, *number_given), ")");
    if (const std::optional<NestValue> made = made_inside(access.tensor)) return own_value(segment, *made, body);
    const std::vector<int> indices = indices_along(member, access);
    const int port = port_of(access.tensor, false);
    const std::string key = concat("p", port, ":", join(indices, ","));
    std::string& loaded = body.loaded[key];
    if (!loaded.empty()) return loaded;
    loaded = concat("x", loads_++);
    const Port& from = ports[at(port)];
    const int depth = segment.loop ? 5 : 3;
    if (from.layout.storage != MaskStorage::words) {
      const std::string mask = stored_mask(segment, port, indices, body);
      line(body.text, depth, concat("const E ", loaded, " = ", mask, ";"));
    } else {
      line(body.text, depth,
           concat("const E ", loaded, " = mr::load<E, L, ", stride_of(segment, indices, from.strides), ">(p", port,
                  " + ", offset(indices, from.strides, all), ");"));
    }
    return loaded;
  }

  // Along the segment's own vector: a row's loops may each have their own.
  int64_t stride_of(const Segment& segment, const std::vector<int>& indices,
                    const std::vector<int64_t>& strides) const {
    return stride_along(rows_in_lanes || !segment.loop ? config.vector : vector_of(segment), indices, strides);
  }

  // --- Masks ---

  std::string dropout_name(const Operator& dropout) {
    const std::string name = concat("d", made_.subsequences.size());
    const size_t probability = number_value(made_.values, {TensorId(), dropout.value});
    dropouts_ += concat("  const mr::Dropout ", name, "(args, args->subsequences[", made_.subsequences.size(),
                        "], args->values[", probability, "]);\n");
    made_.subsequences.push_back(dropout.subsequence);
    return name;
  }

  // A mask's element number, of the first element of a line or of the point.
  std::string element_of(const Segment& segment, TensorId mask, const std::vector<int>& indices) const {
    const std::vector<int64_t> strides = strides_of(graph, mask, written_layout(graph, mask));
    const int skipped = segment.loop && !rows_in_lanes ? vector_of(segment) : kNoIndex;
    return offset(indices, strides, [&](int index) { return index != skipped; });
  }

  int64_t element_stride(const Segment& segment, TensorId mask, const std::vector<int>& indices) const {
    return stride_of(segment, indices, strides_of(graph, mask, written_layout(graph, mask)));
  }

  // How many elements are drawn at once: a line, or the lanes at a point.
  std::string line_length(const Segment& segment) const {
    if (rows_in_lanes) return "L::n";
    return concat(segment.loop && vector_of(segment) != kNoIndex ? extent(vector_of(segment)) : 1);
  }

  int64_t line_capacity(const Segment& segment) const {
    if (rows_in_lanes || !segment.loop || vector_of(segment) == kNoIndex) return lanes_count_;
    return extent(vector_of(segment)) + lanes_count_;
  }

  std::string from_line(const Segment& segment, const std::string& buffer) const {
    if (rows_in_lanes || !segment.loop || vector_of(segment) == kNoIndex)
      return concat("mr::load<E, L, 1>(", buffer, ")");
    return concat("mr::load<E, L, 1>(", buffer, " + ", index_name(vector_of(segment)), ")");
  }

  std::string drawn_mask(const Segment& segment, int member, Body& body) {
    const TensorId mask = op(member).outputs[1].tensor;
    const std::vector<int> indices = indices_along(member, op(member).outputs[1]);
    std::string& buffer = mask_lines_[member];
    if (buffer.empty()) {
      buffer = reserve_named(concat("m", lines_++), line_capacity(segment));
      line(body.before_line, 4,
           concat("mr::draw(", buffer, ", ", element_of(segment, mask, indices), ", ",
                  element_stride(segment, mask, indices), ", ", line_length(segment), ", ", dropout_name(op(member)),
                  ");"));
    }
    return from_line(segment, buffer);
  }

  std::string bits_offset(TensorId mask, const std::vector<int>& indices) const {
    const std::vector<DimId>& dims = graph.tensor(mask).dims;
    const int64_t run = graph.extent(dims.back());
    std::vector<int64_t> strides = strides_of(graph, mask, written_layout(graph, mask));
    for (int64_t& stride : strides) stride = stride / run * ((run + 7) / 8);
    return offset(indices, strides, [&](int index) { return index != config.vector; });
  }

  std::string stored_mask(const Segment& segment, int port, const std::vector<int>& indices, Body& body) {
    const TensorId mask = ports[at(port)].tensor;
    const Operator* dropout = dropout_of(graph, mask);
    const std::string buffer = reserve_named(concat("m", lines_++), line_capacity(segment));
    const std::string name = dropout == nullptr ? "" : dropout_name(*dropout);
    if (ports[at(port)].layout.storage == MaskStorage::bits) {
      line(body.before_line, 4,
           concat("mr::unpack_bits(", buffer, ", p", port, " + ", bits_offset(mask, indices), ", ",
                  line_length(segment), name.empty() ? "" : ", ", name, ");"));
    } else {
      line(body.before_line, 4,
           concat("mr::draw(", buffer, ", ", element_of(segment, mask, indices), ", ",
                  element_stride(segment, mask, indices), ", ", line_length(segment), ", ", name, ");"));
    }
    return from_line(segment, buffer);
  }

  // --- Conditions on a point's place ---

  std::string position_of(const Segment& segment, int member, size_t own_index) const {
    const int index = partition.index_of[at(member)][own_index];
    if (index == kNoIndex) return "mr::position<E>(0)";
    const bool moves = rows_in_lanes ? index == config.vector : segment.loop && index == vector_of(segment);
    return concat("mr::", moves ? "positions" : "position", "<E>(", index_name(index), ")");
  }

  // --- The second stage of reductions across rows ---

  std::string combine_text() const {
    std::string text;
    for (const Partial& partial : partials_) {
      const Access& access = op(partial.member).outputs[at(partial.number)];
      const int port = port_of(access.tensor, true);
      if (port < 0) continue;
      const std::vector<int> indices = indices_along(partial.member, access);
      for (const int index : partial.kept) line(text, 1, for_each(index));
      line(text, 1, "{");
      line(text, 2, concat("F total = ", identity(partial.kind), ";"));
      line(text, 2,
           concat("for (long thread = 0; thread < ", config.threads, "; ++thread) total = ", operation(partial.kind),
                  "::of(total, reinterpret_cast<const F*>(args->scratch + thread * ", thread_bytes_, " + ",
                  partial.bytes_offset, ")[", partial_offset(partial), "]);"));
      line(text, 2,
           concat("mr::store<mr::Lanes<1>, 0>(p", port, " + ", offset(indices, ports[at(port)].strides, all),
                  ", total);"));
      line(text, 1, "}");
    }
    return text;
  }

  static void line(std::string& text, int depth, const std::string& content) {
    text += std::string(static_cast<size_t>(2 * depth), ' ') + content + "\n";
  }

  KernelText made_;
  int64_t lanes_count_ = 8;
  std::string reserved_;
  std::string dropouts_;
  int64_t thread_bytes_ = 0;
  std::map<NestValue, std::string> buffers_;
  std::vector<Partial> partials_;
  std::map<int, std::string> mask_lines_;  // by the dropout's member
  int loads_ = 0;
  int lines_ = 0;
};

}  // namespace

KernelText generate_cpu_kernel(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                               const KernelConfig& config) {
  return Generator({graph, partition, layouts, config}).run();
}

}  // namespace millrace
