#include "candidates/parts.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "base/unique_names.h"
#include "candidates/product.h"
#include "candidates/product_epilogue.h"
#include "ir/label.h"

namespace millrace {
namespace {

constexpr size_t kMostAlternatives = 64;  // of a site
constexpr size_t kMostCovers = 4096;      // that are looked at to find them, where epilogues make many

class PartFinder {
 public:
  PartFinder(const TrainingGraph& training, const FusedGraph& fused, std::vector<std::vector<TensorId>> families)
      : graph_(training.graph),
        fused_(fused),
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
    found_.callers_families = families.size();
    found_.families = std::move(families);
    rank_arguments(training);
  }

  Candidates run(bool epilogues) {
    for (size_t k = 0; k < site_of_.size(); ++k) site_of_[k] = k;
    for (const FusedOperator& group : fused_.groups) add_group(group);
    std::vector<Stacking> by_size = fused_.stackings;
    std::stable_sort(by_size.begin(), by_size.end(),
                     [](const auto& l, const auto& r) { return l.contractions.size() > r.contractions.size(); });
    for (Stacking& stacking : by_size) {
      put_in_order(stacking);
      add_stacking(stacking);
    }
    if (epilogues) add_epilogues(by_size);
    sort_parts();
    find_sites();
    return std::move(found_);
  }

 private:
  size_t site(size_t op) const {
    while (site_of_[op] != op) op = site_of_[op];
    return op;
  }

  void tie(const Part& part) {
    for (const OperatorId op : part.operators) site_of_[site(op.at())] = site(part.operators.front().at());
  }

