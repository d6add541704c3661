#include "candidates/partitions.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "base/unique_names.h"
#include "candidates/accumulations.h"
#include "candidates/attention_partitions.h"
#include "candidates/choice_points.h"
#include "candidates/product.h"
#include "candidates/product_epilogue.h"
#include "ir/label.h"

namespace millrace {
namespace {

constexpr size_t kMostInPartitions = 4;  // products of a sum of which some are stacked, and the others add one by one

class PartitionFinder {
 public:
  PartitionFinder(const TrainingGraph& training, const FusedGraph& fused, bool on_gpu,
                  std::vector<std::vector<TensorId>> families)
      : training_(training),
        graph_(training.graph),
        fused_(fused),
        on_gpu_(on_gpu),
        producers_(producers_of(graph_)),
        readers_(readers_of(graph_)),
        callers_(graph_.tensors.size(), false),
        choice_point_of_(graph_.operators.size()) {
    for (const TensorId argument : graph_.arguments) callers_[argument.at()] = true;
    for (const Output& result : graph_.results) callers_[result.tensor.at()] = true;
    for (const TensorId gradient : training.result_gradients) callers_[gradient.at()] = true;
    for (const TensorId gradient : training.argument_gradients) {
      if (gradient.valid()) callers_[gradient.at()] = true;
    }
    // What only a statistic reads need not be in memory: where that is carried out, it is computed inside.
    for (std::vector<OperatorId>& readers : readers_)
      std::erase_if(readers, [&](OperatorId reader) { return has(training.statistics, reader); });
    found_.callers_contiguous_groups = families.size();
    found_.contiguous_groups = std::move(families);
    rank_arguments(training);
  }

  Candidates run() {
    for (size_t k = 0; k < choice_point_of_.size(); ++k) choice_point_of_[k] = k;
    for (const FusedOperator& group : fused_.groups) add_group(group);
    find_sums();
    std::vector<Stacking> by_size = fused_.stackings;
    std::stable_sort(by_size.begin(), by_size.end(),
                     [](const auto& l, const auto& r) { return l.contractions.size() > r.contractions.size(); });
    for (Stacking& stacking : by_size) {
      put_in_order(stacking);
      add_stacking(stacking);
    }
    for (const std::vector<Partition>& sum : sums_) offer(sum);
    if (on_gpu_) add_epilogues(by_size);
    add_rests();
    rules_.optional = training_.statistics;
    if (on_gpu_) add_attentions();
    sort_partitions();
    find_choice_points();
    return std::move(found_);
  }

 private:
  size_t choice_point(size_t op) const {
    while (choice_point_of_[op] != op) op = choice_point_of_[op];
    return op;
  }

  void tie(const Partition& partition) { tie(partition, partition); }

  void tie(const Partition& one, const Partition& other) {
    for (const OperatorId op : other.operators)
      choice_point_of_[choice_point(op.at())] = choice_point(one.operators.front().at());
  }

  void add(Partition partition) {
    partition.name = names_.take(partition.name, " ");
    tie(partition);
    found_.partitions.push_back({std::move(partition), 0, {}, {}});
  }

  void find_choice_points() {
    rules_.choice_point_of.clear();
    for (size_t op = 0; op < choice_point_of_.size(); ++op) rules_.choice_point_of.push_back(choice_point(op));
    found_.choice_points = millrace::find_choice_points(found_.partitions, fused_.groups, rules_);
  }

  // --- The order of stacks ---

  // Where an argument, or its gradient, stands among the arguments; what is in a family of the caller's, in that.
  using Rank = std::pair<size_t, size_t>;

