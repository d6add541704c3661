// The expressions of rows found in program text, and what attentions absorb with them.
#include "ir/row_expression.h"

#include <gtest/gtest.h>

#include "fusion/fusion_text.h"
#include "ir/attention_rows.h"
#include "ir/row_family.h"
#include "ir/row_vectors.h"

namespace millrace {
namespace {

// "2+1*i", or "2" if it is the same at all columns.
std::string position_text(int64_t first, int64_t step) {
  return step == 0 ? concat(first) : concat(first, "+", step, "i");
}

// "multiply(q[0+1i], c[0+1i])"
std::string formula_of(const Graph& graph, const RowExpression& rows, const RowPiece& piece, size_t number) {
  const RowNode& node = piece.nodes[number];
  std::vector<std::string> inputs;
  for (const RowPosition& position : node.positions) inputs.push_back(position_text(position.first, position.step));
  switch (node.kind) {
    case RowNode::Kind::number: return concat(node.number.valid() ? graph.tensor(node.number).value : node.value);
    case RowNode::Kind::element:
      return concat(graph.tensor(rows.terms[node.term].tensor).name, "[", join(inputs, ", "), "]");
    case RowNode::Kind::gradient: return concat("g[", join(inputs, ", "), "]");
    case RowNode::Kind::apply:
      for (const size_t input : node.inputs) inputs.push_back(formula_of(graph, rows, piece, input));
  }
  return concat(info_of(node.op).name, "(", join(inputs, ", "), ")");
}

// "q_in at 0+1i of 4: …; 2+1i of 2: …"
std::string text_of(const Graph& graph, const AttentionRows& rows) {
  std::string text = graph.tensor(rows.tensor.tensor).name;
  for (const RowPiece& piece : rows.expression.pieces)
    text += concat("; ", position_text(piece.first, piece.step), " of ", piece.count, ": ",
                   formula_of(graph, rows.expression, piece, piece.nodes.size() - 1));
  return text;
}

std::string names_of(const Graph& graph, const std::vector<OperatorId>& operators) {
  std::vector<std::string> names;
  for (const OperatorId id : operators) names.emplace_back(info_of(graph.operators[id.at()].kind).name);
  return join(names, " ");
}

std::string rows_of(const std::string& program) {
  const TrainingGraph training = training_of(program);
  const Graph& graph = training.graph;
  const std::vector<bool> callers = callers_of(training);
  const FoundAttentions found = find_attentions(graph, callers);
  if (found.attentions.empty()) return found.rejected.empty() ? "none" : found.rejected.front().reason;
  const std::optional<AbsorbedRows> rows = absorbed_rows(graph, callers, found.attentions.front());
  if (!rows) return "nothing\n";
  std::string text = concat("q ", text_of(graph, rows->q), "\nk ", text_of(graph, rows->k), "\n");
  if (rows->d_q.tensor.tensor.valid()) text += concat("d_q ", text_of(graph, rows->d_q), "\n");
  if (rows->d_k.tensor.tensor.valid()) text += concat("d_k ", text_of(graph, rows->d_k), "\n");
  return concat(text, names_of(graph, rows->forward), " | ", names_of(graph, rows->backward), "\n");
}

// Each column with the one half a row away, whatever the number of heads.
constexpr const char* kHalvesSwapped =
    "q q; 0+1i of 2: add(multiply(q[0+1i], c[0+1i]), multiply(negate(q[2+1i]), t[0+1i])); 2+1i of 2: "
    "add(multiply(q[2+1i], c[2+1i]), multiply(q[0+1i], t[2+1i]))\n"
    "k k; 0+1i of 2: add(multiply(k[0+1i], c[0+1i]), multiply(negate(k[2+1i]), t[0+1i])); 2+1i of 2: "
    "add(multiply(k[2+1i], c[2+1i]), multiply(k[0+1i], t[2+1i]))\n"
    "d_q d_q.sum; 0+1i of 2: add(multiply(g[0+1i], c[0+1i]), multiply(g[2+1i], t[2+1i])); 2+1i of 2: "
    "add(multiply(g[2+1i], c[2+1i]), negate(multiply(g[0+1i], t[0+1i])))\n"
    "d_k d_k.sum; 0+1i of 2: add(multiply(g[0+1i], c[0+1i]), multiply(g[2+1i], t[2+1i])); 2+1i of 2: "
    "add(multiply(g[2+1i], c[2+1i]), negate(multiply(g[0+1i], t[0+1i])))\n"
    "multiply negate join multiply add multiply negate join multiply add | multiply multiply copy copy negate "
    "copy multiply copy multiply multiply copy copy negate copy multiply copy join add join add\n";

TEST(RowExpressions, OfTheFamily) {
  std::string text;
  for (const NamedAttention& each : row_family()) text += concat(each.name, ":\n", rows_of(each.program.text()));
  EXPECT_EQ(
      text,
      concat(
          "halves swapped:\n", kHalvesSwapped,
          "pairs of neighbours:\n"
          "q q; 0+2i of 2: subtract(multiply(q[0+2i], c[0+2i]), multiply(q[1+2i], t[0+2i])); 1+2i of 2: "
          "add(multiply(q[0+2i], t[0+2i]), multiply(q[1+2i], c[0+2i]))\n"
          "k k; 0+2i of 2: subtract(multiply(k[0+2i], c[0+2i]), multiply(k[1+2i], t[0+2i])); 1+2i of 2: "
          "add(multiply(k[0+2i], t[0+2i]), multiply(k[1+2i], c[0+2i]))\n"
          "d_q d_q.sum.3; 0+2i of 2: add(multiply(g[0+2i], c[0+2i]), multiply(g[1+2i], t[0+2i])); 1+2i of 2: "
          "add(multiply(negate(g[0+2i]), t[0+2i]), multiply(g[1+2i], c[0+2i]))\n"
          "d_k d_k.sum.3; 0+2i of 2: add(multiply(g[0+2i], c[0+2i]), multiply(g[1+2i], t[0+2i])); 1+2i of 2: "
          "add(multiply(negate(g[0+2i]), t[0+2i]), multiply(g[1+2i], c[0+2i]))\n"
          "multiply multiply subtract multiply multiply add join multiply multiply subtract multiply multiply add "
          "join | copy copy multiply join multiply join negate multiply join multiply join copy copy multiply join "
          "multiply join negate multiply join multiply join join join add add add join join add add add\n"
          "the first half of the columns:\n"
          "q q; 0+1i of 1: subtract(multiply(q[0], c[0]), multiply(q[1], t[0])); 1+1i of 1: add(multiply(q[1], "
          "c[0]), multiply(q[0], t[0])); 2+1i of 2: q[2+1i]\n"
          "k k; 0+1i of 1: subtract(multiply(k[0], c[0]), multiply(k[1], t[0])); 1+1i of 1: add(multiply(k[1], "
          "c[0]), multiply(k[0], t[0])); 2+1i of 2: k[2+1i]\n"
          "d_q d_q.sum; 0+1i of 1: add(multiply(g[0], c[0]), multiply(g[1], t[0])); 1+1i of 1: "
          "add(multiply(negate(g[0]), t[0]), multiply(g[1], c[0])); 2+1i of 2: g[2+1i]\n"
          "d_k d_k.sum; 0+1i of 1: add(multiply(g[0], c[0]), multiply(g[1], t[0])); 1+1i of 1: "
          "add(multiply(negate(g[0]), t[0]), multiply(g[1], c[0])); 2+1i of 2: g[2+1i]\n"
          "multiply multiply subtract multiply multiply add join multiply multiply subtract multiply multiply add "
          "join | copy copy copy multiply copy multiply copy negate multiply copy multiply copy copy copy copy "
          "multiply copy multiply copy negate multiply copy multiply copy join join add join join add\n"
          "only the queries:\n"
          "q q; 0+1i of 4: multiply(q[0+1i], c[0+1i])\n"
          "k k\n"
          "d_q d_q; 0+1i of 4: multiply(g[0+1i], c[0+1i])\n"
          "d_k d_k\n"
          "multiply | multiply\n"
          "bias and scale:\n"
          "q q; 0+1i of 4: multiply(add(q[0+1i], c[0+1i]), 0.5)\n"
          "k k; 0+1i of 4: add(k[0+1i], t[0, 0+1i])\n"
          "d_q d_q; 0+1i of 4: multiply(g[0+1i], 0.5)\n"
          "d_k d_k\n"
          "add multiply add | multiply\n"
          "weight with a gradient:\n"
          "q q; 0+1i of 2: add(multiply(multiply(q[0+1i], w[0+1i]), c[0+1i]), multiply(negate(multiply(q[2+1i], "
          "w[2+1i])), t[0+1i])); 2+1i of 2: add(multiply(multiply(q[2+1i], w[2+1i]), c[2+1i]), "
          "multiply(multiply(q[0+1i], w[0+1i]), t[2+1i]))\n"
          "k k; 0+1i of 2: add(multiply(multiply(k[0+1i], u[0+1i]), c[0+1i]), multiply(negate(multiply(k[2+1i], "
          "u[2+1i])), t[0+1i])); 2+1i of 2: add(multiply(multiply(k[2+1i], u[2+1i]), c[2+1i]), "
          "multiply(multiply(k[0+1i], u[0+1i]), t[2+1i]))\n"
          "d_q d_wq.sum; 0+1i of 2: add(multiply(g[0+1i], c[0+1i]), multiply(g[2+1i], t[2+1i])); 2+1i of 2: "
          "add(multiply(g[2+1i], c[2+1i]), negate(multiply(g[0+1i], t[0+1i])))\n"
          "d_k d_wk.sum; 0+1i of 2: add(multiply(g[0+1i], c[0+1i]), multiply(g[2+1i], t[2+1i])); 2+1i of 2: "
          "add(multiply(g[2+1i], c[2+1i]), negate(multiply(g[0+1i], t[0+1i])))\n"
          "multiply multiply multiply negate join multiply add multiply negate join multiply add | multiply multiply "
          "copy copy negate multiply multiply multiply copy copy negate multiply join add join add\n"
          "not linear:\n"
          "q qq.1; 0+1i of 4: multiply(qq.1[0+1i], c[0+1i])\n"
          "k k; 0+1i of 4: silu(k[0+1i])\n"
          "d_q d_qq\n"
          "d_k d_k; 0+1i of 4: silu_dx(k[0+1i], g[0+1i])\n"
          "multiply silu | silu_dx\n"
          "grouped heads:\n",
          kHalvesSwapped,
          "no gradients:\n"
          "q q; 0+1i of 1: subtract(multiply(q[0], c[0]), multiply(q[1], t[0])); 1+1i of 1: add(multiply(q[1], "
          "c[0]), multiply(q[0], t[0])); 2+1i of 2: q[2+1i]\n"
          "k k; 0+1i of 1: subtract(multiply(k[0], c[0]), multiply(k[1], t[0])); 1+1i of 1: add(multiply(k[1], "
          "c[0]), multiply(k[0], t[0])); 2+1i of 2: k[2+1i]\n"
          "multiply multiply subtract multiply multiply add join multiply multiply subtract multiply multiply add "
          "join | \n"));
}

// A value that other operators or the caller need is in memory anyway.
TEST(RowExpressions, WhatOthersReadIsRead) {
  AttentionProgram program = row_family().front().program;
  program.results = "o, qq, kk";
  EXPECT_EQ(rows_of(program.text()).substr(0, 12), "q qq\nk kk\nd_");
  EXPECT_EQ(rows_of(AttentionProgram().text()), "nothing\n");
}

// The values are the tensor that the keys are computed from.
TEST(RowExpressions, WhatTheAttentionReadsOtherwiseIsRead) {
  AttentionProgram program =
      attention_of_rows("", ", c: fixed.float16[J, P]", "    x = k * c\n" + lines("q", "x * c")).program;
  program.of_v = "x";
  program.v = "bhkp";
  program.o = "bhjp";
  const std::string text = rows_of(program.text());
  EXPECT_NE(text.find("\nk x; 0+1i of 4: multiply(x[0+1i], c[0+1i])\n"), std::string::npos) << text;
}

// A walk stops where an operator leaves the row, or reduces it.
TEST(RowExpressions, StayInTheRow) {
  const auto rows = [](const std::string& qq) {
    return rows_of(attention_of_rows("", ", c: fixed.float16[P]", lines(qq, "k")).program.text());
  };
  EXPECT_EQ(rows("np.flip(q, axis=3) * c"),
            "q q; 0+1i of 4: multiply(q[3+-1i], c[0+1i])\nk k\n"
            "d_q d_q; 0+1i of 4: multiply(g[0+1i], c[3+-1i])\nd_k d_k\nmultiply | multiply\n");
  EXPECT_EQ(rows("np.flip(q, axis=2) * c"),
            "q qq\nk k\nd_q d_q; 0+1i of 4: multiply(g[0+1i], c[0+1i])\nd_k d_k\n | multiply\n");
  EXPECT_EQ(rows("rmsnorm(q, c) * 2"),
            "q qq.1; 0+1i of 4: multiply(qq.1[0+1i], 2)\nk k\nd_q d_qq.1; 0+1i of 4: multiply(g[0+1i], 2)\n"
            "d_k d_k\nmultiply | multiply\n");
}

// --- What a GPU's thread computes at a time ---

// A vector as "8 numbers of 0 16, 2 times": how many numbers it has, the first column of each run, and how many such
// vectors there are.
std::string vectors_of(const AttentionProgram& program, int columns) {
  const TrainingGraph training = training_of(text_with(program, {5, 5, columns, 8}, "float16"));
  const std::vector<bool> callers = callers_of(training);
  const FoundAttentions found = find_attentions(training.graph, callers);
  const RowExpression rows = absorbed_rows(training.graph, callers, found.attentions.front())->q.expression;
  const std::optional<std::vector<RowVectors>> vectors = row_vectors(rows);
  if (!vectors) return "odd columns";
  std::string text;
  int64_t count = 0;
  for (const RowVectors& each : *vectors) {
    text += concat(each.width, " numbers of");
    for (const RowRun& run : each.runs) {
      text += concat(" ", run.first);
      count += each.width * each.count * std::ssize(run.pieces);
      for (size_t k = 0; k < run.pieces.size(); ++k)
        EXPECT_EQ(rows.pieces[run.pieces[k]].first, run.first + static_cast<int64_t>(k));
    }
    text += concat(", ", each.count, " times\n");
  }
  EXPECT_EQ(count, columns);
  return text;
}

TEST(RowExpressions, VectorsHaveNeighbouringColumnsAndSharedSources) {
  const AttentionProgram swapped = row_family()[0].program;
  const AttentionProgram pairs_of_neighbours = row_family()[1].program;
  const AttentionProgram first_half = row_family()[2].program;
  EXPECT_EQ(vectors_of(swapped, 32), "8 numbers of 0 16, 2 times\n");
  EXPECT_EQ(vectors_of(swapped, 24), "4 numbers of 0 12, 3 times\n");
  EXPECT_EQ(vectors_of(pairs_of_neighbours, 32), "8 numbers of 0, 2 times\n");
  EXPECT_EQ(vectors_of(pairs_of_neighbours, 24), "4 numbers of 0, 3 times\n");
  EXPECT_EQ(vectors_of(first_half, 32), "8 numbers of 0 8, 1 times\n8 numbers of 16, 2 times\n");
  EXPECT_EQ(vectors_of(first_half, 24), "2 numbers of 0 6, 3 times\n4 numbers of 12, 3 times\n");
  EXPECT_EQ(vectors_of(first_half, 20), "odd columns");
}

}  // namespace
}  // namespace millrace
