#include "codegen/cpu/generate.h"

#include <algorithm>

#include "base/text.h"
#include "codegen/cpu/accesses.h"

namespace millrace {
namespace codegen {
namespace {

constexpr int64_t kBlock = 16;  // extent of a block of an index: a cache line of float
const char* const kAlwaysInline = "__attribute__((always_inline))";

// A reduction across rows: every thread has a partial result for each point of the indices that the reduction keeps.
struct ThreadPartial {
  int member = 0;
  int number = 0;
  InstructionKind kind = InstructionKind::sum;
  std::vector<int> kept;  // in the order of the loops
  std::string name;
  int64_t bytes_offset = 0;  // in the thread's scratch memory
};

class CpuGenerator {
 public:
  explicit CpuGenerator(const NestInput& input)
      : nest_(input), scratch_(nest_.real_bytes()), accesses_(nest_, scratch_, made_) {
    for (const Segment& segment : nest_.schedule.segments) {
      for (const PlacedInstruction& placed : segment.instructions) {
        if (placed.across) add_partial(placed);
      }
    }
  }

  KernelText run() {
    Statements row_body = row();  // determines values, dropouts and scratch memory
    Statements all = {{Call{concat("using F = ", nest_.real)}},
                      {Call{"using V = mr::Vec<F>"}},
                      {Declare{"constexpr long", "W", "mr::kLanes<F>"}},
                      {Call{concat("using R = ", nest_.rows_in_lanes ? "V" : "F")}}};
    for (size_t k = 0; k < nest_.ports.size(); ++k) {
      if (nest_.ports[k].layout.storage == MaskStorage::regenerated) continue;
      const std::string type = (nest_.ports[k].written ? "" : "const ") + nest_.type_of(nest_.ports[k]);
      all.push_back(
          {Declare{type + "* __restrict", concat("p", k), concat("static_cast<", type, "*>(args->tensors[", k, "])")}});
    }
    for (size_t k = 0; k < made_.values.size(); ++k)
      all.push_back({Declare{"const F", concat("c", k), concat("F(args->values[", k, "])")}});
    append(all, accesses_.dropouts());
    all.push_back({Lambda{"work", "long thread", thread_body(std::move(row_body))}});
    append(all, run_threads());
    append(all, combine_threads());
    made_.text = concat(
        "extern \"C\" __attribute__((visibility(\"default\"))) void MILLRACE_KERNEL(const mr::Arguments* args) {\n",
        print_statements(all, 1), "}\n");
    made_.scratch_bytes = scratch_.bytes() * nest_.config.threads;
    return std::move(made_);
  }

 private:
  // --- Loops ---

  Statements run_threads() const {
    const int threads = nest_.config.threads;
    if (threads <= 1) return {{Call{"work(0)"}}};
    const Statement work = {Call{"work(thread)"}};
    return {{Pragma{concat("omp parallel num_threads(", threads, ")")}},
            {Loop{.counter = "thread",
                  .end = concat(threads),
                  .body = {work},
                  .braces = Braces::none,
                  .first = "omp_get_thread_num()",
                  .stride = "omp_get_num_threads()",
                  .type = "long"}}};
  }

  // A thread's share of the rows.
  Statements thread_body(Statements row_body) const {
    Statements statements;
    if (scratch_.bytes() > 0)
      statements.push_back({Declare{"char*", "scratch", concat("args->scratch + thread * ", scratch_.bytes())}});
    append(statements, scratch_.pointers());
    for (const ThreadPartial& partial : partials_) {
      const Assign init{partial.name + "[k]", Nest::identity(partial.kind)};
      statements.push_back(count("k", nest_.points(partial.kept), {init}));
    }
    const int threads = nest_.config.threads;
    int64_t rows = 1;
    for (const int index : nest_.outer_loops()) rows *= trips(index);
    statements.push_back({Declare{"const long", "begin", concat(rows, "L * thread / ", threads)}});
    statements.push_back({Declare{"const long", "end", concat(rows, "L * (thread + 1) / ", threads)}});
    Statements body = row_indices(rows);
    append(body, std::move(row_body));
    statements.push_back(
        {Loop{.counter = "r", .end = "end", .body = std::move(body), .first = "begin", .type = "long"}});
    return statements;
  }

