// A function of a random program under construction: its parameters, statements and available values.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "random/random.h"
#include "random/value.h"

namespace millrace::random_programs {

struct Parameter {
  std::string name;
  Shape shape;
  bool by_value = false;  // a scalar without gradient
  double bound = 1;
  std::string type = "";  // of integers and booleans; empty: the module's
};

// A finished function, which later functions may call.
struct Function {
  std::string name;
  std::vector<Parameter> parameters;
  std::vector<Value> results;
  int operators = 0;
};

struct Module {
  std::vector<Axis> sizes;
  std::string dtype;  // as annotations spell it
  std::vector<Function> functions;
  std::string text;                 // of the functions
  int named_functions_percent = 0;  // of the statements that with_named_functions writes
};

enum class BodyKind { program, helper };

class Body {
 public:
  Body(Random& random_source, Module& the_module, BodyKind kind, int most_operators)
      : random(random_source), module(the_module), kind_(kind), left_(most_operators) {}

  Random& random;
  Module& module;

  // A new parameter, tensor or by-value scalar.
  Value parameter(const Shape& shape, double bound = 1);
  Value scalar();
  // A new parameter of integers or booleans, which only some operations take.
  Value typed_parameter(const Shape& shape, const std::string& type);
  bool is_program() const { return kind_ == BodyKind::program; }

  // A size of the module of at most that extent, and a shape of such sizes.
  Axis size(int64_t most);
  Shape shape();

  // A value of an earlier statement, or a parameter; preferably one that nothing has read yet.
  Value any();
  // The same among values that fit; nothing if none does.
  std::optional<Value> any_that(const std::function<bool(const Value&)>& fits);

  // Assigns to a new name. `settle` only does so sometimes, so that expressions also nest.
  Value keep(const Value& value);
  Value settle(const Value& value);
  // Assigns to a new name or, since no expression is under construction here, to one that was in use.
  void finish(const Value& value);

  // Appends a line to the body; then `add` the values that it assigned, for others to use.
  void statement(const std::string& line);
  std::string new_name();
  void add(const Value& named) { pool_.push_back({named, Origin::statement, false}); }

  // The remaining budget of operators.
  int left() const { return left_; }
  void spend(int operators) { left_ -= operators; }

  // Values that were assigned and not read.
  std::vector<Value> unread() const;
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // The whole function as text.
  std::string text(const std::string& name, const std::string& results) const;

 private:
  enum class Origin { parameter, statement };

  struct Entry {
    Value value;
    Origin origin = Origin::statement;
    bool read = false;
  };

  BodyKind kind_;
  std::vector<Parameter> parameters_;
  std::vector<std::string> lines_;
  std::vector<std::string> names_;
  std::vector<Entry> pool_;
  int left_;
};

}  // namespace millrace::random_programs