  void rank_arguments(const TrainingGraph& training) {
    std::map<TensorId, size_t> position;
    for (size_t k = 0; k < graph_.arguments.size(); ++k) {
      position[graph_.arguments[k]] = k;
      if (training.argument_gradients[k].valid()) position[training.argument_gradients[k]] = k;
    }
    std::map<TensorId, Rank> in_family;
    for (const std::vector<TensorId>& family : found_.contiguous_groups) {
      size_t first = graph_.arguments.size();
      for (const TensorId tensor : family)
        first = position.contains(tensor) ? std::min(first, position[tensor]) : first;
      for (size_t k = 0; k < family.size(); ++k) in_family[family[k]] = {first, k};
    }
    for (size_t k = 0; k < graph_.arguments.size(); ++k) {
      const TensorId argument = graph_.arguments[k];
      const TensorId gradient = training.argument_gradients[k];
      const auto rank = [&](TensorId own, TensorId other) {
        for (const TensorId tensor : {own, other}) {
          if (const auto found = in_family.find(tensor); found != in_family.end()) return found->second;
        }
        return Rank{k, 0};
      };
      rank_[argument] = rank(argument, gradient);
      if (gradient.valid()) rank_[gradient] = rank(gradient, argument);
    }
  }

  // Stacks of forward and backward in one order, that of the arguments they are about, so that what is adjacent for one
  // of them is for the others too.
  void put_in_order(Stacking& stacking) const {
    const auto ranks = [&](OperatorId id) {
      std::vector<Rank> found;
      const Operator& op = graph_.operators[id.at()];
      for (const std::vector<Access>* accesses : {&op.inputs, &op.outputs}) {
        for (const Access& access : *accesses) {
          if (const auto rank = rank_.find(access.tensor); rank != rank_.end()) found.push_back(rank->second);
        }
      }
      std::sort(found.begin(), found.end());
      return found;
    };
    std::stable_sort(stacking.contractions.begin(), stacking.contractions.end(),
                     [&](OperatorId l, OperatorId r) { return ranks(l) < ranks(r); });
  }

  // What of the members' tensors is in memory.
  void find_movement(Partition& partition) const {
    std::set<TensorId> reads;
    const auto inside = [&](OperatorId op) {
      return std::find(partition.operators.begin(), partition.operators.end(), op) != partition.operators.end();
    };
    for (const OperatorId id : partition.operators) {
      const Operator& op = graph_.operators[id.at()];
      for (const Access& input : op.inputs) {
        const OperatorId producer = producers_[input.tensor.at()];
        const bool number = graph_.tensor(input.tensor).role == TensorRole::scalar ||
                            graph_.tensor(input.tensor).role == TensorRole::constant;
        if (!number && !(producer.valid() && inside(producer))) reads.insert(input.tensor);
      }
      for (const Access& output : op.outputs) {
        const std::vector<OperatorId>& readers = readers_[output.tensor.at()];
        const bool needed = callers_[output.tensor.at()] ||
                            std::any_of(readers.begin(), readers.end(), [&](OperatorId r) { return !inside(r); });
        if (needed) partition.writes.push_back(output.tensor);
      }
    }
    partition.reads.assign(reads.begin(), reads.end());
  }

  std::string name_of_writes(const Partition& partition) const {
    return partition.writes.empty() ? "" : concat(" (", graph_.tensor(partition.writes.back()).name, ")");
  }

  Partition kernel_of(const FusedOperator& group, const std::vector<size_t>& members) const {
    Partition partition;
    partition.pass = group.pass;
    for (const FusedIndex& index : group.space)
      partition.space.push_back({index.dim, graph_.extent(index.dim), index.outer});
    for (const size_t member : members) {
      partition.members.push_back(group.members[member]);
      partition.index_of.push_back(group.index_of[member]);
    }
    partition.operators = partition.members;
    find_movement(partition);
    return partition;
  }

