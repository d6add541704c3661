#include <algorithm>

#include "candidates/partition_kinds.h"
#include "candidates/product.h"
#include "candidates/product_epilogue.h"

namespace millrace {
namespace {

constexpr size_t kMostPartlyStacked = 4;  // products of a sum, if some are stacked and the others added one by one

}  // namespace

AccumulationPartitions::AccumulationPartitions(const PartitionBuilder& builder, PartitionSet& set,
                                               bool reads_while_multiplying)
    : builder_(builder), set_(set), reads_while_multiplying_(reads_while_multiplying) {
  for (const std::vector<AddingProduct>& accumulation :
       find_accumulations(builder.graph(), builder.fused().epilogues)) {
    std::vector<Partition> sum;
    for (const AddingProduct& adding : accumulation) {
      const TensorId result = builder.op(adding.addition).outputs.front().tensor;
      std::optional<Partition> partition = accumulating({adding.contraction}, {result, adding.added, {adding.addition}},
                                                        product_of(builder.graph(), builder.op(adding.contraction)));
      if (partition) sum.push_back(std::move(*partition));
    }
    if (!sum.empty()) sums_.push_back(std::move(sum));
  }
}

// A partition of contractions that add their results to `sum.added`; nothing if one of the products cannot, which is
// counted as rejected.
std::optional<Partition> AccumulationPartitions::accumulating(const std::vector<OperatorId>& contractions,
                                                              const ProductSum& sum, Product product) {
  Partition partition = builder_.with_absorbed(contractions, sum.additions);
  std::optional<Rejection> rejection = Rejection{kResultNeeded};
  if (partition.writes.size() == 1) rejection = take_addition(builder_.graph(), sum.added, sum.sum, product);
  if (rejection) {
    set_.reject_absorbing(contractions, sum.additions, rejection->reason);
    return std::nullopt;
  }
  partition.product = std::move(product);
  return partition;
}

void AccumulationPartitions::add_sums() {
  for (const std::vector<Partition>& sum : sums_) offer(sum);
}

bool AccumulationPartitions::add_stack(const std::vector<OperatorId>& contractions, const Product& product) {
  const std::optional<ProductSum> sum =
      sum_with_another(builder_.graph(), builder_.readers(), builder_.producers(), contractions);
  if (!sum) return false;
  const std::optional<Partition> stack = accumulating(contractions, *sum, product);
  if (!stack) return true;
  std::vector<Partition> bundle = {*stack};
  for (const std::vector<Partition>& one_by_one : sums_) {
    const auto overlaps = [&](const Partition& one) { return !common(one.operators, stack->operators).empty(); };
    const auto among = std::count_if(one_by_one.begin(), one_by_one.end(), overlaps);
    if (among == 0 || among == std::ssize(one_by_one)) continue;
    if (one_by_one.size() > kMostPartlyStacked) return true;
    std::copy_if(one_by_one.begin(), one_by_one.end(), std::back_inserter(bundle),
                 [&](const Partition& one) { return !overlaps(one); });
  }
  offer(bundle);
  return true;
}

// Adds products that accumulate, of which either all run or none, unless they are not worth a trial.
void AccumulationPartitions::offer(const std::vector<Partition>& bundle) {
  std::vector<OperatorId> contractions;
  std::vector<OperatorId> additions;
  for (const Partition& partition : bundle) {
    for (const OperatorId op : partition.operators)
      (builder_.op(op).kind == OperatorKind::add ? additions : contractions).push_back(op);
  }
  const bool moves_less = builder_.words_saved(bundle, additions) > (reads_while_multiplying_ ? -1 : 0);
  if (!moves_less || !builder_.leaves_kernels(additions))
    return set_.reject_absorbing(contractions, additions, moves_less ? kRestIsNoKernel : kSavesNothing);
  std::vector<std::string> names;
  for (const Partition& partition : bundle) {
    set_.tie(bundle.front(), partition);
    names.push_back(add_once(partition));
  }
  set_.bundle(std::move(names));
  add_rest_of_groups(builder_, set_, additions);
  summable_.insert(summable_.end(), additions.begin(), additions.end());
}

// Its name, or that of the equal partition that is there already.
std::string AccumulationPartitions::add_once(const Partition& partition) {
  for (const PartitionCandidates& known : set_.partitions()) {
    if (known.partition.operators == partition.operators && known.partition.product.adds()) return known.partition.name;
  }
  Partition added = partition;
  set_.place_stacks(added.product);
  return set_.add(std::move(added));
}

}  // namespace millrace
