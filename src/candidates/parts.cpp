#include "candidates/parts.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "base/unique_names.h"
#include "candidates/accumulations.h"
#include "candidates/attention_parts.h"
#include "candidates/product.h"
#include "candidates/product_epilogue.h"
#include "candidates/sites.h"
#include "ir/label.h"

namespace millrace {
namespace {

constexpr size_t kMostInParts = 4;  // products of a sum of which some are stacked, and the others add one by one

class PartFinder {
 public:
  PartFinder(const TrainingGraph& training, const FusedGraph& fused, bool on_gpu,
             std::vector<std::vector<TensorId>> families)
      : training_(training),
        graph_(training.graph),
        fused_(fused),
        on_gpu_(on_gpu),
        producers_(producers_of(graph_)),
        readers_(readers_of(graph_)),
        callers_(graph_.tensors.size(), false),
        site_of_(graph_.operators.size()) {
    for (const TensorId argument : graph_.arguments) callers_[argument.at()] = true;
    for (const Output& result : graph_.results) callers_[result.tensor.at()] = true;
    for (const TensorId gradient : training.result_gradients) callers_[gradient.at()] = true;
    for (const TensorId gradient : training.argument_gradients) {
      if (gradient.valid()) callers_[gradient.at()] = true;
    }
    // What only a statistic reads need not be in memory: where that is carried out, it is computed inside.
    for (std::vector<OperatorId>& readers : readers_)
      std::erase_if(readers, [&](OperatorId reader) { return has(training.statistics, reader); });
    found_.callers_families = families.size();
    found_.families = std::move(families);
    rank_arguments(training);
  }

  Candidates run() {
    for (size_t k = 0; k < site_of_.size(); ++k) site_of_[k] = k;
    for (const FusedOperator& group : fused_.groups) add_group(group);
    find_sums();
    std::vector<Stacking> by_size = fused_.stackings;
    std::stable_sort(by_size.begin(), by_size.end(),
                     [](const auto& l, const auto& r) { return l.contractions.size() > r.contractions.size(); });
    for (Stacking& stacking : by_size) {
      put_in_order(stacking);
      add_stacking(stacking);
    }
    for (const std::vector<Part>& sum : sums_) offer(sum);
    if (on_gpu_) add_epilogues(by_size);
    add_rests();
    rules_.optional = training_.statistics;
    if (on_gpu_) add_attentions();
    sort_parts();
    find_sites();
    return std::move(found_);
  }

 private:
  size_t site(size_t op) const {
    while (site_of_[op] != op) op = site_of_[op];
    return op;
  }

  void tie(const Part& part) { tie(part, part); }

  void tie(const Part& one, const Part& other) {
    for (const OperatorId op : other.operators) site_of_[site(op.at())] = site(one.operators.front().at());
  }

  void add(Part part) {
    part.name = names_.take(part.name, " ");
    tie(part);
    found_.parts.push_back({std::move(part), 0, {}, {}});
  }

