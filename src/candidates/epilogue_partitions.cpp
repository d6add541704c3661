#include <algorithm>
#include <map>

#include "candidates/partition_kinds.h"
#include "candidates/product.h"
#include "candidates/product_epilogue.h"
#include "ir/label.h"

namespace millrace {
namespace {

// By the first operator that an epilogue absorbs.
enum class EpilogueKind { bias, whole_tensor, function, bias_gradient };

EpilogueKind kind_of(const Graph& graph, OperatorId absorbed) {
  const Operator& op = graph.operators[absorbed.at()];
  if (op.kind == OperatorKind::sum) return EpilogueKind::bias_gradient;
  if (op.kind != OperatorKind::add) return EpilogueKind::function;
  return label_of(graph, op) == "bias" ? EpilogueKind::bias : EpilogueKind::whole_tensor;
}

bool is_gradient(OperatorKind kind) {
  return kind == OperatorKind::relu_dx || kind == OperatorKind::gelu_dx || kind == OperatorKind::gelu_tanh_dx;
}

class EpilogueFinder {
 public:
  EpilogueFinder(const PartitionBuilder& builder, PartitionSet& set, const GemmEpilogues& able)
      : builder_(builder), set_(set), able_(able) {}

  std::vector<OperatorId> run(const std::vector<Stacking>& stackings) {
    add_each(stackings, [](EpilogueKind kind) { return kind == EpilogueKind::bias || kind == EpilogueKind::function; });
    add_each(stackings, [](EpilogueKind kind) { return kind == EpilogueKind::bias_gradient; });
    return std::move(further_);
  }

 private:
  // Whole tensors are added by AccumulationPartitions.
  template <class Wanted>
  void add_each(const std::vector<Stacking>& stackings, Wanted wanted) {
    std::map<OperatorId, OperatorId> absorbed_by;  // by contraction: the bias, or gradient of one, that it can absorb
    for (const Epilogue& epilogue : builder_.fused().epilogues) {
      const EpilogueKind kind = kind_of(builder_.graph(), epilogue.absorbed.front());
      if (!wanted(kind)) continue;
      const bool added = add({epilogue.contraction}, epilogue.absorbed, kind);
      const bool stacks = kind == EpilogueKind::bias_gradient || epilogue.absorbed.size() == 1;
      if (added && stacks && kind != EpilogueKind::function)
        absorbed_by.emplace(epilogue.contraction, epilogue.absorbed.front());
    }
    for (const Stacking& stacking : stackings) {
      std::vector<OperatorId> absorbed;
      for (const OperatorId contraction : stacking.contractions) {
        if (absorbed_by.contains(contraction)) absorbed.push_back(absorbed_by.at(contraction));
      }
      if (stacking.kind == Stacking::Kind::shared_operand && absorbed.size() == stacking.contractions.size())
        add(stacking.contractions, absorbed, kind_of(builder_.graph(), absorbed.front()));
    }
  }

  // Whether it became a partition.
  bool add(const std::vector<OperatorId>& contractions, const std::vector<OperatorId>& absorbed, EpilogueKind kind) {
    const auto reject = [&](const std::string& reason) {
      set_.reject_absorbing(contractions, absorbed, reason);
      return false;
    };
    Partition partition = builder_.with_absorbed(contractions, absorbed);
    OrRejected<Product> product = product_with(contractions, absorbed, kind, partition.writes);
    if (!product) return reject(product.reason());
    const size_t more = kind == EpilogueKind::bias_gradient ? absorbed.size() : product->writes_auxiliary() ? 1 : 0;
    if (partition.writes.size() != product->tensors[2].size() + more) return reject(kResultNeeded);
    if (builder_.is_in_cycle(partition)) return reject(kCycle);
    if (!builder_.leaves_kernels(absorbed)) return reject(kRestIsNoKernel);
    // An epilogue that saves nothing while a kernel is whole may save something after another product's epilogue has
    // absorbed a part of that kernel.
    const bool alone = builder_.words_saved({partition}, absorbed) > 0;
    if (!alone && builder_.words_saved({partition}, absorbed, set_.absorbable()) <= 0) return reject(kSavesNothing);
    const Activation activation = product->activation;
    set_.place_stacks(*product);
    partition.product = std::move(*product);
    set_.add(std::move(partition));
    if (activation == Activation::gelu_gradient) reject_bias_gradients_after(contractions, absorbed);
    // A GELU makes a product slower, so the bias alone, with a kernel after it, is worth a trial too.
    std::vector<OperatorId>& into = alone && !is_gelu(activation) ? set_.absorbable() : further_;
    into.insert(into.end(), absorbed.begin(), absorbed.end());
    return true;
  }

  // The product with the operators that it absorbs: of each contraction a bias or its gradient; or of one contraction a
  // bias, a function, or both.
  OrRejected<Product> product_with(const std::vector<OperatorId>& contractions, const std::vector<OperatorId>& absorbed,
                                   EpilogueKind kind, const std::vector<TensorId>& needed) const {
    const Graph& graph = builder_.graph();
    OrRejected<Product> product = contractions.size() > 1
                                      ? stacked_product(graph, contractions, Stacking::Kind::shared_operand)
                                      : product_of(graph, builder_.op(contractions.front()));
    if (!product) return product;
    std::optional<Rejection> rejection;
    if (kind == EpilogueKind::bias_gradient) {
      rejection = take_bias_gradients(graph, absorbed, able_, *product);
      return rejection ? OrRejected<Product>(*rejection) : product;
    }
    const std::ptrdiff_t biases = kind == EpilogueKind::bias ? std::ssize(contractions) : 0;
    if (biases > 0) rejection = take_biases(graph, {absorbed.begin(), absorbed.begin() + biases}, *product);
    if (!rejection && std::ssize(absorbed) > biases + 1)
      rejection = Rejection{"the library's epilogue cannot do so much"};
    if (!rejection && std::ssize(absorbed) == biases + 1)
      rejection = is_gradient(builder_.op(absorbed.back()).kind)
                      ? take_activation_gradient(graph, absorbed.back(), able_, *product)
                      : take_activation(graph, absorbed.back(), needed, able_, *product);
    return rejection ? OrRejected<Product>(*rejection) : product;
  }

  // The library could also sum the result, for the gradient of a bias before the function.
  void reject_bias_gradients_after(const std::vector<OperatorId>& contractions,
                                   const std::vector<OperatorId>& absorbed) {
    const TensorId result = builder_.op(absorbed.back()).outputs[0].tensor;
    for (const OperatorId reader : builder_.readers()[result.at()]) {
      if (builder_.op(reader).kind != OperatorKind::sum) continue;
      std::vector<OperatorId> more = absorbed;
      more.push_back(reader);
      set_.reject_absorbing(contractions, more,
                            "the library takes longer for both at once than one by one (decisions/0005)");
    }
  }

  const PartitionBuilder& builder_;
  PartitionSet& set_;
  GemmEpilogues able_;
  std::vector<OperatorId> further_;
};

}  // namespace

std::vector<OperatorId> add_epilogues(const PartitionBuilder& builder, PartitionSet& set,
                                      const std::vector<Stacking>& stackings, const GemmEpilogues& able) {
  return EpilogueFinder(builder, set, able).run(stackings);
}

}  // namespace millrace