  int64_t trips(int index) const {
    if (nest_.rows_in_lanes && index == nest_.config.vector)
      return (nest_.extent(index) + nest_.lanes - 1) / nest_.lanes;
    if (index == nest_.config.block) return (nest_.extent(index) + kBlock - 1) / kBlock;
    return nest_.extent(index);
  }

  // The outer indices of row r, of this many rows.
  Statements row_indices(int64_t rows) const {
    Statements statements;
    int64_t below = rows;
    for (const int index : nest_.outer_loops()) {
      below /= trips(index);
      const bool lanes = nest_.rows_in_lanes && index == nest_.config.vector;
      const bool blocked = !lanes && index == nest_.config.block;
      std::string position = concat("r / ", below, " % ", trips(index));
      if (lanes) position += " * W";
      if (blocked) position += concat(" * ", kBlock);
      statements.push_back({Declare{"const long", blocked ? "block" : Nest::index_name(index), position}});
    }
    return statements;
  }

  // Rows in lanes: the same body for full vectors and for the remainder.
  Statements row() {
    if (!nest_.rows_in_lanes) {
      Statements statements = {{Call{"using L = mr::Lanes<1>"}}, {Call{"using E = F"}}};
      append(statements, nest_.partition.members.empty() ? conversion() : segments());
      return statements;
    }
    Statements body = {{Call{"using L = decltype(lanes)"}}, {Call{"using E = V"}}};
    append(body, segments());
    Statements statements = {{Lambda{"row", "auto lanes", std::move(body), kAlwaysInline}}};
    const int64_t extent = nest_.extent(nest_.config.vector);
    const int64_t rest = extent % nest_.lanes;
    const std::string end = Nest::index_name(nest_.config.vector) + " + W";
    if (extent >= nest_.lanes)
      statements.push_back({If{concat(end, " <= ", extent), {{Call{"row(mr::Lanes<W>{})"}}}, Braces::none}});
    if (rest > 0)
      statements.push_back(
          {If{concat(end, " > ", extent), {{Call{concat("row(mr::Lanes<", rest, ">{})")}}}, Braces::none}});
    return statements;
  }

  Statements conversion() const {
    const Positions positions = nest_.own_positions(nest_.ports[0].tensor);
    const auto access = [&](int port) {
      return concat(Nest::stride_along(nest_.config.vector, positions, nest_.ports[Nest::at(port)].strides), ">(p",
                    port, " + ", nest_.offset_of(port, positions));
    };
    const Segment segment;
    VectorStatements made{segment};
    made.points.push_back({Call{concat("mr::store<L, ", access(1), ", mr::load<E, L, ", access(0), "))")}});
    return {vector_loop(std::move(made), nest_.config.vector)};
  }

  static Statement count(const std::string& counter, int64_t end, Statement body) {
    return {Loop{
        .counter = counter, .end = concat(end), .body = {std::move(body)}, .braces = Braces::none, .type = "long"}};
  }

  // Loops over these indices, outermost first.
  Statement nested(const std::vector<int>& indices, Statement body) const {
    for (size_t k = indices.size(); k-- > 0;)
      body = count(Nest::index_name(indices[k]), nest_.extent(indices[k]), std::move(body));
    return body;
  }

  // --- Segments ---

  Statements segments() {
    Statements statements;
    for (const Segment& segment : nest_.schedule.segments) {
      VectorStatements made{segment};
      for (const PlacedInstruction& placed : segment.instructions) add(placed, made);
      append(statements, segment_loop(std::move(made)));
    }
    return statements;
  }