  void find_sites() {
    rules_.site_of.clear();
    for (size_t op = 0; op < site_of_.size(); ++op) rules_.site_of.push_back(site(op));
    found_.sites = millrace::find_sites(found_.parts, fused_.groups, rules_);
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
    for (const std::vector<TensorId>& family : found_.families) {
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
  void find_movement(Part& part) const {
    std::set<TensorId> reads;
    const auto inside = [&](OperatorId op) {
      return std::find(part.operators.begin(), part.operators.end(), op) != part.operators.end();
    };
    for (const OperatorId id : part.operators) {
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
        if (needed) part.writes.push_back(output.tensor);
      }
    }
    part.reads.assign(reads.begin(), reads.end());
  }

  std::string name_of_writes(const Part& part) const {
    return part.writes.empty() ? "" : concat(" (", graph_.tensor(part.writes.back()).name, ")");
  }

  Part kernel_of(const FusedOperator& group, const std::vector<size_t>& members) const {
    Part part;
    part.pass = group.pass;
    for (const FusedIndex& index : group.space)
      part.space.push_back({index.dim, graph_.extent(index.dim), index.outer});
    for (const size_t member : members) {
      part.members.push_back(group.members[member]);
      part.index_of.push_back(group.index_of[member]);
    }
    part.operators = part.members;
    find_movement(part);
    return part;
  }

  // An operator alone: what it reduces is the row.
  Part single(OperatorId id) const {
    const Operator& op = graph_.operators[id.at()];
    Part part;
    part.name = op.name;
    part.pass = op.pass;
    part.operators = part.members = {id};
    part.index_of.emplace_back();
    for (size_t index = 0; index < op.space.size(); ++index) {
      const int64_t extent = graph_.extent(op.space[index]);
      part.index_of.back().push_back(extent == 1 ? kNoIndex : static_cast<int>(part.space.size()));
      if (extent > 1) part.space.push_back({op.space[index], extent, !op.reduced[index]});
    }
    find_movement(part);
    if (op.kind == OperatorKind::contraction) {
      part.kind = PartKind::contraction;
      part.product = product_of(graph_, op);
    }
    return part;
  }

  void add_group(const FusedOperator& group) {
    if (group.members.size() > 1) {
      Part part = kernel_of(group, rest_of(group, {}));
      part.name = concat(group.name, name_of_writes(part));
      add(std::move(part));
    }
    for (const OperatorId member : group.members) add(single(member));
  }

  std::vector<std::string> names_of(const std::vector<OperatorId>& operators) const {
    std::vector<std::string> names;
    for (const OperatorId op : operators) names.push_back(graph_.operators[op.at()].name);
    return names;
  }

  void decline(const Stacking& stacking, const std::string& reason) {
    found_.declined.push_back({concat(join(names_of(stacking.contractions), " + "), " stacked: ", reason), 1});
  }

  void add_stacking(const Stacking& stacking) {
    const bool summed = stacking.kind == Stacking::Kind::summed_results;
    std::string reason;
    std::optional<Product> product = stacked_product(graph_, stacking.contractions, summed, reason);
    if (!product) return decline(stacking, reason);
    const bool adds = summed && add_adding_stack(stacking, *product);
    Part part;
    part.kind = PartKind::contraction;
    part.operators = stacking.contractions;
    if (summed) {
      const std::optional<ProductSum> sum = sum_of(graph_, readers_, stacking.contractions);
      if (!sum && adds) return;
      if (!sum) return decline(stacking, "the program adds them up in another order");
      product->tensors[2] = {sum->sum};
      part.operators.insert(part.operators.end(), sum->additions.begin(), sum->additions.end());
      add_rest_of_groups(sum->additions);
    }
    part.pass = graph_.operators[stacking.contractions.front().at()].pass;
    part.name = join(names_of(stacking.contractions), " + ");
    find_movement(part);
    pack(*product);
    part.product = std::move(*product);
    add(std::move(part));
  }

  // --- Products that add to what is there ---

  // Contractions with the additions of them and of `added`; nothing, which is declined, where one product cannot.
  std::optional<Part> adding_part(const std::vector<OperatorId>& contractions, const ProductSum& sum, Product product) {
    Part part = epilogue_part(contractions, sum.additions);
    std::string reason = "the product's result is needed without it too";
    if (part.writes.size() == 1 && take_addition(graph_, sum.added, sum.sum, product, reason)) {
      part.product = std::move(product);
      return part;
    }
    decline_epilogue(contractions, sum.additions, reason);
    return std::nullopt;
  }

  // The products of each sum that can add themselves one by one.
  void find_sums() {
    for (const std::vector<AddingProduct>& accumulation : find_accumulations(graph_, fused_.epilogues)) {
      std::vector<Part> sum;
      for (const AddingProduct& adding : accumulation) {
        const TensorId result = graph_.operators[adding.addition.at()].outputs.front().tensor;
        std::optional<Part> part = adding_part({adding.contraction}, {result, adding.added, {adding.addition}},
                                               product_of(graph_, graph_.operators[adding.contraction.at()]));
        if (part) sum.push_back(std::move(*part));
      }
      if (!sum.empty()) sums_.push_back(std::move(sum));
    }
  }

  // Stacked products that add their sum to a tensor, and the other products of that sum one by one. Whether there are.
  bool add_adding_stack(const Stacking& stacking, const Product& product) {
    const std::optional<ProductSum> added_sum = sum_with_another(graph_, readers_, producers_, stacking.contractions);
    if (!added_sum) return false;
    std::optional<Part> part = adding_part(stacking.contractions, *added_sum, product);
    if (!part) return true;
    std::vector<Part> bundle = {*part};
    for (const std::vector<Part>& sum : sums_) {
      const auto overlaps = [&](const Part& one) { return !common(one.operators, part->operators).empty(); };
      const auto among = std::count_if(sum.begin(), sum.end(), overlaps);
      if (among == 0 || among == std::ssize(sum)) continue;
      if (sum.size() > kMostInParts) return true;
      std::copy_if(sum.begin(), sum.end(), std::back_inserter(bundle), [&](const Part& one) { return !overlaps(one); });
    }
    offer(bundle);
    return true;
  }

  // Products that add, all of which run or none.
  void offer(const std::vector<Part>& bundle) {
    std::vector<OperatorId> contractions;
    std::vector<OperatorId> additions;
    for (const Part& part : bundle) {
      for (const OperatorId op : part.operators)
        (graph_.operators[op.at()].kind == OperatorKind::add ? additions : contractions).push_back(op);
    }
    // What moves as much is worth a trial where the library reads it while it multiplies.
    const bool moves_less = words_saved(bundle, additions) > (on_gpu_ ? -1 : 0);
    if (!moves_less || !leaves_whole_kernels(additions)) {
      decline_epilogue(contractions, additions,
                       moves_less ? "what is left of the kernel around it is no kernel"
                                  : "the kernel around it moves as much without it");
      return;
    }
    std::vector<std::string> names;
    for (const Part& part : bundle) {
      tie(bundle.front(), part);
      const auto known = std::find_if(found_.parts.begin(), found_.parts.end(), [&](const PartCandidates& p) {
        return p.part.operators == part.operators && p.part.product.adds();
      });
      if (known != found_.parts.end()) {
        names.push_back(known->part.name);
        continue;
      }
      Part fresh = part;
      pack(fresh.product);
      add(std::move(fresh));
      names.push_back(found_.parts.back().part.name);
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
      Part part = kernel_of(group, rest);
      part.name = join(names_of(part.operators), ", ");
      const bool known = std::any_of(found_.parts.begin(), found_.parts.end(),
                                     [&](const PartCandidates& p) { return p.part.operators == part.operators; });
      if (!known) add(std::move(part));
    }
  }

  // --- Epilogues ---

  // A contraction, or several stacked, with the operators that a library does at its end.
  void add_epilogues(const std::vector<Stacking>& stackings) {
    for (const bool gradients : {false, true}) {
      std::map<OperatorId, OperatorId> taken;  // by contraction: its bias, or the gradient of one, that it can swallow
      for (const Epilogue& epilogue : fused_.epilogues) {
        if ((epilogue.name == "bias_gradient") != gradients || epilogue.name == "residual") continue;
        const bool added = add_epilogue({epilogue.contraction}, epilogue.swallowed, gradients);
        if (added && (gradients || epilogue.name == "bias"))
          taken.emplace(epilogue.contraction, epilogue.swallowed.front());
      }
      for (const Stacking& stacking : stackings) {
        std::vector<OperatorId> swallowed;
        for (const OperatorId contraction : stacking.contractions) {
          if (taken.contains(contraction)) swallowed.push_back(taken.at(contraction));
        }
        if (stacking.kind == Stacking::Kind::shared_operand && swallowed.size() == stacking.contractions.size())
          add_epilogue(stacking.contractions, swallowed, gradients);
      }
    }
  }

  // What is left of kernels when products do all of what they can, of either kind or of both.
  void add_rests() {
    std::vector<OperatorId> both = rules_.swallowable;
    both.insert(both.end(), summable_.begin(), summable_.end());
    std::vector<OperatorId> most = rules_.swallowable;
    most.insert(most.end(), further_.begin(), further_.end());
    for (const std::vector<OperatorId>* const absorbed : {&rules_.swallowable, &summable_, &both, &most})
      add_rest_of_groups(*absorbed);
  }

  // --- Attentions ---

  // Both parts of each, where the site that they tie together keeps all that its operators could be before.
  void add_attentions() {
    FoundAttentionParts attentions = find_attention_parts(training_, callers_);
    std::move(attentions.declined.begin(), attentions.declined.end(), std::back_inserter(found_.declined));
    if (attentions.parts.empty()) return;
    find_sites();
    std::map<size_t, size_t> alternatives;  // by site
    for (const Site& of : found_.sites) {
      const Part& first = found_.parts[static_cast<size_t>(of.alternatives.front().front())].part;
      alternatives[site(first.operators.front().at())] = of.alternatives.size();
    }
    for (AttentionParts& attention : attentions.parts) {
      std::set<size_t> tied;
      for (const Part* const part : {&attention.forward, &attention.backward}) {
        for (const OperatorId op : part->operators) tied.insert(site(op.at()));
      }
      size_t together = 1;  // without it, and then as many with it at most
      for (const size_t number : tied) together *= alternatives.contains(number) ? alternatives[number] : 1;
      if (2 * together > kMostAlternatives) {
        found_.declined.push_back({concat(attention.forward.name, ": its operators can be carried out in ", together,
                                          " other ways, too many to be tried beside it"),
                                   1});
        continue;
      }
      tie(attention.forward, attention.backward);
      rules_.bundles.emplace_back();
      for (Part* const part : {&attention.forward, &attention.backward}) {
        add(std::move(*part));
        rules_.bundles.back().push_back(found_.parts.back().part.name);
      }
      alternatives[site(found_.parts.back().part.operators.front().at())] = 2 * together;
    }
  }

  // The product with the operators that it swallows; nothing, and a reason, where it cannot.
  std::optional<Product> product_with(const std::vector<OperatorId>& contractions,
                                      const std::vector<OperatorId>& swallowed, bool gradients,
                                      const std::vector<TensorId>& needed, std::string& reason) const {
    std::optional<Product> product = product_of(graph_, graph_.operators[contractions.front().at()]);
    if (contractions.size() > 1) product = stacked_product(graph_, contractions, false, reason);
    if (!product) return product;
    if (gradients) return take_bias_gradients(graph_, swallowed, *product, reason) ? product : std::nullopt;
    // A bias each, or of one contraction a bias, a function, or both.
    const bool biases = label_of(graph_, graph_.operators[swallowed.front().at()]) == "bias";
    const size_t count = biases ? contractions.size() : 0;
    if (biases && !take_biases(graph_, {swallowed.begin(), swallowed.begin() + static_cast<std::ptrdiff_t>(count)},
                               *product, reason))
      return std::nullopt;
    if (swallowed.size() == count) return product;
    if (swallowed.size() > count + 1) {
      reason = "more than the library does at a product's end";
      return std::nullopt;
    }
    const bool taken = is_gradient_of_function(swallowed.back())
                           ? take_activation_gradient(graph_, swallowed.back(), *product, reason)
                           : take_activation(graph_, swallowed.back(), needed, *product, reason);
    return taken ? product : std::nullopt;
  }

  bool is_gradient_of_function(OperatorId op) const {
    const OperatorKind kind = graph_.operators[op.at()].kind;
    return kind == OperatorKind::relu_dx || kind == OperatorKind::gelu_dx || kind == OperatorKind::gelu_tanh_dx;
  }

  std::string name_of_epilogue(const std::vector<OperatorId>& contractions,
                               const std::vector<OperatorId>& swallowed) const {
    return concat(join(names_of(contractions), " + "), " with ", join(names_of(swallowed), ", "));
  }

  bool decline_epilogue(const std::vector<OperatorId>& contractions, const std::vector<OperatorId>& swallowed,
                        const std::string& reason) {
    found_.declined.push_back({concat(name_of_epilogue(contractions, swallowed), ": ", reason), 1});
    return false;
  }

  // Without its product.
  Part epilogue_part(const std::vector<OperatorId>& contractions, const std::vector<OperatorId>& swallowed) const {
    Part part;
    part.kind = PartKind::contraction;
    part.pass = graph_.operators[contractions.front().at()].pass;
    part.operators = contractions;
    part.operators.insert(part.operators.end(), swallowed.begin(), swallowed.end());
    part.name = name_of_epilogue(contractions, swallowed);
    find_movement(part);
    return part;
  }

  // Whether it became a part.
  bool add_epilogue(const std::vector<OperatorId>& contractions, const std::vector<OperatorId>& swallowed,
                    bool gradients) {
    const auto decline = [&](const std::string& reason) { return decline_epilogue(contractions, swallowed, reason); };
    std::string reason;
    Part part = epilogue_part(contractions, swallowed);
    std::optional<Product> product = product_with(contractions, swallowed, gradients, part.writes, reason);
    if (!product) return decline(reason);
    const size_t beside = gradients ? swallowed.size() : product->writes_auxiliary() ? 1 : 0;
    if (part.writes.size() != product->tensors[2].size() + beside)
      return decline("the product's result is needed without it too");
    if (waits_for_itself(part)) return decline("it would wait for what waits for it");
    if (!leaves_whole_kernels(swallowed)) return decline("what is left of the kernel around it is no kernel");
    // What saves nothing of a whole kernel may save the rest of one, of which another product swallows something.
    const bool alone = words_saved({part}, swallowed) > 0;
    if (!alone && words_saved({part}, swallowed, rules_.swallowable) <= 0)
      return decline("the kernel around it moves as much without it");
    const Activation activation = product->activation;
    pack(*product);
    part.product = std::move(*product);
    add(std::move(part));
    if (activation == Activation::gelu_gradient) decline_sums_behind(contractions, swallowed);
    // A GELU takes a product longer: the bias alone, and a kernel behind it, stays worth a trial.
    std::vector<OperatorId>& into = alone && activation != Activation::gelu ? rules_.swallowable : further_;
    into.insert(into.end(), swallowed.begin(), swallowed.end());
    return true;
  }

  // The library could sum what it writes, too, for the gradient of a bias in front of the function.
  void decline_sums_behind(const std::vector<OperatorId>& contractions, const std::vector<OperatorId>& swallowed) {
    const TensorId result = graph_.operators[swallowed.back().at()].outputs[0].tensor;
    for (const OperatorId reader : readers_[result.at()]) {
      if (graph_.operators[reader.at()].kind != OperatorKind::sum) continue;
      std::vector<OperatorId> more = swallowed;
      more.push_back(reader);
      decline_epilogue(contractions, more,
                       "the library takes longer for both at once than one by one (decisions/0005)");
    }
  }

  // Whether something else reads what the part writes, and makes what it reads.
  bool waits_for_itself(const Part& part) const {
    const auto inside = [&](OperatorId op) {
      return std::find(part.operators.begin(), part.operators.end(), op) != part.operators.end();
    };
    std::set<OperatorId> seen;
    std::vector<OperatorId> open;
    const auto follow = [&](TensorId tensor) {
      for (const OperatorId reader : readers_[tensor.at()]) {
        if (!inside(reader) && seen.insert(reader).second) open.push_back(reader);
      }
    };
    for (const TensorId tensor : part.writes) follow(tensor);
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

  // The members of a group that are not among `swallowed`.
  static std::vector<size_t> rest_of(const FusedOperator& group, const std::vector<OperatorId>& swallowed) {
    std::vector<size_t> rest;
    for (size_t k = 0; k < group.members.size(); ++k) {
      if (std::find(swallowed.begin(), swallowed.end(), group.members[k]) == swallowed.end()) rest.push_back(k);
    }
    return rest;
  }

  // Whether what is left of a kernel can run as one: along all of its indices, which the nest is made for, and without
  // waiting for what was swallowed.
  bool leaves_whole_kernel(const FusedOperator& group, const std::vector<OperatorId>& swallowed) const {
    const std::vector<size_t> rest = rest_of(group, swallowed);
    if (rest.size() == group.members.size() || rest.size() < 2) return true;
    std::set<int> used;
    for (const size_t member : rest) used.insert(group.index_of[member].begin(), group.index_of[member].end());
    used.erase(kNoIndex);
    return used.size() == group.space.size() && !waits_for_itself(kernel_of(group, rest));
  }

  bool leaves_whole_kernels(const std::vector<OperatorId>& swallowed) const {
    return std::all_of(fused_.groups.begin(), fused_.groups.end(),
                       [&](const FusedOperator& group) { return leaves_whole_kernel(group, swallowed); });
  }

  int64_t words_of_part(const Part& part) const {
    int64_t words = 0;
    for (const TensorId tensor : tensors_of(part)) words += words_of(graph_, tensor);
    return words;
  }

  // That the kernels move less when products swallow some of their members, less what these move more themselves.
  // `before`: what other products have swallowed by then.
  int64_t words_saved(const std::vector<Part>& products, const std::vector<OperatorId>& swallowed,
                      const std::vector<OperatorId>& before = {}) const {
    int64_t saved = 0;
    for (const Part& part : products) {
      Part plain;
      std::copy_if(part.operators.begin(), part.operators.end(), std::back_inserter(plain.operators),
                   [&](OperatorId op) { return graph_.operators[op.at()].kind == OperatorKind::contraction; });
      find_movement(plain);
      saved += words_of_part(plain) - words_of_part(part);
    }
    std::vector<OperatorId> all = before;
    all.insert(all.end(), swallowed.begin(), swallowed.end());
    for (const FusedOperator& group : fused_.groups) {
      const std::vector<size_t> whole = rest_of(group, before);
      const std::vector<size_t> rest = rest_of(group, all);
      if (rest.size() == whole.size()) continue;
      saved += words_of_part(kernel_of(group, whole));
      if (!rest.empty()) saved -= words_of_part(kernel_of(group, rest));
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
    for (const std::vector<TensorId>& family : found_.families) {
      if (std::search(family.begin(), family.end(), tensors.begin(), tensors.end()) != family.end()) return true;
      for (const TensorId tensor : tensors) {
        if (std::find(family.begin(), family.end(), tensor) != family.end()) return false;
      }
    }
    if (std::any_of(tensors.begin(), tensors.end(), [&](TensorId t) { return callers_[t.at()]; })) return false;
    if (std::set<TensorId>(tensors.begin(), tensors.end()).size() != tensors.size()) return false;
    found_.families.push_back(tensors);
    return true;
  }

  // Every part behind all that can make what it reads; parts of forward before those of backward. A stacked product
  // that would wait for itself by way of another one is dropped.
  void sort_parts() {
    std::vector<PartCandidates> sorted;
    std::vector<PartCandidates> open = std::move(found_.parts);
    const auto last = [](const Part& part) { return *std::max_element(part.operators.begin(), part.operators.end()); };
    std::stable_sort(open.begin(), open.end(),
                     [&](const auto& l, const auto& r) { return last(l.part) < last(r.part); });
    while (!open.empty()) {
      std::set<TensorId> missing;
      for (const PartCandidates& waiting : open) missing.insert(waiting.part.writes.begin(), waiting.part.writes.end());
      const auto ready = std::find_if(open.begin(), open.end(), [&](const PartCandidates& waiting) {
        return std::none_of(waiting.part.reads.begin(), waiting.part.reads.end(),
                            [&](TensorId t) { return missing.contains(t); });
      });
      if (ready != open.end()) {
        sorted.push_back(std::move(*ready));
        open.erase(ready);
        continue;
      }
      const auto stacked = std::find_if(open.rbegin(), open.rend(),
                                        [](const PartCandidates& waiting) { return waiting.part.members.empty(); });
      const bool named = stacked->part.product.has_epilogue() || stacked->part.product.adds() ||
                         stacked->part.kind == PartKind::attention;
      const char* const how = named ? "" : " stacked";
      found_.declined.push_back({concat(stacked->part.name, how, ": it would wait for what waits for it"), 1});
      open.erase(std::next(stacked).base());
    }
    found_.parts = std::move(sorted);
  }

  const TrainingGraph& training_;
  const Graph& graph_;
  const FusedGraph& fused_;
  bool on_gpu_;
  std::vector<OperatorId> producers_;
  std::vector<std::vector<OperatorId>> readers_;
  std::vector<bool> callers_;  // one a tensor: the caller's memory
  std::map<TensorId, Rank> rank_;
  std::vector<size_t> site_of_;  // one an operator: union-find
  UniqueNames names_;
  std::vector<std::vector<Part>> sums_;  // one a sum: products that add themselves to it, one by one
  std::vector<OperatorId> summable_;     // additions that some product does
  std::vector<OperatorId> further_;      // what products may swallow beside what they must all swallow or leave
  SiteRules rules_;
  Candidates found_;
};

}  // namespace

Candidates find_parts(const TrainingGraph& training, const FusedGraph& fused, bool on_gpu,
                      const std::vector<std::vector<TensorId>>& callers_families) {
  return PartFinder(training, fused, on_gpu, callers_families).run();
}

Part conversion_part(const Graph& graph, TensorId tensor) {
  Part part;
  part.name = concat(graph.tensor(tensor).name, " conversion");
  for (const DimId dim : graph.tensor(tensor).dims) {
    if (graph.extent(dim) > 1) part.space.push_back({dim, graph.extent(dim), true});
  }
  part.reads = part.writes = {tensor};
  return part;
}

}  // namespace millrace