  // An operator alone: what it reduces is the row.
  Partition single(OperatorId id) const {
    const Operator& op = graph_.operators[id.at()];
    Partition partition;
    partition.name = op.name;
    partition.pass = op.pass;
    partition.operators = partition.members = {id};
    partition.index_of.emplace_back();
    for (size_t index = 0; index < op.space.size(); ++index) {
      const int64_t extent = graph_.extent(op.space[index]);
      partition.index_of.back().push_back(extent == 1 ? kNoIndex : static_cast<int>(partition.space.size()));
      if (extent > 1) partition.space.push_back({op.space[index], extent, !op.reduced[index]});
    }
    find_movement(partition);
    if (op.kind == OperatorKind::contraction) {
      partition.kind = PartitionKind::contraction;
      partition.product = product_of(graph_, op);
    }
    return partition;
  }

  void add_group(const FusedOperator& group) {
    if (group.members.size() > 1) {
      Partition partition = kernel_of(group, rest_of(group, {}));
      partition.name = concat(group.name, name_of_writes(partition));
      add(std::move(partition));
    }
    for (const OperatorId member : group.members) add(single(member));
  }

  std::vector<std::string> names_of(const std::vector<OperatorId>& operators) const {
    std::vector<std::string> names;
    for (const OperatorId op : operators) names.push_back(graph_.operators[op.at()].name);
    return names;
  }

  void reject(const Stacking& stacking, const std::string& reason) {
    found_.rejected.push_back({concat(join(names_of(stacking.contractions), " + "), " stacked: ", reason), 1});
  }

  void add_stacking(const Stacking& stacking) {
    const bool summed = stacking.kind == Stacking::Kind::summed_results;
    std::string reason;
    std::optional<Product> product = stacked_product(graph_, stacking.contractions, summed, reason);
    if (!product) return reject(stacking, reason);
    const bool adds = summed && add_adding_stack(stacking, *product);
    Partition partition;
    partition.kind = PartitionKind::contraction;
    partition.operators = stacking.contractions;
    if (summed) {
      const std::optional<ProductSum> sum = sum_of(graph_, readers_, stacking.contractions);
      if (!sum && adds) return;
      if (!sum) return reject(stacking, "the program adds them up in another order");
      product->tensors[2] = {sum->sum};
      partition.operators.insert(partition.operators.end(), sum->additions.begin(), sum->additions.end());
      add_rest_of_groups(sum->additions);
    }
    partition.pass = graph_.operators[stacking.contractions.front().at()].pass;
    partition.name = join(names_of(stacking.contractions), " + ");
    find_movement(partition);
    pack(*product);
    partition.product = std::move(*product);
    add(std::move(partition));
  }

  // --- Products that add to what is there ---

  // Contractions with the additions of them and of `added`; nothing, which is rejected, where one product cannot.
  std::optional<Partition> adding_partition(const std::vector<OperatorId>& contractions, const ProductSum& sum,
                                            Product product) {
    Partition partition = epilogue_partition(contractions, sum.additions);
    std::string reason = "the product's result is needed without it too";
    if (partition.writes.size() == 1 && take_addition(graph_, sum.added, sum.sum, product, reason)) {
      partition.product = std::move(product);
      return partition;
    }
    reject_epilogue(contractions, sum.additions, reason);
    return std::nullopt;
  }

  // The products of each sum that can add themselves one by one.
  void find_sums() {
    for (const std::vector<AddingProduct>& accumulation : find_accumulations(graph_, fused_.epilogues)) {
      std::vector<Partition> sum;
      for (const AddingProduct& adding : accumulation) {
        const TensorId result = graph_.operators[adding.addition.at()].outputs.front().tensor;
        std::optional<Partition> partition =
            adding_partition({adding.contraction}, {result, adding.added, {adding.addition}},
                             product_of(graph_, graph_.operators[adding.contraction.at()]));
        if (partition) sum.push_back(std::move(*partition));
      }
      if (!sum.empty()) sums_.push_back(std::move(sum));
    }
  }