  Statements segment_loop(VectorStatements made) const {
    const Segment& segment = made.segment;
    Statements statements = std::move(made.declared);
    Statements reduced = std::move(made.reduced);
    if (segment.loop && !nest_.rows_in_lanes && !segment.indices.empty()) {
      std::vector<int> outer = segment.indices;
      outer.pop_back();
      statements.push_back(nested(outer, vector_loop(std::move(made), segment.indices.back())));
    } else {
      Statements body = std::move(made.before_line);
      append(body, std::move(made.points));
      if (segment.loop)
        statements.push_back(nested(segment.indices, {Block{std::move(body)}}));
      else
        append(statements, std::move(body));
    }
    append(statements, std::move(reduced));
    return statements;
  }

  // A line along an index: full vectors, then the remainder.
  Statement vector_loop(VectorStatements made, int index) const {
    Statements statements = std::move(made.before_line);
    const std::string block = nest_.config.block == kNoIndex ? "" : Nest::index_name(nest_.config.block);
    const std::string parameters = concat("auto lanes, long ", index == kNoIndex ? "unused" : Nest::index_name(index),
                                          block.empty() ? "" : ", long ", block);
    Statements body = {{Call{"using L = decltype(lanes)"}}, {Call{"using E = V"}}};
    append(body, std::move(made.points));
    statements.push_back({Lambda{"body", parameters, std::move(body), kAlwaysInline}});
    const auto call = [&](const std::string& lanes, const std::string& first) {
      return in_block({Call{concat("body(mr::Lanes<", lanes, ">{}, ", first, block.empty() ? "" : ", ", block, ")")}});
    };
    const int64_t length = index == kNoIndex ? 1 : nest_.extent(index);
    const int64_t rest = length % nest_.lanes;
    if (length >= nest_.lanes)
      statements.push_back({Loop{.counter = "v",
                                 .body = {call("W", "v")},
                                 .braces = Braces::none,
                                 .stride = "W",
                                 .type = "long",
                                 .condition = concat("v + W <= ", length)}});
    if (rest > 0) statements.push_back(call(concat(rest), concat(length - rest)));
    append(statements, std::move(made.after_line));
    return {Block{std::move(statements)}};
  }

  // For each point of the block, if the config has one.
  Statement in_block(Statement body) const {
    const int index = nest_.config.block;
    if (index == kNoIndex) return body;
    const std::string name = Nest::index_name(index);
    return {Loop{.counter = name,
                 .body = {std::move(body)},
                 .braces = Braces::none,
                 .first = "block",
                 .type = "long",
                 .condition = concat(name, " < block + ", kBlock, " && ", name, " < ", nest_.extent(index))}};
  }

  // --- Instructions ---

  void add(const PlacedInstruction& placed, VectorStatements& to) {
    const std::string expression = expression_of(placed, to);
    const InstructionKind kind = placed.instruction.kind;
    if (placed.across) return add_to_partial(placed, expression, to);
    const NestValue value = Nest::value_of(placed);
    const std::string name = Nest::value_name(value);
    if (is_reduction(kind) && !nest_.schedule.reduced[Nest::at(placed.member)].empty()) {
      const std::string operation = Nest::operation(kind);
      to.declared.push_back({Declare{"V", name + "_v", concat("mr::splat<V>(", Nest::identity(kind), ")")}});
      to.points.push_back({Call{concat("mr::accumulate<", operation, ", L>(", name, "_v, ", expression, ")")}});
      to.reduced.push_back({Declare{
          "const R", name,
          nest_.rows_in_lanes ? name + "_v" : concat("mr::combine<", operation, ", mr::Lanes<W>>(", name, "_v)")}});
      return;
    }
    to.points.push_back({Declare{"const E", name, expression}});
    accesses_.store_carried(value, to);
    if (value.kind == NestValue::Kind::output) accesses_.store(placed, name, to);
  }

  std::string expression_of(const PlacedInstruction& placed, VectorStatements& to) {
    const OperandTexts texts{
        [&](int number) { return input(placed.member, number, to); },
        [&](const NestValue& value) { return own_value(value, to); },
        [&] { return accesses_.drawn_mask(placed.member, to); },
        [&](size_t own_index) { return position_of(to.segment, placed.member, own_index); },
        [&](const std::vector<Guard>& guards) { return holds(to.segment, guards); },
        [&](const std::string& id) { return gathered(placed.member, id, to.segment); },
    };
    return nest_.expanded(placed, texts, made_.values);
  }

