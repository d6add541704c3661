// Attentions that every kernel of fused attention is tested with: name, config and problem.
// Used by tests/codegen/attention_kernel_test.cpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "codegen/attention_problem.h"

namespace millrace {

struct AttentionCase {
  std::string name;
  AttentionConfig config;
  AttentionProblem problem;
};

// `set` changes the default problem.
template <class Set>
AttentionCase make_case(std::string name, const AttentionConfig& config, const Set& set) {
  AttentionCase result{std::move(name), config, {}};
  set(result.problem);
  return result;
}

// The attention of bench/programs/bert_encoder.py, but smaller.
inline void like_bert(AttentionProblem& p) {
  p.batch = {2};
  p.queries = p.keys = 128;
  p.inner = p.values = 64;
  p.rate = 0.1;
  p.mask_bits = true;
}

inline std::vector<AttentionCase> attention_cases() {
  using AxisOrder = AttentionProblem::AxisOrder;
  using MaskOrder = AttentionProblem::MaskOrder;
  return {
      make_case("plain", {1, 1, 32, 1}, [](AttentionProblem&) {}),
      make_case("several tiles, some partial", {2, 1, 32, 2},
                [](AttentionProblem& p) {
                  p.queries = 70;
                  p.keys = 100;
                  p.dtype = DType::bfloat16;
                }),
      make_case("three stages, two row tiles, inner and values differ", {2, 2, 64, 3},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.queries = 75;
                  p.keys = 203;
                  p.inner = 48;
                  p.values = 16;
                  p.set_order(AxisOrder::rows_batch_columns);
                }),
      make_case("causal", {2, 1, 32, 2},
                [](AttentionProblem& p) {
                  p.causal = true;
                  p.queries = p.keys = 91;
                  p.set_order(AxisOrder::reversed_batch_rows_columns);
                }),
      make_case("causal, more keys than queries, a negative scale", {2, 1, 64, 2},
                [](AttentionProblem& p) {
                  p.causal = true;
                  p.queries = 50;
                  p.keys = 130;
                  p.scales = {0.5, -0.25};
                }),
      make_case("causal, more queries than keys, scale 0", {1, 1, 32, 2},
                [](AttentionProblem& p) {
                  p.causal = true;
                  p.queries = 130;
                  p.keys = 50;
                  p.scales = {0};
                }),
      make_case("dropout in blocks of keys", {2, 1, 32, 2},
                [](AttentionProblem& p) {
                  p.rate = 0.3;
                  p.set_order(AxisOrder::rows_batch_columns);
                }),
      make_case("dropout and causal, two row tiles", {1, 2, 64, 1},
                [](AttentionProblem& p) {
                  p.rate = 0.1;
                  p.causal = true;
                  p.keys = 72;
                  p.values = 64;
                  p.dtype = DType::bfloat16;
                  p.set_order(AxisOrder::reversed_batch_rows_columns);
                }),
      make_case("dropout, keys not in blocks", {2, 1, 32, 2},
                [](AttentionProblem& p) {
                  p.rate = 0.3;
                  p.keys = 45;
                }),
      make_case("dropout, neighbours are queries", {2, 1, 32, 2},
                [](AttentionProblem& p) {
                  p.rate = 0.3;
                  p.mask_order = MaskOrder::queries_last;
                }),
      make_case("dropout, neighbours are heads", {2, 1, 32, 1},
                [](AttentionProblem& p) {
                  p.rate = 0.3;
                  p.mask_order = MaskOrder::batch_last;
                  p.scales = {};
                }),
      make_case("col-major", {2, 1, 32, 2},
                [](AttentionProblem& p) {
                  p.set_order(AxisOrder::columns_batch_rows);
                  p.rate = 0.3;
                  p.queries = 72;
                  p.keys = 104;
                  p.values = 48;
                }),
      make_case("columns that are multiples of 8", {2, 1, 32, 2},
                [](AttentionProblem& p) {
                  p.inner = 40;
                  p.values = 72;
                  p.queries = 65;
                  p.keys = 63;
                  p.rate = 0.3;
                }),
      make_case("col-major, columns that are multiples of 8, few keys", {1, 2, 64, 1},
                [](AttentionProblem& p) {
                  p.inner = 8;
                  p.values = 24;
                  p.queries = 16;
                  p.keys = 8;
                  p.set_order(AxisOrder::columns_batch_rows);
                }),
      make_case("col-major, causal, no dropout", {1, 2, 64, 1},
                [](AttentionProblem& p) {
                  p.set_order(AxisOrder::batch_columns_rows);
                  p.causal = true;
                  p.dtype = DType::bfloat16;
                  p.queries = p.keys = 88;
                }),
      make_case("inputs col-major", {2, 1, 64, 2},
                [](AttentionProblem& p) {
                  p.inputs = AxisOrder::columns_batch_rows;
                  p.rate = 0.3;
                  p.mask_order = MaskOrder::queries_last;
                }),
      make_case("results col-major", {2, 1, 32, 3},
                [](AttentionProblem& p) {
                  p.results = AxisOrder::batch_columns_rows;
                  p.rate = 0.3;
                }),
      make_case("gradients col-major", {2, 1, 32, 2},
                [](AttentionProblem& p) {
                  p.gradients = AxisOrder::batch_columns_rows;
                  p.inputs = AxisOrder::rows_batch_columns;
                  p.rate = 0.3;
                }),
      make_case("no batch, one query", {1, 1, 32, 2},
                [](AttentionProblem& p) {
                  p.batch = {};
                  p.queries = 1;
                  p.keys = 24;
                  p.rate = 0.5;
                  p.inner = p.values = 128;
                }),
      make_case("masks as bits", {2, 1, 32, 2},
                [](AttentionProblem& p) {
                  p.rate = 0.3;
                  p.mask_bits = true;
                  p.keys = 96;
                }),
      make_case("masks as bits that are all set", {2, 1, 32, 2},
                [](AttentionProblem& p) {
                  p.rate = 1e-6;  // the threshold rounds to 0
                  p.mask_bits = true;
                  p.keys = 64;
                }),
      make_case("masks as bits, col-major, two row tiles", {1, 2, 64, 2},
                [](AttentionProblem& p) {
                  p.rate = 0.3;
                  p.mask_bits = true;
                  p.set_order(AxisOrder::columns_batch_rows);
                  p.queries = 72;
                  p.keys = 96;
                }),
      make_case("masks as bits, causal", {2, 1, 32, 2},
                [](AttentionProblem& p) {
                  p.causal = true;
                  p.rate = 0.3;
                  p.mask_bits = true;
                  p.queries = 50;
                  p.keys = 160;
                }),
      make_case("masks as bits, causal, wgmma", {4, 1, 64, 2, true, true},
                [](AttentionProblem& p) {
                  like_bert(p);
                  p.causal = true;
                }),
      make_case("masks as bits, wgmma", {4, 1, 64, 2, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.rate = 0.1;
                  p.mask_bits = true;
                  p.queries = 64;
                  p.keys = 128;
                  p.inner = p.values = 64;
                }),
      make_case("masks as bits, wgmma, partial blocks", {8, 1, 64, 2, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.rate = 0.3;
                  p.mask_bits = true;
                  p.queries = p.keys = 64;
                  p.inner = p.values = 64;
                  p.dtype = DType::bfloat16;
                }),
      make_case("single kernel", {4, 1, 32, 2, false, false, true},
                [](AttentionProblem& p) {
                  p.queries = 70;
                  p.keys = 50;
                  p.inner = 32;
                  p.values = 48;
                  p.rate = 0.3;
                }),
      make_case("single kernel, fewer keys than rows, scores far below zero", {1, 1, 32, 2, false, false, true},
                [](AttentionProblem& p) {
                  p.keys = 1;
                  p.scales = {100};
                }),
      make_case("single kernel, causal, two row tiles, col-major", {2, 2, 64, 1, false, false, true},
                [](AttentionProblem& p) {
                  p.causal = true;
                  p.queries = p.keys = 56;
                  p.dtype = DType::bfloat16;
                  p.scales = {-0.25};
                  p.set_order(AxisOrder::columns_batch_rows);
                }),
      make_case("single kernel, wgmma", {8, 1, 64, 2, true, true, true}, like_bert),
      make_case("single kernel, wgmma, col-major", {8, 1, 64, 2, true, true, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.queries = 64;
                  p.keys = 128;
                  p.inner = 128;
                  p.values = 64;
                  p.rate = 0.3;
                  p.set_order(AxisOrder::batch_columns_rows);
                }),
      make_case("single kernel, wgmma, fewer keys than rows", {8, 1, 64, 2, true, true, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.queries = 192;
                  p.keys = 64;
                  p.inner = p.values = 64;
                  p.dtype = DType::bfloat16;
                }),
      make_case("grouped heads, causal", {2, 1, 32, 2},
                [](AttentionProblem& p) {
                  p.batch = {2, 3};
                  p.groups = {1};
                  p.causal = true;
                  p.queries = p.keys = 75;
                  p.rate = 0.3;
                }),
      make_case("two indices of a group, neither last, keys in columns", {1, 1, 64, 1},
                [](AttentionProblem& p) {
                  p.batch = {2, 2, 2};
                  p.groups = {0, 2};
                  p.keys = 56;
                  p.inputs = AxisOrder::columns_batch_rows;
                  p.dtype = DType::bfloat16;
                }),
      make_case("one head of keys, wgmma, masks as bits", {4, 1, 64, 2, true, true},
                [](AttentionProblem& p) {
                  like_bert(p);
                  p.batch = {3};
                  p.groups = {0};
                }),
      make_case("rows in smem", {4, 1, 64, 2, true, true}, like_bert),
      make_case("rows in smem, causal, partial tiles, a negative scale", {4, 1, 64, 3, true, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.causal = true;
                  p.queries = p.keys = 91;
                  p.inner = p.values = 64;
                  p.scales = {-0.25};
                  p.rate = 0.3;
                  p.dtype = DType::bfloat16;
                }),
      make_case("rows in smem, single kernel, causal, a negative scale", {8, 1, 64, 2, true, true, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.causal = true;
                  p.queries = p.keys = 104;
                  p.inner = p.values = 64;
                  p.scales = {-0.25};
                  p.rate = 0.3;
                }),
      make_case("single kernel, one warpgroup", {4, 1, 64, 2, true, true, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.queries = p.keys = 64;
                  p.inner = 128;
                  p.values = 64;
                  p.rate = 0.1;
                }),
      make_case("rows in smem, col-major", {8, 1, 64, 2, true, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.set_order(AxisOrder::columns_batch_rows);
                  p.queries = 72;
                  p.keys = 200;
                  p.inner = 128;
                  p.values = 64;
                  p.rate = 0.3;
                }),
      make_case("rows in smem, inputs col-major", {4, 1, 64, 1, true, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.inputs = AxisOrder::batch_columns_rows;
                  p.queries = p.keys = 64;
                  p.inner = 64;
                  p.values = 128;
                }),
      make_case("specialized", {8, 1, 64, 2, true, true, false, true}, like_bert),
      make_case("specialized, causal, tiles of 128", {8, 1, 128, 2, true, true, false, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.causal = true;
                  p.queries = p.keys = 300;
                  p.inner = 64;
                  p.values = 128;
                  p.dtype = DType::bfloat16;
                }),
      make_case("specialized, three warpgroups, causal, partial blocks, a negative scale",
                {12, 1, 64, 3, true, true, false, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.causal = true;
                  p.queries = 250;
                  p.keys = 330;
                  p.inner = p.values = 64;
                  p.rate = 0.3;
                  p.scales = {-0.25};
                }),
      make_case("specialized, masks as bits, causal, more queries than keys", {8, 1, 64, 4, true, true, false, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.causal = true;
                  p.queries = 200;
                  p.keys = 96;
                  p.inner = p.values = 64;
                  p.rate = 0.3;
                  p.mask_bits = true;
                  p.dtype = DType::bfloat16;
                }),
      make_case("specialized, col-major", {8, 1, 128, 2, true, true, false, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.set_order(AxisOrder::columns_batch_rows);
                  p.queries = 136;
                  p.keys = 200;
                  p.inner = 128;
                  p.values = 64;
                  p.rate = 0.3;
                }),
      make_case("specialized, heads of a group split, causal", {8, 1, 64, 3, true, true, false, true, 2},
                [](AttentionProblem& p) {
                  p.batch = {2, 4};
                  p.groups = {1};
                  p.causal = true;
                  p.queries = p.keys = 140;
                  p.inner = p.values = 64;
                  p.rate = 0.3;
                  p.dtype = DType::bfloat16;
                }),
      make_case("wgmma", {4, 1, 64, 2, true},
                [](AttentionProblem& p) { p.queries = p.keys = p.inner = p.values = 64; }),
      make_case("wgmma, several tiles, three stages", {4, 1, 64, 3, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.queries = 192;
                  p.keys = 256;
                  p.inner = 64;
                  p.values = 128;
                  p.dtype = DType::bfloat16;
                  p.set_order(AxisOrder::rows_batch_columns);
                }),
      make_case("wgmma, dropout, a negative scale", {4, 1, 64, 2, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.rate = 0.3;
                  p.queries = 64;
                  p.keys = 128;
                  p.inner = 128;
                  p.values = 64;
                  p.scales = {-0.25};
                }),
      make_case("wgmma, col-major", {8, 1, 64, 2, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.set_order(AxisOrder::columns_batch_rows);
                  p.rate = 0.3;
                  p.queries = 128;
                  p.keys = 64;
                  p.inner = p.values = 64;
                }),
      make_case("wgmma, inputs col-major", {4, 1, 64, 2, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.inputs = AxisOrder::batch_columns_rows;
                  p.rate = 0.1;
                  p.queries = p.keys = 64;
                  p.inner = 64;
                  p.values = 128;
                  p.dtype = DType::bfloat16;
                }),
      make_case("wgmma, results col-major", {4, 1, 64, 2, true},
                [](AttentionProblem& p) {
                  p.batch = {2};
                  p.results = AxisOrder::columns_batch_rows;
                  p.rate = 0.3;
                  p.mask_order = MaskOrder::queries_last;
                  p.queries = p.keys = 64;
                  p.inner = 128;
                  p.values = 64;
                }),
  };
}

}  // namespace millrace
