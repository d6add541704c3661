#include "codegen/cuda/generate.h"

#include <algorithm>

#include "base/text.h"
#include "codegen/cuda/accesses.h"
#include "codegen/cuda/conversion.h"
#include "codegen/cuda/reductions.h"

namespace millrace {
namespace codegen {
namespace {

// Turns the segments of a schedule into statements, then orders them in a kernel. thread_mapping.h says how threads
// share the work.
class CudaGenerator {
 public:
  explicit CudaGenerator(const NestInput& input) : map_(input), accesses_(map_, kernel_) {}

  KernelText run() {
    Statements body = map_.config.block != kNoIndex ? convert_tile(map_, kernel_) : map_.flat ? flat() : rows();
    append(body, flush_partials(map_, kernel_));
    KernelText made;
    made.grids.push_back({"MILLRACE_KERNEL", map_.blocks, map_.shape.threads});
    Statements all = kernel_.dropouts;
    append(all, kernel_.shared);
    append(all, std::move(body));
    made.text = function("MILLRACE_KERNEL", map_.shape.threads, std::move(all));
    if (!map_.partials.empty()) {
      FinishKernel finish = finish_partials(map_);
      made.grids.push_back({"MILLRACE_KERNEL_finish", finish.blocks, kFinishThreads});
      made.text += function("MILLRACE_KERNEL_finish", kFinishThreads, std::move(finish.body));
    }
    made.scratch_bytes = map_.scratch_bytes;
    made.values = std::move(kernel_.values);
    made.subsequences = std::move(kernel_.subsequences);
    return made;
  }

 private:
  // --- Kernels ---

  std::string function(const std::string& name, int threads, Statements body) const {
    const auto at_least_one = [](size_t count) { return std::max<size_t>(count, 1); };
    std::string text =
        concat("MR_KERNEL(", threads, ") ", name, "(MR_PARAMETER mr::Arguments<", at_least_one(map_.ports.size()), ", ",
               at_least_one(kernel_.values.size()), ", ", at_least_one(kernel_.subsequences.size()), "> args) {\n");
    Statements all = {{Call{concat("using F = ", map_.real)}},
                      {Call{"using E = F"}},
                      {Call{concat("using I = ", map_.integer)}},
                      {Call{concat("using U = unsigned ", map_.integer)}},  // division of these is cheaper
                      {Declare{"const int", "thread", "mr::thread_number()"}},
                      {Call{"mr::begin()"}}};
    for (size_t k = 0; k < map_.ports.size(); ++k) {
      if (map_.ports[k].layout.storage == MaskStorage::regenerated) continue;
      const std::string type = (map_.ports[k].written ? "" : "const ") + map_.type_of(map_.ports[k]);
      all.push_back({Declare{type + "* __restrict__ const", concat("p", k),
                             concat("static_cast<", type, "*>(args.tensors[", k, "])")}});
    }
    for (size_t k = 0; k < kernel_.values.size(); ++k)
      all.push_back({Declare{"const F", concat("c", k), concat("F(args.values[", k, "])")}});
    append(all, std::move(body));
    return text + print_statements(all, 1) + "}\n";
  }

  Statements flat() {
    const int vector = map_.config.vector;
    const int64_t width = map_.width(vector);
    const int64_t vectors = map_.rows() * (vector == kNoIndex ? 1 : map_.extent(vector) / width);
    std::vector<int> indices = map_.walked;
    if (vector != kNoIndex) indices.push_back(vector);
    Statements body = map_.decoded(indices, "chunk", vector, width);
    body.push_back({Declare{"constexpr int", "p", "0"}});
    Statements computed = map_.partition.members.empty() ? convert_vector(map_) : segments();
    append(body, kernel_.row_arrays);
    append(body, std::move(computed));
    return {{Declare{"const I", "chunk", concat("I(mr::block_number()) * ", map_.shape.threads, " + thread")}},
            {If{concat("chunk < ", vectors), std::move(body)}}};
  }