  std::string own_value(const NestValue& value, VectorStatements& to) const {
    const std::string name = Nest::value_name(value);
    const Segment& segment = to.segment;
    if (nest_.schedule.once_a_row.contains(value)) return segment.loop ? concat("mr::splat<E>(", name, ")") : name;
    const bool here = std::any_of(segment.instructions.begin(), segment.instructions.end(),
                                  [&](const PlacedInstruction& placed) { return Nest::value_of(placed) == value; });
    return here ? name : accesses_.load_carried(value, to);
  }

  std::string input(int member, int number, VectorStatements& to) {
    const Access& access = nest_.op(member).inputs[Nest::at(number)];
    if (const std::optional<KernelValue> value = nest_.number_in(access.tensor))
      return concat("mr::splat<E>(c", number_value(made_.values, *value), ")");
    if (const std::optional<NestValue> made = nest_.made_inside(access.tensor)) return own_value(*made, to);
    return accesses_.loaded(nest_.read_port(access.tensor), nest_.positions_along(member, access),
                            nest_.guards_of_input(member, Nest::at(number)), to, needed(member, number, to));
  }

  // A scatter_add reads g only where the id points to this row, if all lanes have one id and one row.
  std::string needed(int member, int number, VectorStatements& to) {
    const Operator& op = nest_.op(member);
    if (op.kind != OperatorKind::scatter_add || number != 0) return "";
    const int moving = nest_.moving_in(to.segment);
    const Positions ids = nest_.positions_along(member, op.inputs[1]);
    const Position row = nest_.own_index(member, Nest::at(op.gathered));
    const auto moves = [&](const Position& position) {
      return moving != kNoIndex && position.stride_along(moving) != 0;
    };
    if (moves(row) || std::any_of(ids.begin(), ids.end(), moves)) return "";
    return concat("mr::selected_position(", nest_.graph.extent(op.space[Nest::at(op.gathered)]), ", ",
                  input(member, 1, to), ") == ", Nest::text_of(row));
  }

  std::string position_of(const Segment& segment, int member, size_t own_index) const {
    const Position own = nest_.own_index(member, own_index);
    if (own.terms.empty()) return "mr::position<E>(0)";
    const bool moves = own.index() == nest_.moving_in(segment);
    const std::string shift = own.offset == 0 ? "" : concat(" + ", own.offset);
    return concat("mr::", moves ? "positions" : "position", "<E>(", Nest::index_name(own.index()), shift, ")");
  }

  std::string holds(const Segment& segment, const std::vector<Guard>& guards) const {
    const int moving = nest_.moving_in(segment);
    const std::string condition = Nest::condition_of(guards, moving, "lane");
    if (!Nest::changes_along(guards, moving)) return concat("(", condition, ")");
    return concat("mr::mask_where<E>([&](long lane) { return ", condition, "; })");
  }

  // Lanes of one id take neighbours of one row of the table.
  std::string gathered(int member, const std::string& id, const Segment& segment) const {
    const Nest::GatheredAccess access = nest_.gathered_access(member);
    const int moving = nest_.moving_in(segment);
    const bool same = std::none_of(access.ids.begin(), access.ids.end(), [&](const Position& position) {
      return moving != kNoIndex && position.stride_along(moving) != 0;
    });
    const std::string table = concat("p", access.port, " + ", nest_.offset_of(access.port, access.positions));
    const int64_t step = nest_.stride_of(segment, access.positions, nest_.ports[Nest::at(access.port)].strides);
    const std::string where = Nest::condition_of(access.guards, moving, "lane");
    if (same && !Nest::changes_along(access.guards, moving)) {
      const std::string load = concat("mr::load<E, L, ", step, ">(", table, " + ", access.stride,
                                      " * mr::selected_position(", access.extent, ", ", id, "))");
      return access.guards.empty() ? load : concat("(", where, " ? ", load, " : mr::splat<E>(0))");
    }
    return concat("mr::gather<E, L, ", step, ">(", table, ", ", access.stride, ", ", access.extent, ", ", id,
                  ", [&](long lane) { return ", access.guards.empty() ? "lane >= 0" : where, "; })");
  }