  void add(Part part) {
    part.name = names_.take(part.name, " ");
    tie(part);
    found_.parts.push_back({std::move(part), 0, {}, {}});
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

  // The tensor that holds the sum of exactly these contractions, if the program's additions make one.
  TensorId sum_of(const Stacking& stacking, std::vector<OperatorId>& additions) const {
    std::set<TensorId> open;
    for (const OperatorId op : stacking.contractions) open.insert(graph_.operators[op.at()].outputs.front().tensor);
    bool found = true;
    while (found && open.size() > 1) {
      found = false;
      for (const TensorId tensor : open) {
        for (const OperatorId reader : readers_[tensor.at()]) {
          const Operator& op = graph_.operators[reader.at()];
          if (op.kind != OperatorKind::add || !open.contains(op.inputs[0].tensor) ||
              !open.contains(op.inputs[1].tensor) || op.inputs[0].tensor == op.inputs[1].tensor)
            continue;
          const TensorId first = op.inputs[0].tensor;
          const TensorId second = op.inputs[1].tensor;
          if (op.inputs[0].axes != in_order(op.space.size()) || op.inputs[1].axes != in_order(op.space.size()))
            continue;
          if (readers_[first.at()].size() != 1 || readers_[second.at()].size() != 1) continue;
          open.erase(first);
          open.erase(second);
          open.insert(op.outputs.front().tensor);
          additions.push_back(reader);
          found = true;
          break;
        }
        if (found) break;
      }
    }
    return open.size() == 1 ? *open.begin() : TensorId();
  }

  void add_stacking(const Stacking& stacking) {
    const bool summed = stacking.kind == Stacking::Kind::summed_results;
    std::string reason;
    std::optional<Product> product = stacked_product(graph_, stacking.contractions, summed, reason);
    if (!product) return decline(stacking, reason);
    Part part;
    part.kind = PartKind::contraction;
    part.operators = stacking.contractions;
    if (summed) {
      std::vector<OperatorId> additions;
      const TensorId sum = sum_of(stacking, additions);
      if (!sum.valid()) return decline(stacking, "the program adds them up in another order");
      product->tensors[2] = {sum};
      part.operators.insert(part.operators.end(), additions.begin(), additions.end());
      add_rest_of_groups(additions);
    }
    part.pass = graph_.operators[stacking.contractions.front().at()].pass;
    part.name = join(names_of(stacking.contractions), " + ");
    find_movement(part);
    pack(*product);
    part.product = std::move(*product);
    add(std::move(part));
  }

  // What is left of a kernel when a stacked product does some of its additions.
  void add_rest_of_groups(const std::vector<OperatorId>& absorbed) {
    for (const FusedOperator& group : fused_.groups) {
      const std::vector<size_t> rest = rest_of(group, absorbed);
      if (rest.size() == group.members.size() || rest.size() < 2) continue;
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
        if ((epilogue.name == "bias_gradient") != gradients) continue;
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
    if (leaves_whole_kernels(swallowable_)) add_rest_of_groups(swallowable_);
  }

  // The product with the operators that it swallows; nothing, and a reason, where it cannot.
  std::optional<Product> product_with(const std::vector<OperatorId>& contractions,
                                      const std::vector<OperatorId>& swallowed, bool gradients,
                                      std::string& reason) const {
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
    return take_relu(graph_, swallowed.back(), *product, reason) ? product : std::nullopt;
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

  // Whether it became a part.
  bool add_epilogue(const std::vector<OperatorId>& contractions, const std::vector<OperatorId>& swallowed,
                    bool gradients) {
    const auto decline = [&](const std::string& reason) { return decline_epilogue(contractions, swallowed, reason); };
    std::string reason;
    std::optional<Product> product = product_with(contractions, swallowed, gradients, reason);
    if (!product) return decline(reason);
    Part part;
    part.kind = PartKind::contraction;
    part.pass = graph_.operators[contractions.front().at()].pass;
    part.operators = contractions;
    part.operators.insert(part.operators.end(), swallowed.begin(), swallowed.end());
    part.name = name_of_epilogue(contractions, swallowed);
    find_movement(part);
    if (part.writes.size() != product->tensors[2].size() + (gradients ? swallowed.size() : 0))
      return decline("the product's result is needed without it too");
    if (waits_for_itself(part)) return decline("it would wait for what waits for it");
    if (!leaves_whole_kernels(swallowed)) return decline("what is left of the kernel around it is no kernel");
    if (words_saved(part, contractions, swallowed) <= 0)
      return decline("the kernel around it moves as much without it");
    pack(*product);
    part.product = std::move(*product);
    add(std::move(part));
    swallowable_.insert(swallowable_.end(), swallowed.begin(), swallowed.end());
    return true;
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

  // Whether what is left of each kernel can run as one: along all of its indices, which the nest is made for, and
  // without waiting for what was swallowed.
  bool leaves_whole_kernels(const std::vector<OperatorId>& swallowed) const {
    return std::all_of(fused_.groups.begin(), fused_.groups.end(), [&](const FusedOperator& group) {
      const std::vector<size_t> rest = rest_of(group, swallowed);
      if (rest.size() == group.members.size() || rest.size() < 2) return true;
      std::set<int> used;
      for (const size_t member : rest) used.insert(group.index_of[member].begin(), group.index_of[member].end());
      used.erase(kNoIndex);
      return used.size() == group.space.size() && !waits_for_itself(kernel_of(group, rest));
    });
  }

  int64_t words_of_part(const Part& part) const {
    int64_t words = 0;
    for (const TensorId tensor : tensors_of(part)) words += words_of(graph_, tensor);
    return words;
  }

  // That the kernels move less when a product swallows some of their members, less what it moves more itself.
  int64_t words_saved(const Part& part, const std::vector<OperatorId>& contractions,
                      const std::vector<OperatorId>& swallowed) const {
    Part plain;
    plain.operators = contractions;
    find_movement(plain);
    int64_t saved = words_of_part(plain) - words_of_part(part);
    for (const FusedOperator& group : fused_.groups) {
      const std::vector<size_t> rest = rest_of(group, swallowed);
      if (rest.size() == group.members.size()) continue;
      saved += words_of_part(kernel_of(group, rest_of(group, {})));
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
      const char* const how = stacked->part.product.has_epilogue() ? "" : " stacked";
      found_.declined.push_back({concat(stacked->part.name, how, ": it would wait for what waits for it"), 1});
      open.erase(std::next(stacked).base());
    }
    found_.parts = std::move(sorted);
  }

  // All ways to choose parts that carry out each operator of the site once.
  void cover(const std::vector<size_t>& parts, const std::vector<OperatorId>& operators, size_t most,
             std::vector<int>& chosen, std::set<OperatorId>& done, std::vector<std::vector<int>>& covers) const {
    if (covers.size() >= most) return;
    const auto next =
        std::find_if(operators.begin(), operators.end(), [&](OperatorId op) { return !done.contains(op); });
    if (next == operators.end()) {
      covers.push_back(chosen);
      return;
    }
    for (const size_t candidate : parts) {
      const Part& part = found_.parts[candidate].part;
      const bool has = std::find(part.operators.begin(), part.operators.end(), *next) != part.operators.end();
      if (!has ||
          std::any_of(part.operators.begin(), part.operators.end(), [&](OperatorId op) { return done.contains(op); }))
        continue;
      chosen.push_back(static_cast<int>(candidate));
      done.insert(part.operators.begin(), part.operators.end());
      cover(parts, operators, most, chosen, done, covers);
      for (const OperatorId op : part.operators) done.erase(op);
      chosen.pop_back();
    }
  }

  // A kernel is either fused or all of its members are apart: between the two lies nothing worth measuring. Either all
  // of it that products can swallow is swallowed, and what is left is fused, or nothing.
  bool mixes(const std::vector<int>& alternative) const {
    for (const FusedOperator& group : fused_.groups) {
      if (group.members.size() < 2) continue;
      size_t fused = 0;
      size_t apart = 0;
      bool swallowed = false;
      bool left = false;  // could have been swallowed
      for (const int number : alternative) {
        const Part& part = found_.parts[static_cast<size_t>(number)].part;
        const std::vector<OperatorId> of_group = common(part.operators, group.members);
        if (part.product.has_epilogue()) {
          swallowed = swallowed || !of_group.empty();
        } else {
          left = left || !common(of_group, swallowable_).empty();
        }
        if (part.members.empty() || of_group.empty()) continue;
        ++(part.members.size() > 1 ? fused : apart);
      }
      if ((fused > 0 && apart > 0) || (swallowed && (left || apart > 1))) return true;
    }
    return false;
  }

  static std::vector<OperatorId> common(const std::vector<OperatorId>& one, const std::vector<OperatorId>& other) {
    std::vector<OperatorId> both;
    std::copy_if(one.begin(), one.end(), std::back_inserter(both),
                 [&](OperatorId op) { return std::find(other.begin(), other.end(), op) != other.end(); });
    return both;
  }

  void find_sites() {
    std::map<size_t, std::vector<size_t>> parts_of;
    for (size_t k = 0; k < found_.parts.size(); ++k)
      parts_of[site(found_.parts[k].part.operators.front().at())].push_back(k);
    for (auto& [root, parts] : parts_of) {
      // Larger parts first: the first cover is the fused one, with contractions apart.
      std::stable_sort(parts.begin(), parts.end(), [&](size_t l, size_t r) {
        const auto size = [&](size_t k) { return found_.parts[k].part.members.size(); };
        return size(l) > size(r);
      });
      std::set<OperatorId> operators;
      for (const size_t k : parts)
        operators.insert(found_.parts[k].part.operators.begin(), found_.parts[k].part.operators.end());
      std::vector<int> chosen;
      std::set<OperatorId> done;
      std::vector<std::vector<int>> covers;
      const bool epilogues = std::any_of(parts.begin(), parts.end(),
                                         [&](size_t k) { return found_.parts[k].part.product.has_epilogue(); });
      cover(parts, {operators.begin(), operators.end()}, epilogues ? kMostCovers : kMostAlternatives, chosen, done,
            covers);
      Site found;
      for (std::vector<int>& alternative : covers) {
        if (mixes(alternative)) continue;
        std::sort(alternative.begin(), alternative.end());
        found.alternatives.push_back(std::move(alternative));
      }
      if (found.alternatives.size() > kMostAlternatives) {  // the default, and those of fewest launches
        std::stable_sort(std::next(found.alternatives.begin()), found.alternatives.end(),
                         [](const auto& l, const auto& r) { return l.size() < r.size(); });
        found.alternatives.resize(kMostAlternatives);
      }
      found_.sites.push_back(std::move(found));
    }
  }

  const Graph& graph_;
  const FusedGraph& fused_;
  std::vector<OperatorId> producers_;
  std::vector<std::vector<OperatorId>> readers_;
  std::vector<bool> callers_;  // one a tensor: the caller's memory
  std::map<TensorId, Rank> rank_;
  std::vector<size_t> site_of_;  // one an operator: union-find
  UniqueNames names_;
  std::vector<OperatorId> swallowable_;  // that some product with an epilogue does
  Candidates found_;
};

}  // namespace

Candidates find_parts(const TrainingGraph& training, const FusedGraph& fused, bool epilogues,
                      const std::vector<std::vector<TensorId>>& callers_families) {
  return PartFinder(training, fused, callers_families).run(epilogues);
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
