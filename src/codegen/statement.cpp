#include "codegen/statement.h"

#include <iterator>

#include "base/text.h"

namespace millrace::codegen {
namespace {

class Printer {
 public:
  explicit Printer(int depth) : depth_(depth) {}

  void print(const Statements& statements) {
    for (const Statement& statement : statements) std::visit([&](const auto& kind) { print(kind); }, statement.kind);
  }

  std::string take() { return std::move(text_); }

 private:
  void line(const std::string& content) { text_ += std::string(static_cast<size_t>(2 * depth_), ' ') + content + "\n"; }

  void print(const Declare& declare) {
    line(concat(declare.type, " ", declare.name, declare.value.empty() ? "" : " = ", declare.value, ";"));
  }
  void print(const Assign& assign) { line(concat(assign.target, " = ", assign.value, ";")); }
  void print(const Call& call) { line(call.text + ";"); }
  void print(const Load& load) { line(concat(load.target, ".load(", load.pointer, ", ", load.offset, ");")); }
  void print(const Store& store) {
    line(concat("mr::store<", store.access, ">(", store.pointer, ", ", store.offset, ", ", store.values, ");"));
  }
  void print(const Barrier& barrier) {
    line(barrier.scope.empty() ? "mr::barrier();" : concat("mr::group_barrier<", barrier.scope, ">();"));
  }
  void print(const If& condition) {
    print_body(concat("if (", condition.condition, ")"), condition.body, condition.braces);
  }
  void print(const Loop& loop) {
    switch (loop.unroll) {
      case Unroll::compiler_decides: break;
      case Unroll::fully: line("MR_UNROLL"); break;
      case Unroll::partly: line("MR_UNROLL_SOME"); break;
      case Unroll::never: line("MR_NO_UNROLL"); break;
    }
    const std::string next = loop.stride == "1" ? "++" + loop.counter : concat(loop.counter, " += ", loop.stride);
    const std::string condition = loop.condition.empty() ? concat(loop.counter, " < ", loop.end) : loop.condition;
    const std::string head =
        concat("for (", loop.type, " ", loop.counter, " = ", loop.first, "; ", condition, "; ", next, ")");
    print_body(head, loop.body, loop.braces);
  }
  void print(const Block& block) {
    line("{");
    print_inside(block.body);
    line("}");
  }

  void print(const Lambda& lambda) {
    const std::string attributes = lambda.attributes.empty() ? "" : lambda.attributes + " ";
    line(concat("const auto ", lambda.name, " = [&](", lambda.parameters, ") ", attributes, "{"));
    print_inside(lambda.body);
    line("};");
  }
  void print(const Pragma& pragma) { text_ += concat("#pragma ", pragma.text, "\n"); }

  void print_body(const std::string& head, const Statements& body, Braces braces) {
    line(braces == Braces::always ? head + " {" : head);
    print_inside(body);
    if (braces == Braces::always) line("}");
  }

  void print_inside(const Statements& body) {
    ++depth_;
    print(body);
    --depth_;
  }

  int depth_;
  std::string text_;
};

}  // namespace

void append(Statements& to, Statements more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

Statement assign_each(const std::string& counter, int64_t end, const std::string& target, const std::string& value) {
  return {Loop{Unroll::fully, counter, concat(end), {{Assign{target, value}}}, Braces::none}};
}

std::string print_statements(const Statements& statements, int depth) {
  Printer printer(depth);
  printer.print(statements);
  return printer.take();
}

}  // namespace millrace::codegen