  // Stacked products that add their sum to a tensor, and the other products of that sum one by one. Whether there are.
  bool add_adding_stack(const Stacking& stacking, const Product& product) {
    const std::optional<ProductSum> added_sum = sum_with_another(graph_, readers_, producers_, stacking.contractions);
    if (!added_sum) return false;
    std::optional<Partition> partition = adding_partition(stacking.contractions, *added_sum, product);
    if (!partition) return true;
    std::vector<Partition> bundle = {*partition};
    for (const std::vector<Partition>& sum : sums_) {
      const auto overlaps = [&](const Partition& one) { return !common(one.operators, partition->operators).empty(); };
      const auto among = std::count_if(sum.begin(), sum.end(), overlaps);
      if (among == 0 || among == std::ssize(sum)) continue;
      if (sum.size() > kMostInPartitions) return true;
      std::copy_if(sum.begin(), sum.end(), std::back_inserter(bundle),
                   [&](const Partition& one) { return !overlaps(one); });
    }
    offer(bundle);
    return true;
  }

  // Products that add, all of which run or none.
  void offer(const std::vector<Partition>& bundle) {
    std::vector<OperatorId> contractions;
    std::vector<OperatorId> additions;
    for (const Partition& partition : bundle) {
      for (const OperatorId op : partition.operators)
        (graph_.operators[op.at()].kind == OperatorKind::add ? additions : contractions).push_back(op);
    }
    // What moves as much is worth a trial where the library reads it while it multiplies.
    const bool moves_less = words_saved(bundle, additions) > (on_gpu_ ? -1 : 0);
    if (!moves_less || !leaves_whole_kernels(additions)) {
      reject_epilogue(contractions, additions,
                      moves_less ? "what is left of the kernel around it is no kernel"
                                 : "the kernel around it moves as much without it");
      return;
    }
    std::vector<std::string> names;
    for (const Partition& partition : bundle) {
      tie(bundle.front(), partition);
      const auto known =
          std::find_if(found_.partitions.begin(), found_.partitions.end(), [&](const PartitionCandidates& p) {
            return p.partition.operators == partition.operators && p.partition.product.adds();
          });
      if (known != found_.partitions.end()) {
        names.push_back(known->partition.name);
        continue;
      }
      Partition fresh = partition;
      pack(fresh.product);
      add(std::move(fresh));
      names.push_back(found_.partitions.back().partition.name);
    }
    rules_.bundles.push_back(std::move(names));
    add_rest_of_groups(additions);
    summable_.insert(summable_.end(), additions.begin(), additions.end());
  }

  // What is left of a kernel when a stacked product does some of its additions.
  void add_rest_of_groups(const std::vector<OperatorId>& absorbed) {
    for (const FusedOperator& group : fused_.groups) {
      const std::vector<size_t> rest = rest_of(group, absorbed);
      if (rest.size() == group.members.size() || rest.size() < 2 || !leaves_whole_kernel(group, absorbed)) continue;
      Partition partition = kernel_of(group, rest);
      partition.name = join(names_of(partition.operators), ", ");
      const bool known =
          std::any_of(found_.partitions.begin(), found_.partitions.end(),
                      [&](const PartitionCandidates& p) { return p.partition.operators == partition.operators; });
      if (!known) add(std::move(partition));
    }
  }

  // --- Epilogues ---

  // A contraction, or several stacked, with the operators that a library does at its end.
  void add_epilogues(const std::vector<Stacking>& stackings) {
    for (const bool gradients : {false, true}) {
      std::map<OperatorId, OperatorId> taken;  // by contraction: its bias, or the gradient of one, that it can absorb
      for (const Epilogue& epilogue : fused_.epilogues) {
        if ((epilogue.name == "bias_gradient") != gradients || epilogue.name == "residual") continue;
        const bool added = add_epilogue({epilogue.contraction}, epilogue.absorbed, gradients);
        if (added && (gradients || epilogue.name == "bias"))
          taken.emplace(epilogue.contraction, epilogue.absorbed.front());
      }
      for (const Stacking& stacking : stackings) {
        std::vector<OperatorId> absorbed;
        for (const OperatorId contraction : stacking.contractions) {
          if (taken.contains(contraction)) absorbed.push_back(taken.at(contraction));
        }
        if (stacking.kind == Stacking::Kind::shared_operand && absorbed.size() == stacking.contractions.size())
          add_epilogue(stacking.contractions, absorbed, gradients);
      }
    }
  }

