// Every rule of graph.h, broken once: the verifier names the rule and the place.
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

void expect_complaint(const std::string& complaint, const std::function<void(Graph&)>& tamper) {
  Graph graph = sample();
  tamper(graph);
  const Result<Done> checked = verify(graph);
  ASSERT_FALSE(checked) << "nobody noticed: " << complaint;
  EXPECT_EQ(checked.error().kind, ErrorKind::failed);
  EXPECT_EQ(checked.error().diagnostics.at(0).message, "invalid graph: " + complaint);
}

TEST(Verify, TakesTheSample) { EXPECT_TRUE(verify(sample())); }

TEST(Verify, Dimensions) {
  expect_complaint("dimension B is empty", [](Graph& g) { g.dims[1].extent = 0; });
  expect_complaint("dimension A is empty", [](Graph& g) { g.dims[0].extent = -2; });
}

TEST(Verify, Tensors) {
  expect_complaint("two tensors are called x", [](Graph& g) { g.tensors[tensor_named(g, "w").at()].name = "x"; });
  expect_complaint("tensor x has an unknown dimension", [](Graph& g) { g.tensors[0].dims[0] = DimId(99); });
  expect_complaint("tensor x has an unknown dimension", [](Graph& g) { g.tensors[0].dims[0] = DimId(); });
  expect_complaint("scalar s has dimensions", [](Graph& g) { g.tensors[tensor_named(g, "s").at()].dims = {DimId(0)}; });
}

TEST(Verify, ArgumentsAndResults) {
  expect_complaint("an argument is no tensor", [](Graph& g) { g.arguments[0] = TensorId(); });
  expect_complaint("an argument is no tensor", [](Graph& g) { g.arguments[0] = TensorId(99); });
  expect_complaint("argument y has another role", [](Graph& g) { g.arguments[0] = tensor_named(g, "y"); });
  expect_complaint("no operator writes result m", [](Graph& g) { g.results[0].tensor = tensor_named(g, "x"); });
  expect_complaint("no operator writes result r", [](Graph& g) { g.results[1].tensor = TensorId(99); });
  expect_complaint("no operator writes result m",
                   [](Graph& g) { std::erase_if(g.operators, [](const Operator& op) { return op.name == "m max"; }); });
}

TEST(Verify, Names) {
  expect_complaint("operator 'y einsum': its name stands twice",
                   [](Graph& g) { named(g, "z bias").name = "y einsum"; });
}

TEST(Verify, Arity) {
  expect_complaint("operator 'z bias': wrong number of inputs or outputs",
                   [](Graph& g) { named(g, "z bias").inputs.pop_back(); });
  expect_complaint("operator 'y einsum': wrong number of inputs or outputs",
                   [](Graph& g) { named(g, "y einsum").inputs.resize(1); });
  expect_complaint("operator 'm max': wrong number of inputs or outputs",
                   [](Graph& g) { named(g, "m max").outputs.clear(); });
}

TEST(Verify, Spaces) {
  expect_complaint("operator 'z bias': one reduction mark an index",
                   [](Graph& g) { named(g, "z bias").reduced.clear(); });
  expect_complaint("operator 'z bias': unknown dimension", [](Graph& g) { named(g, "z bias").space[0] = DimId(99); });
}

TEST(Verify, Accesses) {
  expect_complaint("operator 'z bias': unknown tensor",
                   [](Graph& g) { named(g, "z bias").inputs[0].tensor = TensorId(99); });
  expect_complaint("operator 'z bias': one index an axis of b",
                   [](Graph& g) { named(g, "z bias").inputs[1].axes.push_back(0); });
  expect_complaint("operator 'z bias': unknown index on b", [](Graph& g) { named(g, "z bias").inputs[1].axes[0] = 2; });
  expect_complaint("operator 'z bias': unknown index on b",
                   [](Graph& g) { named(g, "z bias").inputs[1].axes[0] = -2; });
  expect_complaint("operator 'z bias': axis 0 of b does not fit its index",
                   [](Graph& g) { named(g, "z bias").inputs[1].axes[0] = 0; });
  expect_complaint("operator 'z bias': axis 0 of b stands still but is not of extent one",
                   [](Graph& g) { named(g, "z bias").inputs[1].axes[0] = kFixed; });
}

TEST(Verify, Order) {
  expect_complaint("operator 'z bias': reads y before it is written",
                   [](Graph& g) { std::swap(g.operators[0], g.operators[1]); });
  expect_complaint("operator 'v bias': writes z a second time",
                   [](Graph& g) { named(g, "v bias").outputs[0].tensor = tensor_named(g, "z"); });
  expect_complaint("operator 'm max': writes b, which is given", [](Graph& g) {
    Operator& op = named(g, "m max");
    op.reduced = {true, false};
    op.outputs[0] = {tensor_named(g, "b"), {1}};
  });
}

TEST(Verify, ElementwiseOperators) {
  expect_complaint("operator 'z bias': an elementwise operator reduces nothing",
                   [](Graph& g) { named(g, "z bias").reduced[0] = true; });
  expect_complaint("operator 'z bias': an elementwise output runs along the space in order", [](Graph& g) {
    Operator& op = named(g, "z bias");
    op.space.push_back(op.space[0]);
    op.reduced.push_back(false);
  });
  expect_complaint("operator 'r where': where chooses by a boolean",
                   [](Graph& g) { std::swap(named(g, "r where").inputs[0], named(g, "r where").inputs[1]); });
}

TEST(Verify, Reductions) {
  expect_complaint("operator 'm max': the output runs along what is not reduced",
                   [](Graph& g) { named(g, "m max").reduced[0] = true; });
  expect_complaint("operator 'm max': the output runs along what is not reduced",
                   [](Graph& g) { named(g, "m max").reduced[1] = false; });
}

TEST(Verify, Contractions) {
  expect_complaint("operator 'y einsum': a contraction's index is in neither operand", [](Graph& g) {
    Operator& op = named(g, "y einsum");
    op.space.push_back(op.space[0]);
    op.reduced.push_back(true);
  });
  expect_complaint("operator 'y einsum': a contraction's scale is no scalar", [](Graph& g) {
    named(g, "y einsum").inputs[2] = {tensor_named(g, "b"), {1}};
  });
  Graph graph = graph_of("def f(x: float32[2], y: float32[3]):\n    return np.einsum(\"i,j->ij\", x, y)\n");
  graph.operators[0].kind = OperatorKind::contraction;
  const Result<Done> checked = verify(graph);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().diagnostics.at(0).message,
            "invalid graph: operator 'result multiply': a contraction contracts nothing");
}

TEST(Verify, NoOutputRunsAlongOneIndexTwice) {
  Graph graph = graph_of("A = 3\ndef f(x: float32[A, A]):\n    return np.einsum(\"ij->j\", x)[:, None] + x\n");
  Operator& sum = graph.operators.at(0);
  const TensorId square = graph.operators.at(1).outputs[0].tensor;
  sum.outputs[0] = {square, {1, 1}};
  const Result<Done> checked = verify(graph);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().diagnostics.at(0).message,
            "invalid graph: operator 'result sum': writes along one index with two axes");
}

}  // namespace
}  // namespace millrace