  Statements rows() {
    const int64_t columns = map_.rows_in_lanes ? map_.columns : map_.shape.row_threads;
    const std::string quotient = concat("thread / ", columns);
    const std::string remainder = concat("thread % ", columns);
    Statements statements = {{Declare{"const int", "lane", map_.rows_in_lanes ? quotient : remainder}},
                             {Declare{"const int", "block_row", map_.rows_in_lanes ? remainder : quotient}}};
    append(statements, partial_arrays(map_));
    Statements computed = segments();
    append(statements, map_.partials.empty() ? one_row(std::move(computed)) : many_rows(std::move(computed)));
    return statements;
  }

  Statements one_row(Statements computed) const {
    Statements body = kernel_.row_arrays;
    body.push_back({Declare{"const I", "number", concat("I(mr::block_number()) * ", map_.block_rows, " + block_row")}});
    append(body, row_indices());
    append(body, kernel_.row_loads);
    append(body, std::move(computed));
    return {{Declare{"constexpr int", "turn", "0"}}, {Block{std::move(body)}}};
  }

  Statements many_rows(Statements computed) const {
    Statements statements = {{Declare{"const I", "fixed", concat("I(mr::block_number()) / ", map_.chunks)}},
                             {Declare{"const I", "chunk", concat("I(mr::block_number()) % ", map_.chunks)}}};
    append(statements, map_.decoded(map_.fixed, "fixed"));
    append(statements, kernel_.next_row_arrays);
    const bool loads_next_row = !kernel_.next_row_loads.empty();
    if (loads_next_row) statements.push_back({Block{row_of("0", kernel_.next_row_loads)}});
    Statements turn = kernel_.row_arrays;
    if (loads_next_row)
      turn.push_back({If{concat("turn + 1 < ", map_.turns()), row_of("(turn + 1)", kernel_.next_row_loads)}});
    if (map_.batch_rows > 1) {
      turn.push_back(each_row(kernel_.row_loads));
      turn.push_back(each_row(std::move(computed)));
    } else {
      Statements body = kernel_.row_loads;
      append(body, std::move(computed));
      append(turn, row_of("turn", std::move(body)));
    }
    statements.push_back({Loop{Unroll::never, "turn", concat(map_.turns()), std::move(turn)}});
    return statements;
  }

  Statement each_row(Statements body) const {
    return {Loop{Unroll::fully, "r", concat(map_.batch_rows),
                 row_of(concat("(turn * ", map_.batch_rows, " + r)"), std::move(body))}};
  }

  // Runs `body` for the row that the row threads process in one turn.
  Statements row_of(const std::string& turn, Statements body) const {
    Statements statements = {
        {Declare{"const I", "number",
                 concat("(I(", turn, ") * ", map_.chunks, " + chunk) * ", map_.block_rows, " + block_row")}}};
    append(statements, row_indices());
    append(statements, std::move(body));
    return statements;
  }

  // Row threads without a row repeat the last one and store nothing: barriers need all threads.
  Statements row_indices() const {
    Statements statements;
    if (map_.guarded) statements.push_back({Declare{"const bool", "active", concat("number < ", map_.rows())}});
    statements.push_back(
        {Declare{"const I", "row", map_.guarded ? concat("active ? number : ", map_.rows() - 1) : "number"}});
    const int vector = map_.rows_in_lanes ? map_.config.vector : kNoIndex;
    append(statements, map_.decoded(map_.walked, "row", vector, map_.width(vector)));
    return statements;
  }

  // --- Segments ---

  Statements segments() {
    Statements statements;
    for (const Segment& segment : map_.schedule.segments) {
      SegmentStatements made{segment};
      for (const PlacedInstruction& placed : segment.instructions) add(placed, made);
      append(statements, segment.loop ? loop(std::move(made)) : once(std::move(made)));
    }
    return statements;
  }

  static void append_lanes(Statements& to, Statements body, int64_t width) {
    if (!body.empty()) to.push_back({Loop{Unroll::fully, "l", concat(width), std::move(body)}});
  }

