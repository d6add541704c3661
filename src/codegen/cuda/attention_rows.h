// The rows of an attention's operand that are computed from tensors in memory, or stored after a computation, as a
// struct of prelude/cuda_attention_computed.h. Test: tests/measure/attention_rows_trial_test.cpp
#pragma once

#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "codegen/cuda/attention_score.h"
#include "codegen/kernel_text.h"
#include "ir/row_vectors.h"

namespace millrace {

class CudaRowFormulas {
 public:
  // `layouts`: one for each tensor of the partition. `integer`: the type of offsets.
  CudaRowFormulas(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                  Attention::Operand operand, std::string integer);

  bool empty() const { return rows_.empty(); }
  // Adds the numbers and strides that kernels take.
  void add_values(std::vector<KernelValue>& values);
  // The definition of the struct `name`. `matrix`: the type of the matrix that it stores, if it does.
  std::string definition(const std::string& name, const std::string& matrix) const;
  // Its members for one head, without the matrix.
  std::string members(const ScoreFormulas::HeadOffset& offset_of) const;

 private:
  // Elements of a term, or of the gradient, that a vector reads.
  struct Source {
    enum class Kind { one, neighbours, strided };
    Kind kind = Kind::one;
    bool gradient = false;
    size_t term = 0;
    int64_t offset = 0;  // of number 0
    int64_t step = 0;    // from number to number

    bool operator==(const Source&) const = default;
  };
  // What a node reads: element step · l + phase of a source.
  struct Read {
    size_t source = 0;
    int64_t phase = 0;
  };
  struct Vectors {
    RowVectors columns;
    std::vector<Source> sources;
    std::vector<std::vector<Read>> reads;  // by run, its pieces and their nodes, one after the other
  };

  bool is_stored() const { return partition_.attention.writes(operand_); }
  void find_sources(Vectors& vectors) const;
  Read read_of(const RowNode& node, int64_t count, Vectors& vectors) const;
  Source source_of(const RowNode& node, int64_t count, int64_t& phase) const;
  size_t position_of(TensorId tensor) const;
  std::string element_type(size_t term) const;
  std::vector<int64_t> strides_of_term(size_t term) const;
  int64_t alignment(const Source& source, int64_t width) const;
  int64_t stored_alignment(const RowRun& run, int64_t width) const;
  std::string load_text(size_t vectors, size_t number) const;
  std::string node_text(const Vectors& vectors, size_t piece, size_t node, const Read& read) const;
  std::string run_text(const Vectors& vectors, size_t number) const;
  std::string vector_text(size_t number, const std::string& name) const;

  const Graph& graph_;
  const Partition& partition_;
  const RowExpression& rows_;
  const std::vector<Layout>& layouts_;
  Attention::Operand operand_;
  std::string integer_;
  std::vector<Vectors> vectors_;
  // Positions among the kernel's values.
  std::vector<size_t> strides_;               // per term: of its rows, then of the batch indices
  std::vector<std::vector<size_t>> offsets_;  // per kind of vector and source of a term: its offset, and its step
  std::vector<std::vector<size_t>> numbers_;  // per piece and node
};

}  // namespace millrace
