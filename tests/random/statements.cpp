#include "random/statements.h"

#include "base/text.h"
#include "random/elementwise.h"

namespace millrace::random_programs {
namespace {

Value named_like(const std::string& name, const Value& value, double bound) {
  return {name, Binding::atom, value.shape, bound, false};
}

void write_loop(Body& body, const Value& value) {
  const std::string name = body.new_name();
  const int64_t turns = 1 + body.random.below(3);
  const bool backwards = body.random.chance(45);
  body.statement(concat(name, " = ", value.text));
  body.statement(backwards ? concat("for k in range(", turns, ", 0, -1):") : concat("for k in range(", turns, "):"));
  body.statement(concat("    ", name, " = ", name, " * 0.5 + ", value.text));
  body.spend(static_cast<int>(2 * turns));
  body.add(named_like(name, value, 2 * value.bound));
}

// The first minus the last item of a list.
void write_list(Body& body, const Value& value) {
  const std::string name = body.new_name();
  if (body.random.chance(50)) {
    body.statement(concat(name, " = [", operand(value, Binding::power), " * n for n in (0.5, 3, -1) if n != 3]"));
  } else {
    body.statement(concat(name, " = []"));
    body.statement(concat("for n, a in enumerate((", value.text, ", ", value.text, ")):"));
    body.statement(concat("    ", name, ".append(a * (n - 0.5))"));
  }
  body.spend(3);
  body.finish({concat(name, "[0] - ", name, "[-1]"), Binding::sum, value.shape, 2 * value.bound, false});
}

void write_branch(Body& body, const Value& value) {
  const std::string name = body.new_name();
  const std::string condition = value.shape.empty() || body.random.chance(50)
                                    ? concat("(", value.text, ").ndim > 1")
                                    : concat("(", value.text, ").shape[-1] % 2 == 0 and ", value.text, " is not None");
  body.statement(concat("if ", condition, ":"));
  body.statement(concat("    ", name, " = ", operand(value, Binding::power), " * 0.5"));
  body.statement("else:");
  body.statement(concat("    ", name, " = -", operand(value, Binding::power)));
  body.spend(1);
  body.add(named_like(name, value, value.bound));
}

void write_tuple(Body& body, const Value& value) {
  const std::string first = body.new_name();
  const std::string second = body.new_name();
  const std::string third = body.new_name();
  body.statement(concat(first, ", (", second, ", ", third, ") = -", operand(value, Binding::power), ", (",
                        operand(value, Binding::power), " * 0.5, ", operand(value, Binding::power), " * 2)"));
  body.spend(3);
  for (const std::string& name : {first, second, third}) body.add(named_like(name, value, 2 * value.bound));
}

void write_method(Body& body, const Value& value) {
  Shape shape = value.shape;
  const bool last = body.random.chance(50);
  if (last) {
    shape.back() = {"", 1};
  } else {
    shape.erase(shape.begin());
  }
  body.spend(2);
  const std::string text = concat(operand(value, Binding::atom), last ? ".mean(axis=-1, keepdims=True)" : ".mean(0)");
  body.finish({text, Binding::atom, shape, value.bound, false});
}

}  // namespace

void written_out(Body& body, const Value& value) {
  switch (body.random.below(value.shape.empty() ? 4 : 5)) {
    case 0: return write_loop(body, value);
    case 1: return write_list(body, value);
    case 2: return write_branch(body, value);
    case 3: return write_tuple(body, value);
    default: return write_method(body, value);
  }
}

}  // namespace millrace::random_programs