  // What is left of kernels when products do all of what they can, of either kind or of both.
  void add_rests() {
    std::vector<OperatorId> both = rules_.absorbable;
    both.insert(both.end(), summable_.begin(), summable_.end());
    std::vector<OperatorId> most = rules_.absorbable;
    most.insert(most.end(), further_.begin(), further_.end());
    for (const std::vector<OperatorId>* const absorbed : {&rules_.absorbable, &summable_, &both, &most})
      add_rest_of_groups(*absorbed);
  }

  // --- Attentions ---

  // Both parts of each, where the choice point that they tie together keeps all that its operators could be before.
  void add_attentions() {
    FoundAttentionPartitions attentions = find_attention_partitions(training_, callers_);
    std::move(attentions.rejected.begin(), attentions.rejected.end(), std::back_inserter(found_.rejected));
    if (attentions.partitions.empty()) return;
    find_choice_points();
    std::map<size_t, size_t> alternatives;  // by choice point
    for (const ChoicePoint& of : found_.choice_points) {
      const Partition& first = found_.partitions[static_cast<size_t>(of.alternatives.front().front())].partition;
      alternatives[choice_point(first.operators.front().at())] = of.alternatives.size();
    }
    for (AttentionPartitions& attention : attentions.partitions) {
      std::set<size_t> tied;
      for (const Partition* const partition : {&attention.forward, &attention.backward}) {
        for (const OperatorId op : partition->operators) tied.insert(choice_point(op.at()));
      }
      size_t together = 1;  // without it, and then as many with it at most
      for (const size_t number : tied) together *= alternatives.contains(number) ? alternatives[number] : 1;
      if (2 * together > kMostAlternatives) {
        found_.rejected.push_back({concat(attention.forward.name, ": its operators can be carried out in ", together,
                                          " other ways, too many to be tried beside it"),
                                   1});
        continue;
      }
      tie(attention.forward, attention.backward);
      rules_.bundles.emplace_back();
      for (Partition* const partition : {&attention.forward, &attention.backward}) {
        add(std::move(*partition));
        rules_.bundles.back().push_back(found_.partitions.back().partition.name);
      }
      alternatives[choice_point(found_.partitions.back().partition.operators.front().at())] = 2 * together;
    }
  }

  // The product with the operators that it absorbs; nothing, and a reason, where it cannot.
  std::optional<Product> product_with(const std::vector<OperatorId>& contractions,
                                      const std::vector<OperatorId>& absorbed, bool gradients,
                                      const std::vector<TensorId>& needed, std::string& reason) const {
    std::optional<Product> product = product_of(graph_, graph_.operators[contractions.front().at()]);
    if (contractions.size() > 1) product = stacked_product(graph_, contractions, false, reason);
    if (!product) return product;
    if (gradients) return take_bias_gradients(graph_, absorbed, *product, reason) ? product : std::nullopt;
    // A bias each, or of one contraction a bias, a function, or both.
    const bool biases = label_of(graph_, graph_.operators[absorbed.front().at()]) == "bias";
    const size_t count = biases ? contractions.size() : 0;
    if (biases && !take_biases(graph_, {absorbed.begin(), absorbed.begin() + static_cast<std::ptrdiff_t>(count)},
                               *product, reason))
      return std::nullopt;
    if (absorbed.size() == count) return product;
    if (absorbed.size() > count + 1) {
      reason = "more than the library does at a product's end";
      return std::nullopt;
    }
    const bool taken = is_gradient_of_function(absorbed.back())
                           ? take_activation_gradient(graph_, absorbed.back(), *product, reason)
                           : take_activation(graph_, absorbed.back(), needed, *product, reason);
    return taken ? product : std::nullopt;
  }