  // --- Reductions across rows ---

  void add_partial(const PlacedInstruction& placed) {
    ThreadPartial partial{placed.member,
                          placed.instruction.target,
                          placed.instruction.kind,
                          nest_.kept_by(placed.member),
                          concat("a", partials_.size()),
                          scratch_.bytes()};
    scratch_.reserve(partial.name, nest_.points(partial.kept) + nest_.lanes);
    partials_.push_back(std::move(partial));
  }

  // A partial result along the vector index is added to vector by vector; any other once for each line or point.
  void add_to_partial(const PlacedInstruction& placed, const std::string& expression, VectorStatements& to) const {
    const ThreadPartial& partial = *std::find_if(partials_.begin(), partials_.end(), [&](const ThreadPartial& other) {
      return other.member == placed.member && other.number == placed.instruction.target;
    });
    const Segment& segment = to.segment;
    const std::string address = concat(partial.name, " + ", nest_.offset_in(partial.kept, 1));
    const std::string operation = Nest::operation(partial.kind);
    const int vector = nest_.rows_in_lanes || !segment.loop ? kNoIndex : VectorNest::vector_of(segment);
    const bool along = std::find(partial.kept.begin(), partial.kept.end(), vector) != partial.kept.end();
    const std::string sum = concat("*(", address, ")");
    const auto add = [&](const std::string& lanes, const std::string& value) {
      const std::string added = concat("mr::combine<", operation, ", ", lanes, ">(", value, ")");
      return Statement{Assign{sum, concat(operation, "::of(", sum, ", ", added, ")")}};
    };
    if (along) {
      to.points.push_back({Call{concat("mr::accumulate_at<", operation, ", L>(", address, ", ", expression, ")")}});
    } else if (segment.loop && !nest_.rows_in_lanes && nest_.config.block == kNoIndex) {
      const std::string name = partial.name + "_v";
      to.before_line.push_back({Declare{"V", name, concat("mr::splat<V>(", Nest::identity(partial.kind), ")")}});
      to.points.push_back({Call{concat("mr::accumulate<", operation, ", L>(", name, ", ", expression, ")")}});
      to.after_line.push_back(add("mr::Lanes<W>", name));
    } else {
      to.points.push_back(add("L", expression));
    }
  }

  // Adds the threads' partial results, in the order of the threads.
  Statements combine_threads() const {
    Statements statements;
    for (const ThreadPartial& partial : partials_) {
      const Access& access = nest_.op(partial.member).outputs[Nest::at(partial.number)];
      const int port = nest_.written_port(access.tensor);
      if (port < 0) continue;
      const Positions positions = nest_.positions_along(partial.member, access);
      const Assign next{
          "total",
          concat(Nest::operation(partial.kind), "::of(total, reinterpret_cast<const F*>(args->scratch + thread * ",
                 scratch_.bytes(), " + ", partial.bytes_offset, ")[", nest_.offset_in(partial.kept, 1), "])")};
      const std::string stored =
          concat("mr::store<mr::Lanes<1>, 0>(p", port, " + ", nest_.offset_of(port, positions), ", total)");
      statements.push_back(nested(partial.kept, {Block{{{Declare{"F", "total", Nest::identity(partial.kind)}},
                                                        count("thread", nest_.config.threads, {next}),
                                                        {Call{stored}}}}}));
    }
    return statements;
  }

  const VectorNest nest_;
  KernelText made_;
  Scratch scratch_;
  VectorAccesses accesses_;
  std::vector<ThreadPartial> partials_;
};

}  // namespace
}  // namespace codegen

KernelText generate_cpu_kernel(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                               const KernelConfig& config) {
  return codegen::CpuGenerator({graph, partition, layouts, config}).run();
}

}  // namespace millrace
