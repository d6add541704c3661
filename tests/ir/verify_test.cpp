// Every rule of graph.h, broken once: the verifier names the rule and the operator or tensor.
#include "ir/verify.h"

#include <gtest/gtest.h>

#include <functional>

#include "frontend/program_text.h"

namespace millrace {
namespace {

// y contracts x and w; z adds the bias b; m is y's maximum along the rows; r chooses by a comparison.
Graph sample() {
  return graph_of(R"(
A = 2
B = 3
C = 5
def f(x: float32[A, B], w: float32[B, C], b: float32[C], one: float32[1, C], s: float32):
    y = s * np.einsum("ab,bc->ac", x, w)
    z = y + b
    v = z + one
    m = np.max(v, axis=1)
    c = y < v
    r = np.where(c, y, v)
    return m, r
)");
}

Operator& named(Graph& graph, const std::string& name) {
  for (Operator& op : graph.operators) {
    if (op.name == name) return op;
  }
  throw std::runtime_error("no operator " + name + " in " + names_of_operators(graph));
}

TensorId tensor_named(const Graph& graph, const std::string& name) {
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    if (graph.tensors[k].name == name) return TensorId(k);
  }
  throw std::runtime_error("no tensor " + name);
}

void expect_message(const std::string& message, const std::function<void(Graph&)>& tamper) {
  Graph graph = sample();
  tamper(graph);
  const Result<Done> checked = verify(graph);
  ASSERT_FALSE(checked) << "accepted: " << message;
  EXPECT_EQ(checked.error().kind, ErrorKind::failed);
  EXPECT_EQ(checked.error().diagnostics.at(0).message, "invalid graph: " + message);
}

TEST(Verify, AcceptsTheSample) { EXPECT_TRUE(verify(sample())); }

TEST(Verify, Dimensions) {
  expect_message("dimension B is empty", [](Graph& g) { g.dims[1].extent = 0; });
  expect_message("dimension A is empty", [](Graph& g) { g.dims[0].extent = -2; });
}

TEST(Verify, Tensors) {
  expect_message("two tensors are named x", [](Graph& g) { g.tensors[tensor_named(g, "w").at()].name = "x"; });
  expect_message("tensor x has an unknown dimension", [](Graph& g) { g.tensors[0].dims[0] = DimId(99); });
  expect_message("tensor x has an unknown dimension", [](Graph& g) { g.tensors[0].dims[0] = DimId(); });
  expect_message("scalar s has dimensions", [](Graph& g) { g.tensors[tensor_named(g, "s").at()].dims = {DimId(0)}; });
}

TEST(Verify, ArgumentsAndResults) {
  expect_message("an argument is not a tensor", [](Graph& g) { g.arguments[0] = TensorId(); });
  expect_message("an argument is not a tensor", [](Graph& g) { g.arguments[0] = TensorId(99); });
  expect_message("argument y has the wrong role", [](Graph& g) { g.arguments[0] = tensor_named(g, "y"); });
  expect_message("no operator writes result m", [](Graph& g) { g.results[0].tensor = tensor_named(g, "x"); });
  expect_message("no operator writes result r", [](Graph& g) { g.results[1].tensor = TensorId(99); });
  expect_message("no operator writes result m",
                 [](Graph& g) { std::erase_if(g.operators, [](const Operator& op) { return op.name == "m max"; }); });
}

TEST(Verify, Names) {
  expect_message("operator 'y einsum': another operator has its name",
                 [](Graph& g) { named(g, "z bias").name = "y einsum"; });
}

TEST(Verify, Arity) {
  expect_message("operator 'z bias': wrong number of inputs or outputs",
                 [](Graph& g) { named(g, "z bias").inputs.pop_back(); });
  expect_message("operator 'y einsum': wrong number of inputs or outputs",
                 [](Graph& g) { named(g, "y einsum").inputs.resize(1); });
  expect_message("operator 'm max': wrong number of inputs or outputs",
                 [](Graph& g) { named(g, "m max").outputs.clear(); });
}

TEST(Verify, Spaces) {
  expect_message("operator 'z bias': `reduced` does not have one entry per index",
                 [](Graph& g) { named(g, "z bias").reduced.clear(); });
  expect_message("operator 'z bias': unknown dimension", [](Graph& g) { named(g, "z bias").space[0] = DimId(99); });
}

TEST(Verify, Accesses) {
  expect_message("operator 'z bias': unknown tensor",
                 [](Graph& g) { named(g, "z bias").inputs[0].tensor = TensorId(99); });
  expect_message("operator 'z bias': an access has not one index per axis of b",
                 [](Graph& g) { named(g, "z bias").inputs[1].axes.push_back(0); });
  expect_message("operator 'z bias': unknown index on b", [](Graph& g) { named(g, "z bias").inputs[1].axes[0] = 2; });
  expect_message("operator 'z bias': unknown index on b", [](Graph& g) { named(g, "z bias").inputs[1].axes[0] = -2; });
  expect_message("operator 'z bias': positions 1 to 5 on axis 0 of b are not all inside its extent 5",
                 [](Graph& g) { named(g, "z bias").inputs[1].axes[0].offset = 1; });
  expect_message("operator 'z bias': positions -4 to 0 on axis 0 of b are not all inside its extent 5", [](Graph& g) {
    named(g, "z bias").inputs[1].axes[0] = Position({{1, -1}}, 0);
  });
  expect_message("operator 'z bias': positions 0 to 9 on axis 0 of b are not all inside its extent 5", [](Graph& g) {
    named(g, "z bias").inputs[1].axes[0] = Position({{0, 1}, {1, 2}}, 0);
  });
  expect_message("operator 'z bias': unknown index on b", [](Graph& g) {
    named(g, "z bias").inputs[1].axes[0] = Position({{1, 0}}, 0);
  });
  expect_message("operator 'z bias': unknown index on b", [](Graph& g) {
    named(g, "z bias").inputs[1].axes[0] = Position({{1, 1}, {0, 1}}, 0);
  });
}

TEST(Verify, Gathers) {
  const auto gathers = [] { return graph_of("def f(t: float32[5, 3], i: int32[2]):\n    return t[i]\n"); };
  const auto message_after = [&](const std::function<void(Operator&)>& tamper) {
    Graph graph = gathers();
    tamper(graph.operators[0]);
    const Result<Done> checked = verify(graph);
    return checked ? "accepted" : checked.error().diagnostics.at(0).message;
  };
  const std::string message = "invalid graph: operator 'result gather': the gathered axis is not at position zero";
  EXPECT_EQ(message_after([](Operator& op) { op.gathered = 1; }), message);
  EXPECT_EQ(message_after([](Operator& op) { op.gathered = 2; }), message);
  EXPECT_EQ(message_after([](Operator& op) { op.inputs[0].axes[0].offset = 1; }), message);
  EXPECT_EQ(message_after([](Operator&) {}), "accepted");
}

TEST(Verify, Order) {
  expect_message("operator 'z bias': reads y before it is written",
                 [](Graph& g) { std::swap(g.operators[0], g.operators[1]); });
  expect_message("operator 'v bias': writes z a second time",
                 [](Graph& g) { named(g, "v bias").outputs[0].tensor = tensor_named(g, "z"); });
  expect_message("operator 'm max': writes b, which is an input of the graph", [](Graph& g) {
    Operator& op = named(g, "m max");
    op.reduced = {true, false};
    op.outputs[0] = {tensor_named(g, "b"), {1}};
  });
}

TEST(Verify, ElementwiseOperators) {
  expect_message("operator 'z bias': an elementwise operator has a reduced index",
                 [](Graph& g) { named(g, "z bias").reduced[0] = true; });
  expect_message("operator 'z bias': the output of an elementwise operator does not run along its space in order",
                 [](Graph& g) {
                   Operator& op = named(g, "z bias");
                   op.space.push_back(op.space[0]);
                   op.reduced.push_back(false);
                 });
  expect_message("operator 'r where': the condition of a where is not a boolean",
                 [](Graph& g) { std::swap(named(g, "r where").inputs[0], named(g, "r where").inputs[1]); });
}

TEST(Verify, Reductions) {
  expect_message("operator 'm max': the output does not run along exactly the indices that are not reduced",
                 [](Graph& g) { named(g, "m max").reduced[0] = true; });
  expect_message("operator 'm max': the output does not run along exactly the indices that are not reduced",
                 [](Graph& g) { named(g, "m max").reduced[1] = false; });
}

TEST(Verify, Contractions) {
  expect_message("operator 'y einsum': a contraction's index is in neither operand", [](Graph& g) {
    Operator& op = named(g, "y einsum");
    op.space.push_back(op.space[0]);
    op.reduced.push_back(true);
  });
  expect_message("operator 'y einsum': a contraction's scale is not a scalar", [](Graph& g) {
    named(g, "y einsum").inputs[2] = {tensor_named(g, "b"), {1}};
  });
  Graph graph = graph_of("def f(x: float32[2], y: float32[3]):\n    return np.einsum(\"i,j->ij\", x, y)\n");
  graph.operators[0].kind = OperatorKind::contraction;
  const Result<Done> checked = verify(graph);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().diagnostics.at(0).message,
            "invalid graph: operator 'result multiply': a contraction has no reduced index");
}

TEST(Verify, NoOutputRunsAlongOneIndexTwice) {
  Graph graph = graph_of("A = 3\ndef f(x: float32[A, A]):\n    return np.einsum(\"ij->j\", x)[:, None] + x\n");
  Operator& sum = graph.operators.at(0);
  const TensorId square = graph.operators.at(1).outputs[0].tensor;
  sum.outputs[0] = {square, {1, 1}};
  const Result<Done> checked = verify(graph);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().diagnostics.at(0).message,
            "invalid graph: operator 'result sum': two axes of an output run along one index");
}

}  // namespace
}  // namespace millrace