  bool is_gradient_of_function(OperatorId op) const {
    const OperatorKind kind = graph_.operators[op.at()].kind;
    return kind == OperatorKind::relu_dx || kind == OperatorKind::gelu_dx || kind == OperatorKind::gelu_tanh_dx;
  }

  std::string name_of_epilogue(const std::vector<OperatorId>& contractions,
                               const std::vector<OperatorId>& absorbed) const {
    return concat(join(names_of(contractions), " + "), " with ", join(names_of(absorbed), ", "));
  }

  bool reject_epilogue(const std::vector<OperatorId>& contractions, const std::vector<OperatorId>& absorbed,
                       const std::string& reason) {
    found_.rejected.push_back({concat(name_of_epilogue(contractions, absorbed), ": ", reason), 1});
    return false;
  }

  // Without its product.
  Partition epilogue_partition(const std::vector<OperatorId>& contractions,
                               const std::vector<OperatorId>& absorbed) const {
    Partition partition;
    partition.kind = PartitionKind::contraction;
    partition.pass = graph_.operators[contractions.front().at()].pass;
    partition.operators = contractions;
    partition.operators.insert(partition.operators.end(), absorbed.begin(), absorbed.end());
    partition.name = name_of_epilogue(contractions, absorbed);
    find_movement(partition);
    return partition;
  }

  // Whether it became a partition.
  bool add_epilogue(const std::vector<OperatorId>& contractions, const std::vector<OperatorId>& absorbed,
                    bool gradients) {
    const auto reject = [&](const std::string& reason) { return reject_epilogue(contractions, absorbed, reason); };
    std::string reason;
    Partition partition = epilogue_partition(contractions, absorbed);
    std::optional<Product> product = product_with(contractions, absorbed, gradients, partition.writes, reason);
    if (!product) return reject(reason);
    const size_t beside = gradients ? absorbed.size() : product->writes_auxiliary() ? 1 : 0;
    if (partition.writes.size() != product->tensors[2].size() + beside)
      return reject("the product's result is needed without it too");
    if (waits_for_itself(partition)) return reject("it would wait for what waits for it");
    if (!leaves_whole_kernels(absorbed)) return reject("what is left of the kernel around it is no kernel");
    // What saves nothing of a whole kernel may save the rest of one, of which another product absorbs something.
    const bool alone = words_saved({partition}, absorbed) > 0;
    if (!alone && words_saved({partition}, absorbed, rules_.absorbable) <= 0)
      return reject("the kernel around it moves as much without it");
    const Activation activation = product->activation;
    pack(*product);
    partition.product = std::move(*product);
    add(std::move(partition));
    if (activation == Activation::gelu_gradient) reject_sums_behind(contractions, absorbed);
    // A GELU takes a product longer: the bias alone, and a kernel behind it, stays worth a trial.
    std::vector<OperatorId>& into = alone && activation != Activation::gelu ? rules_.absorbable : further_;
    into.insert(into.end(), absorbed.begin(), absorbed.end());
    return true;
  }

  // The library could sum what it writes, too, for the gradient of a bias in front of the function.
  void reject_sums_behind(const std::vector<OperatorId>& contractions, const std::vector<OperatorId>& absorbed) {
    const TensorId result = graph_.operators[absorbed.back().at()].outputs[0].tensor;
    for (const OperatorId reader : readers_[result.at()]) {
      if (graph_.operators[reader.at()].kind != OperatorKind::sum) continue;
      std::vector<OperatorId> more = absorbed;
      more.push_back(reader);
      reject_epilogue(contractions, more, "the library takes longer for both at once than one by one (decisions/0005)");
    }
  }