  Statements loop(SegmentStatements made) {
    const Segment& segment = made.segment;
    Statements statements = std::move(made.declared);
    Statements body;
    const bool loads_first = !map_.flat && map_.unrolled(segment) && map_.vectors_of(segment) > 1;
    if (!made.next_row_loads.empty())
      kernel_.next_row_loads.push_back(vectors(segment, std::move(made.next_row_loads)));
    if (!made.row_loads.empty()) kernel_.row_loads.push_back(vectors(segment, std::move(made.row_loads)));
    if (!loads_first)
      append(body, std::move(made.loads));
    else if (!made.loads.empty())
      statements.push_back(vectors(segment, std::move(made.loads)));
    append(body, std::move(made.arrays));
    append_lanes(body, std::move(made.lanes), map_.width_of(segment));
    append(body, std::move(made.stores));
    if (map_.flat)
      append(statements, std::move(body));
    else
      statements.push_back(vectors(segment, std::move(body)));
    append(statements, std::move(made.reduced));
    if (!made.gathered.empty()) statements.push_back({Barrier{concat(map_.shape.row_threads, ", ", map_.block_rows)}});
    append(statements, std::move(made.gathered));
    return statements;
  }

  // A thread's vectors of a segment.
  Statement vectors(const Segment& segment, Statements body) const {
    const int64_t points = map_.points(segment.indices);
    const int64_t width = map_.rows_in_lanes ? 1 : map_.width_of(segment);
    const int64_t count = map_.vectors_of(segment);
    const int vector = map_.rows_in_lanes ? kNoIndex : map_.vector_of(segment);
    Statements at_point = map_.decoded(segment.indices, concat("(q / ", width, ")"), vector, width);
    append(at_point, std::move(body));
    const bool whole = count * map_.shape.row_threads * width == points;
    return {Loop{
        map_.unrolled(segment) ? Unroll::fully : Unroll::never,
        "p",
        concat(count),
        {{Declare{"const I", "q", concat("I(p * ", map_.shape.row_threads, " + lane) * ", width)}},
         whole ? Statement{Block{std::move(at_point)}} : Statement{If{concat("q < ", points), std::move(at_point)}}}}};
  }

  Statements once(SegmentStatements made) const {
    Statements statements = std::move(made.declared);
    append(statements, std::move(made.loads));
    append(statements, std::move(made.arrays));
    if (map_.rows_in_lanes)
      append_lanes(statements, std::move(made.lanes), map_.width(map_.config.vector));
    else
      append(statements, std::move(made.lanes));
    append(statements, std::move(made.stores));
    return statements;
  }

  // --- Instructions ---

  void add(const PlacedInstruction& placed, SegmentStatements& to) {
    const std::string expression = expression_of(placed, to);
    if (placed.across) {
      to.lanes.push_back(add_to_partial(map_, placed, expression));
      return;
    }
    const NestValue value = Nest::value_of(placed);
    const std::string name = Nest::value_name(value);
    if (map_.reduces(placed)) return reduce_row(map_, placed, name, expression, kernel_, to);
    if (!to.segment.loop) {
      const std::string array = concat("[", map_.width(map_.config.vector), "]");
      to.declared.push_back({Declare{"F", map_.rows_in_lanes ? name + array : name}});
      to.lanes.push_back({Assign{row_value(name), expression}});
    } else {
      const bool carried = map_.schedule.carried.contains(value);
      const std::string vectors = carried ? concat("[", map_.vectors_of(to.segment), "]") : "";
      (carried ? kernel_.row_arrays : to.arrays)
          .push_back({Declare{"F", concat(name, vectors, "[", map_.width_of(to.segment), "]")}});
      to.lanes.push_back({Assign{concat(name, carried ? "[p]" : "", "[l]"), expression}});
    }
    if (value.kind == NestValue::Kind::output) accesses_.store(placed, name, to);
  }

  std::string expression_of(PlacedInstruction placed, SegmentStatements& to) {
    const int member = placed.member;
    const OperandTexts texts{
        [&](int number) { return input(member, number, to); },
        [&](const NestValue& value) { return own_value(value, to.segment); },
        [&] { return accesses_.drawn_mask(member, to); },
        [&](size_t own_index) { return position_of(to.segment, member, own_index); },
        [&](const std::vector<Guard>& guards) {
          return concat("(", Nest::condition_of(guards, map_.moving_in(to.segment), "l"), ")");
        },
        [&](const std::string& id) { return gathered(member, id, to.segment); },
    };
    if (map_.brief_exp) use_brief_exp(placed.instruction.expression);
    return map_.expanded(placed, texts, kernel_.values);
  }

