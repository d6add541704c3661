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
  const std::string range = concat("range(", turns, ")");
  const std::string drawn =
      body.random.pick(std::vector<std::string>{range, range, concat("range(", turns, ", 0, -1)"),
                                                concat("range(", turns, ", 0, -1)"), concat("reversed(", range, ")")});
  body.statement(concat(name, " = ", value.text));
  body.statement(concat("for k in ", drawn, ":"));
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
    const std::string both = concat("(", value.text, ", ", value.text, ")");
    body.statement(concat("for n, a in ", body.random.chance(65) ? "enumerate(" : "zip((0, 1), ", both, "):"));
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

// A function with default values, called with and without them.
void write_defaults(Body& body, const Value& value) {
  const std::string name = concat("scaled", body.module.text.size());
  body.module.text += concat("\n\ndef ", name, "(x, factor=0.5, *, shift=None):\n    if shift is None:\n",
                             "        return x * factor\n    return x * factor + shift\n");
  static const std::vector<std::string> kArguments = {"", ", 0.75", ", factor=-0.5", ", shift=0.25", ", 1, shift=-0.5"};
  body.spend(2);
  body.finish({concat(name, "(", value.text, body.random.pick(kArguments), ")"), Binding::atom, value.shape,
               value.bound + 0.5, false});
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
  switch (body.random.below(value.shape.empty() ? 5 : 6)) {
    case 0: return write_loop(body, value);
    case 1: return write_list(body, value);
    case 2: return write_branch(body, value);
    case 3: return write_tuple(body, value);
    case 4: return write_defaults(body, value);
    default: return write_method(body, value);
  }
}

}  // namespace millrace::random_programs