  // Whether something else reads what the partition writes, and makes what it reads.
  bool waits_for_itself(const Partition& partition) const {
    const auto inside = [&](OperatorId op) {
      return std::find(partition.operators.begin(), partition.operators.end(), op) != partition.operators.end();
    };
    std::set<OperatorId> seen;
    std::vector<OperatorId> open;
    const auto follow = [&](TensorId tensor) {
      for (const OperatorId reader : readers_[tensor.at()]) {
        if (!inside(reader) && seen.insert(reader).second) open.push_back(reader);
      }
    };
    for (const TensorId tensor : partition.writes) follow(tensor);
    while (!open.empty()) {
      const Operator& op = graph_.operators[open.back().at()];
      open.pop_back();
      for (const Access& output : op.outputs) {
        const std::vector<OperatorId>& readers = readers_[output.tensor.at()];
        if (std::any_of(readers.begin(), readers.end(), inside)) return true;
        follow(output.tensor);
      }
    }
    return false;
  }

  // The members of a group that are not among `absorbed`.
  static std::vector<size_t> rest_of(const FusedOperator& group, const std::vector<OperatorId>& absorbed) {
    std::vector<size_t> rest;
    for (size_t k = 0; k < group.members.size(); ++k) {
      if (std::find(absorbed.begin(), absorbed.end(), group.members[k]) == absorbed.end()) rest.push_back(k);
    }
    return rest;
  }

  // Whether what is left of a kernel can run as one: along all of its indices, which the nest is made for, and without
  // waiting for what was absorbed.
  bool leaves_whole_kernel(const FusedOperator& group, const std::vector<OperatorId>& absorbed) const {
    const std::vector<size_t> rest = rest_of(group, absorbed);
    if (rest.size() == group.members.size() || rest.size() < 2) return true;
    std::set<int> used;
    for (const size_t member : rest) used.insert(group.index_of[member].begin(), group.index_of[member].end());
    used.erase(kNoIndex);
    return used.size() == group.space.size() && !waits_for_itself(kernel_of(group, rest));
  }

  bool leaves_whole_kernels(const std::vector<OperatorId>& absorbed) const {
    return std::all_of(fused_.groups.begin(), fused_.groups.end(),
                       [&](const FusedOperator& group) { return leaves_whole_kernel(group, absorbed); });
  }

  int64_t words_of_partition(const Partition& partition) const {
    int64_t words = 0;
    for (const TensorId tensor : tensors_of(partition)) words += words_of(graph_, tensor);
    return words;
  }

  // That the kernels move less when products absorb some of their members, less what these move more themselves.
  // `before`: what other products have absorbed by then.
  int64_t words_saved(const std::vector<Partition>& products, const std::vector<OperatorId>& absorbed,
                      const std::vector<OperatorId>& before = {}) const {
    int64_t saved = 0;
    for (const Partition& partition : products) {
      Partition plain;
      std::copy_if(partition.operators.begin(), partition.operators.end(), std::back_inserter(plain.operators),
                   [&](OperatorId op) { return graph_.operators[op.at()].kind == OperatorKind::contraction; });
      find_movement(plain);
      saved += words_of_partition(plain) - words_of_partition(partition);
    }
    std::vector<OperatorId> all = before;
    all.insert(all.end(), absorbed.begin(), absorbed.end());
    for (const FusedOperator& group : fused_.groups) {
      const std::vector<size_t> whole = rest_of(group, before);
      const std::vector<size_t> rest = rest_of(group, all);
      if (rest.size() == whole.size()) continue;
      saved += words_of_partition(kernel_of(group, whole));
      if (!rest.empty()) saved -= words_of_partition(kernel_of(group, rest));
    }
    return saved;
  }

  // Stacked tensors lie one behind the other where they can, and are copied together where not.
  void pack(Product& product) {
    for (size_t operand = 0; operand < kOperands; ++operand) {
      if (product.operand(operand).size() > 1) product.packed[operand] = !make_adjacent(product.operand(operand));
    }
  }