  static void use_brief_exp(std::string& expression) {
    const std::string call = "mr::exp(";
    const std::string brief = "mr::brief_exp(";
    for (size_t at = expression.find(call); at != std::string::npos; at = expression.find(call, at + brief.size()))
      expression.replace(at, call.size(), brief);
  }

  // A value of the row; with rows in lanes, one for each of the thread's rows.
  std::string row_value(const std::string& name) const { return map_.rows_in_lanes ? name + "[l]" : name; }

  std::string own_value(const NestValue& value, const Segment& segment) const {
    const std::string name = Nest::value_name(value);
    if (map_.schedule.once_a_row.contains(value) || !segment.loop) return row_value(name);
    return concat(name, map_.schedule.carried.contains(value) ? "[p]" : "", "[l]");
  }

  std::string input(int member, int number, SegmentStatements& to) {
    const Access& access = map_.op(member).inputs[Nest::at(number)];
    if (const std::optional<KernelValue> value = map_.number_in(access.tensor))
      return concat("c", number_value(kernel_.values, *value));
    if (const std::optional<NestValue> made = map_.made_inside(access.tensor)) return own_value(*made, to.segment);
    return accesses_.loaded(map_.read_port(access.tensor), map_.positions_along(member, access),
                            map_.guards_of_input(member, Nest::at(number)), to, needed(member, number, to));
  }

  // A scatter_add reads g only where the id points to this row, if all lanes have one id and one row. The ids of the
  // next row are not known when its g is loaded ahead.
  std::string needed(int member, int number, SegmentStatements& to) {
    const Operator& op = map_.op(member);
    const bool scatters = op.kind == OperatorKind::scatter_add && number == 0;
    if (!scatters || map_.loads_next_row || !map_.guards_of(member).empty()) return "";
    const int moving = map_.moving_in(to.segment);
    const Positions ids = map_.positions_along(member, op.inputs[1]);
    const Position row = map_.own_index(member, Nest::at(op.gathered));
    const auto moves = [&](const Position& p) { return moving != kNoIndex && p.stride_along(moving) != 0; };
    if (moves(row) || std::any_of(ids.begin(), ids.end(), moves)) return "";
    std::string id = input(member, 1, to);
    if (id.ends_with("(l)")) id.replace(id.size() - 2, 1, "0");
    if (id.find("[l]") != std::string::npos) return "";  // computed in this kernel, lane by lane
    return concat("mr::position_of_id<I>(", map_.graph.extent(op.space[Nest::at(op.gathered)]), ", ", id,
                  ") == ", Nest::text_of(row));
  }

  std::string gathered(int member, const std::string& id, const Segment& segment) const {
    const Nest::GatheredAccess access = map_.gathered_access(member);
    const int moving = map_.moving_in(segment);
    const int64_t step = Nest::stride_along(moving, access.positions, map_.ports[Nest::at(access.port)].strides);
    const std::string lane = step == 0 ? "" : concat(" + I(", step, ") * l");
    const std::string element =
        concat("mr::gathered<F>(p", access.port, ", ", offset_text(map_, access.port, access.positions), lane, ", I(",
               access.stride, "), ", access.extent, ", ", id, ")");
    if (access.guards.empty()) return element;
    return concat("(", Nest::condition_of(access.guards, moving, "l"), " ? ", element, " : F(0))");
  }

  std::string position_of(const Segment& segment, int member, size_t own_index) const {
    const Position own = map_.own_index(member, own_index);
    if (own.terms.empty()) return "I(0)";
    const bool moves = own.index() == map_.moving_in(segment);
    const std::string shift = own.offset == 0 ? "" : concat(" + ", own.offset);
    const std::string name = Nest::index_name(own.index());
    return moves || !shift.empty() ? concat("(", name, shift, moves ? " + l)" : ")") : name;
  }

  const ThreadMapping map_;
  KernelStatements kernel_;
  Accesses accesses_;
};

}  // namespace
}  // namespace codegen

KernelText generate_cuda_kernel(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                                const KernelConfig& config) {
  return codegen::CudaGenerator({graph, partition, layouts, config}).run();
}

std::string gpu_prelude() { return concat(cuda_hardware(), cuda_prelude()); }

}  // namespace millrace