  // Whether the tensors lie one behind the other in some family, or can from now on: the caller's lie where they do.
  bool make_adjacent(const std::vector<TensorId>& tensors) {
    for (const std::vector<TensorId>& family : found_.contiguous_groups) {
      if (std::search(family.begin(), family.end(), tensors.begin(), tensors.end()) != family.end()) return true;
      for (const TensorId tensor : tensors) {
        if (std::find(family.begin(), family.end(), tensor) != family.end()) return false;
      }
    }
    if (std::any_of(tensors.begin(), tensors.end(), [&](TensorId t) { return callers_[t.at()]; })) return false;
    if (std::set<TensorId>(tensors.begin(), tensors.end()).size() != tensors.size()) return false;
    found_.contiguous_groups.push_back(tensors);
    return true;
  }

  // Every partition behind all that can make what it reads; parts of forward before those of backward. A stacked
  // product that would wait for itself by way of another one is dropped.
  void sort_partitions() {
    std::vector<PartitionCandidates> sorted;
    std::vector<PartitionCandidates> open = std::move(found_.partitions);
    const auto last = [](const Partition& partition) {
      return *std::max_element(partition.operators.begin(), partition.operators.end());
    };
    std::stable_sort(open.begin(), open.end(),
                     [&](const auto& l, const auto& r) { return last(l.partition) < last(r.partition); });
    while (!open.empty()) {
      std::set<TensorId> missing;
      for (const PartitionCandidates& waiting : open)
        missing.insert(waiting.partition.writes.begin(), waiting.partition.writes.end());
      const auto ready = std::find_if(open.begin(), open.end(), [&](const PartitionCandidates& waiting) {
        return std::none_of(waiting.partition.reads.begin(), waiting.partition.reads.end(),
                            [&](TensorId t) { return missing.contains(t); });
      });
      if (ready != open.end()) {
        sorted.push_back(std::move(*ready));
        open.erase(ready);
        continue;
      }
      const auto stacked = std::find_if(open.rbegin(), open.rend(), [](const PartitionCandidates& waiting) {
        return waiting.partition.members.empty();
      });
      const bool named = stacked->partition.product.has_epilogue() || stacked->partition.product.adds() ||
                         stacked->partition.kind == PartitionKind::attention;
      const char* const how = named ? "" : " stacked";
      found_.rejected.push_back({concat(stacked->partition.name, how, ": it would wait for what waits for it"), 1});
      open.erase(std::next(stacked).base());
    }
    found_.partitions = std::move(sorted);
  }

  const TrainingGraph& training_;
  const Graph& graph_;
  const FusedGraph& fused_;
  bool on_gpu_;
  std::vector<OperatorId> producers_;
  std::vector<std::vector<OperatorId>> readers_;
  std::vector<bool> callers_;  // one a tensor: the caller's memory
  std::map<TensorId, Rank> rank_;
  std::vector<size_t> choice_point_of_;  // one an operator: union-find
  UniqueNames names_;
  std::vector<std::vector<Partition>> sums_;  // one a sum: products that add themselves to it, one by one
  std::vector<OperatorId> summable_;          // additions that some product does
  std::vector<OperatorId> further_;           // what products may absorb beside what they must all absorb or leave
  ChoicePointRules rules_;
  Candidates found_;
};

}  // namespace

Candidates find_partitions(const TrainingGraph& training, const FusedGraph& fused, bool on_gpu,
                           const std::vector<std::vector<TensorId>>& callers_contiguous_groups) {
  return PartitionFinder(training, fused, on_gpu, callers_contiguous_groups).run();
}

Partition conversion_partition(const Graph& graph, TensorId tensor) {
  Partition partition;
  partition.name = concat(graph.tensor(tensor).name, " conversion");
  for (const DimId dim : graph.tensor(tensor).dims) {
    if (graph.extent(dim) > 1) partition.space.push_back({dim, graph.extent(dim), true});
  }
  partition.reads = partition.writes = {tensor};
  return partition;
}

}  // namespace millrace
