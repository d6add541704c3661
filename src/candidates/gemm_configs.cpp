// Contractions by a library: every permutation of the three tensors that one matrix product, or a loop over products,
// supports.
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <utility>

#include "candidates/configs.h"
#include "candidates/gemm_conditions.h"
#include "candidates/gemm_cost.h"
#include "candidates/product_strides.h"

namespace millrace {
namespace {

// A group has one layout of a and one of b, and all of c.
class GemmConfigs : public ConfigGroups {
 public:
  GemmConfigs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
              const Partition& partition)
      : graph_(graph),
        domains_(domains),
        options_(options),
        partition_(partition),
        product_(partition.product),
        tensors_(tensors_of(partition)),
        strides_(partition.product),
        conditions_(graph, options, partition.product, strides_),
        cost_(graph, partition.product, options.threads) {
    if (has_one_type()) find_groups();
  }

  size_t count() const override { return groups_.size(); }
  double combinations(size_t /*group*/) const override { return combinations_; }
  double bound(size_t group) override { return bound_of(groups_[group].a, groups_[group].b); }

  std::vector<std::vector<int>> layouts(size_t group) const override {
    std::vector<std::vector<int>> made(tensors_.size());
    for (const size_t operand : {kA, kB}) {
      const int layout = operand == kA ? groups_[group].a : groups_[group].b;
      for (const TensorId tensor : product_.operand(operand))
        made[as_index(std::find(tensors_.begin(), tensors_.end(), tensor) - tensors_.begin())] = {layout};
    }
    return made;
  }

  bool may_be_written(size_t group) const override {
    return as_written_[kA][as_index(groups_[group].a)] && as_written_[kB][as_index(groups_[group].b)];
  }

  void add(size_t group, Collector& into) override {
    collector_ = &into;
    const auto [a, b] = groups_[group];
    for (const int c : layouts_of_operand_[kC]) {
      for (const int v : layouts_of_operand_[kV]) try_layouts({a, b, c, v});
    }
  }

  void reject_others(Collector& into) const override {
    for (const auto& [library, why] : options_.missing) into.reject(why);
    if (!has_one_type()) into.reject("the matrices have different types");
    for (const size_t operand : {kA, kB, kC, kV}) {
      if (has_one_type() && layouts_of_operand_[operand].empty()) into.reject("stacked tensors are pinned differently");
    }
  }

 private:
  using Strides = ProductStrides::Strides;
  using Layouts = std::array<int, 4>;  // of a, b, c and the vector

  // The layouts of a and b that the configs of one group have.
  struct LayoutPair {
    int a;
    int b;
  };

  void find_groups() {
    for (const size_t operand : {kA, kB, kC, kV}) {
      if (product_.operand(operand).empty()) continue;
      domain_[operand] = &domains_[product_.operand(operand).front().at()];
      for (size_t k = 0; k < domain_[operand]->layouts.size(); ++k) {
        strides_of_layouts_[operand].push_back(strides_in(operand, domain_[operand]->layouts[k]));
        as_written_[operand].push_back(is_as_written(operand, static_cast<int>(k)));
      }
    }
    for (size_t role = 0; role < kProductRoles.size(); ++role)
      chains_[role].resize(domain_[kProductRoles[role].one]->layouts.size() *
                           domain_[kProductRoles[role].two]->layouts.size());
    for (const size_t operand : {kA, kB}) is_window_[operand] = is_window(product_, operand);
    operands_distinct_ = are_operands_distinct();
    if (product_.companion().valid()) find_companion_layouts();
    for (const size_t operand : {kA, kB, kC, kV}) layouts_of_operand_[operand] = allowed_layouts(operand);
    combinations_ = static_cast<double>(layouts_of_operand_[kC].size() * layouts_of_operand_[kV].size());
    for (const int a : layouts_of_operand_[kA]) {
      for (const int b : layouts_of_operand_[kB]) groups_.push_back({a, b});
    }
    for (const size_t operand : {kA, kB, kC}) strides_.set(operand, strides_of_layouts_[operand].front());
    for (const size_t operand : {kA, kB}) {
      const Chain indices = strides_.indices_of(kProductRoles[operand]);
      for (const Strides& strides : strides_of_layouts_[operand]) {
        strides_.set(operand, strides);
        chains_of_one_[operand].push_back(strides_.chains_of(indices, {operand}));
      }
    }
  }

  bool has_one_type() const {
    const auto dtype = [&](size_t operand) { return graph_.tensor(product_.tensors[operand].front()).dtype; };
    return dtype(kA) == dtype(kC) && dtype(kB) == dtype(kC);
  }

  // Stacked tensors have one layout, which each of them must allow.
  std::vector<int> allowed_layouts(size_t operand) const {
    const std::vector<TensorId>& tensors = product_.operand(operand);
    if (tensors.empty()) return {0};
    std::vector<int> allowed;
    for (int k = 0; k < static_cast<int>(domain_[operand]->layouts.size()); ++k) {
      if (std::all_of(tensors.begin(), tensors.end(), [&](TensorId tensor) { return domains_[tensor.at()].allows(k); }))
        allowed.push_back(k);
    }
    return allowed;
  }

  // The added or auxiliary tensor has the result's layout. For each layout of the result, the number of the same layout
  // in the companion's domain; kNoIndex if it is not allowed.
  void find_companion_layouts() {
    const TensorDomain& domain = domains_[product_.companion().at()];
    for (const Layout& layout : domain_[kC]->layouts) {
      const auto same = std::find(domain.layouts.begin(), domain.layouts.end(), layout);
      const int number = static_cast<int>(same - domain.layouts.begin());
      companion_layouts_.push_back(same != domain.layouts.end() && domain.allows(number) ? number : kNoIndex);
    }
  }

  // A config under the current layouts. There are millions; most are only counted.
  struct Found {
    GemmChains chains;
    GemmLibrary library = GemmLibrary::openblas;
    bool threads_over_loops = false;
    bool tensor_cores = true;
    double estimate = 0;
    size_t position = 0;
  };

  void try_layouts(const Layouts& layouts) {
    // One tensor cannot be read in two layouts by one partition.
    if (product_.tensors[kA] == product_.tensors[kB] && layouts[kA] != layouts[kB]) return;
    if (product_.companion().valid() && companion_layout(layouts) == kNoIndex)
      return collector_->reject(product_.adds() ? "the added tensor cannot have the result's layout"
                                                : "the auxiliary matrix cannot have the result's layout");
    for (const size_t operand : {kA, kB, kC, kV}) {
      if (!product_.operand(operand).empty())
        strides_.set(operand, strides_of_layouts_[operand][as_index(layouts[operand])]);
    }
    if (strides_.overlaps(kA) || strides_.overlaps(kB))
      collector_->reject("a library multiplies matrices, not windows or reversed axes");
    else
      try_products(layouts, chains_of(0, layouts), chains_of(1, layouts), chains_of(2, layouts));
    for (const size_t operand : {kA, kB}) {
      if (is_window_[operand] && !strides_.overlaps(1 - operand)) try_unfolded(operand, layouts);
    }
  }

  void try_products(const Layouts& layouts, const std::vector<Chain>& ms, const std::vector<Chain>& ns,
                    const std::vector<Chain>& ks) {
    found_.clear();
    for (const Chain& m : ms) {
      for (const Chain& n : ns) {
        for (const Chain& k : ks) unfolded_ == kNoIndex ? consider({&m, &n, &k}) : consider_unfolded({&m, &n, &k});
      }
    }
    // If there are several choices of m, n and k for these layouts: the two with the largest products.
    std::sort(found_.begin(), found_.end(), [](const Found& l, const Found& r) {
      return l.estimate != r.estimate ? l.estimate < r.estimate : l.position < r.position;
    });
    const Found* second = nullptr;
    for (const Found& found : found_) {
      if (!(found.chains == found_.front().chains)) {
        if (second != nullptr && !(found.chains == second->chains)) break;
        second = &found;
      }
      add(layouts, found);
    }
  }

  // The copy is made for the product, so only the other operand and c decide which indices merge.
  void try_unfolded(size_t operand, const Layouts& layouts) {
    const size_t other = 1 - operand;
    const std::vector<Chain> own = strides_.chains_of(strides_.indices_of(kProductRoles[operand]), {kC});
    const std::vector<Chain>& others = chains_of(other, layouts);
    const std::vector<Chain> contracted = strides_.chains_of(strides_.indices_of(kProductRoles[2]), {other});
    unfolded_ = static_cast<int>(operand);
    try_products(layouts, operand == kA ? own : others, operand == kA ? others : own, contracted);
    unfolded_ = kNoIndex;
  }

  void consider_unfolded(const GemmChains& chains) {
    const auto operand = as_index(unfolded_);
    GemmConfig config;
    config.m = *chains.m;
    config.n = *chains.n;
    config.k = *chains.k;
    config.unfolded = unfolded_;
    const std::vector<int> indices = unfolded_indices(product_, config, strides_.of(operand), strides_.of(kC));
    const Strides copy = unfolded_strides(product_, indices);
    const Strides* const source = strides_.set(operand, copy);
    consider(chains, static_cast<double>(strides_.extent(indices)));
    strides_.set(operand, *source);
  }

  void add(const Layouts& layouts, const Found& found) {
    bool as_written = true;
    for (const size_t operand : {kA, kB, kC, kV}) {
      if (!product_.operand(operand).empty())
        as_written = as_written && as_written_[operand][as_index(layouts[operand])];
    }
    if (product_.companion().valid())
      as_written = as_written && companion_layout(layouts) == domains_[product_.companion().at()].written();
    std::vector<int> all = all_layouts(layouts);
    if (operands_distinct_ && !as_written && !collector_->keeps(all, found.estimate)) return collector_->count();
    const int threads = found.library == GemmLibrary::cublaslt ? 1 : options_.threads;
    Candidate candidate{std::move(all),
                        GemmConfig{found.library,
                                   *found.chains.m,
                                   *found.chains.n,
                                   *found.chains.k,
                                   found.threads_over_loops,
                                   threads,
                                   found.tensor_cores,
                                   {},
                                   unfolded_},
                        found.estimate};
    operands_distinct_ ? collector_->add_new(std::move(candidate)) : collector_->add(std::move(candidate));
  }

  // Whether different layouts of a, b and c are different candidates: no tensor is in both a and b, unless they are the
  // same. A vector is never one of the matrices.
  bool are_operands_distinct() const {
    const std::vector<TensorId>& a = product_.tensors[kA];
    const std::vector<TensorId>& b = product_.tensors[kB];
    return a == b || std::find_first_of(a.begin(), a.end(), b.begin(), b.end()) == a.end();
  }

  bool is_as_written(size_t operand, int layout) const {
    return std::all_of(product_.operand(operand).begin(), product_.operand(operand).end(),
                       [&](TensorId tensor) { return layout == domains_[tensor.at()].written(); });
  }

  int companion_layout(const Layouts& layouts) const { return companion_layouts_[as_index(layouts[kC])]; }

  Strides strides_in(size_t operand, const Layout& layout) const {
    Strides strides;
    for (size_t index = 0; index < product_.indices.size(); ++index)
      strides.push_back(stride_along(graph_, product_, operand, index, layout));
    return strides;
  }

  // The chains that m, n or k (role 0, 1, 2) can be. Two operands' layouts decide.
  const std::vector<Chain>& chains_of(size_t role, const Layouts& layouts) {
    const ProductRole& described = kProductRoles[role];
    const size_t columns = domain_[described.two]->layouts.size();
    std::vector<Chain>& known =
        chains_[role][as_index(layouts[described.one]) * columns + as_index(layouts[described.two])];
    if (known.empty()) known = strides_.chains_of(strides_.indices_of(described), {described.one, described.two});
    return known;
  }

  // The best estimate if the result's layout fits. Then the chains of m depend on a alone, and those of n on b alone.
  double bound_of(int a, int b) {
    strides_.set(kA, strides_of_layouts_[kA][as_index(a)]);
    strides_.set(kB, strides_of_layouts_[kB][as_index(b)]);
    double least = std::numeric_limits<double>::infinity();
    for (const Chain& k : chains_of(2, {a, b, 0, 0})) {
      for (const Chain& m : chains_of_one_[kA][as_index(a)]) {
        for (const Chain& n : chains_of_one_[kB][as_index(b)]) least = std::min(least, least_estimate({&m, &n, &k}));
      }
    }
    for (const size_t operand : {kA, kB}) {
      if (!is_window_[operand]) continue;
      const size_t other = 1 - operand;
      const Chain whole = strides_.indices_of(kProductRoles[operand]);  // if c's layout merges all
      for (const Chain& k : strides_.chains_of(strides_.indices_of(kProductRoles[2]), {other})) {
        for (const Chain& chain : chains_of_one_[other][as_index(other == kA ? a : b)]) {
          const GemmChains chains = operand == kA ? GemmChains{&whole, &chain, &k} : GemmChains{&chain, &whole, &k};
          least = std::min(least, least_estimate(chains));
        }
      }
    }
    return least;
  }

  double least_estimate(const GemmChains& chains) const {
    GemmWork work = work_of(chains, strides_.loops_around(chains));
    work.unit_strides =
        strides_.has_unit_stride(kA, *chains.m, *chains.k) && strides_.has_unit_stride(kB, *chains.k, *chains.n);
    if (options_.target.gpu) return cost_.seconds_on_gpu(work, true);
    const double inside = cost_.seconds(work, false);
    return std::min(inside, cost_.seconds(work, work.calls > 1));
  }

  GemmWork work_of(const GemmChains& chains, const std::vector<int>& loops) const {
    GemmWork work;
    work.m = static_cast<double>(strides_.extent(*chains.m));
    work.n = static_cast<double>(strides_.extent(*chains.n));
    work.k = static_cast<double>(strides_.extent(*chains.k));
    for (const int loop : loops) work.calls *= static_cast<double>(product_.indices[as_index(loop)].extent);
    return work;
  }

  void consider(const GemmChains& chains, double copied_elements = 0) {
    if (!strides_.are_matrices(chains))
      return collector_->reject("the rows of a matrix overlap or interleave, or run backwards");
    const GemmShape shape{chains, strides_.loops_around(chains), strides_.has_unit_strides(chains)};
    GemmWork work = work_of(chains, shape.loops);
    work.unit_strides = shape.unit_strides;
    work.copied_elements = copied_elements;
    for (const GemmLibrary library : options_.libraries) {
      if (const char* const reason = conditions_.why_rejected(library, shape)) {
        collector_->reject(reason);
      } else if (library == GemmLibrary::cublaslt) {
        find_cublaslt(chains, work);
      } else {
        find_on_cpu(library, shape, work);
      }
    }
  }

  void find_on_cpu(GemmLibrary library, const GemmShape& shape, const GemmWork& work) {
    // Threads can share loops whose products are not summed.
    const bool shared_loops =
        std::any_of(shape.loops.begin(), shape.loops.end(), [&](int loop) { return strides_.along(kC, loop) != 0; });
    for (const bool over : {false, true}) {
      if (over && (!shared_loops || options_.threads == 1)) continue;
      found_.push_back({shape.chains, library, over, true, cost_.seconds(work, over), found_.size()});
    }
  }

  // Tensor cores multiply halves exactly, but would round float32 first.
  void find_cublaslt(const GemmChains& chains, const GemmWork& work) {
    const DType dtype = graph_.tensor(product_.tensors[kC].front()).dtype;
    for (const bool tensor_cores : {true, false}) {
      if (tensor_cores ? dtype == DType::float32 : dtype == DType::float64) continue;
      const double estimate = cost_.seconds_on_gpu(work, tensor_cores);
      found_.push_back({chains, GemmLibrary::cublaslt, false, tensor_cores, estimate, found_.size()});
    }
  }

  std::vector<int> all_layouts(const Layouts& layouts) const {
    std::vector<int> all;
    for (const bool writes : {false, true}) {
      for (const TensorId tensor : writes ? partition_.writes : partition_.reads) {
        if (tensor == product_.companion() && writes == product_.writes_auxiliary()) {
          all.push_back(companion_layout(layouts));
          continue;
        }
        for (const size_t operand : {kA, kB, kC, kV}) {
          const std::vector<TensorId>& own = product_.operand(operand);
          if (std::find(own.begin(), own.end(), tensor) != own.end() && product_.is_written(operand) == writes) {
            all.push_back(layouts[operand]);
            break;
          }
        }
      }
    }
    return all;
  }

  const Graph& graph_;
  const std::vector<TensorDomain>& domains_;
  const EnumerateOptions& options_;
  const Partition& partition_;
  const Product& product_;
  std::vector<TensorId> tensors_;
  ProductStrides strides_;  // in the current layouts
  GemmConditions conditions_;
  GemmCost cost_;
  Collector* collector_ = nullptr;  // of the group that is being added
  std::array<const TensorDomain*, 4> domain_{};
  std::vector<LayoutPair> groups_;
  std::array<std::vector<int>, 4> layouts_of_operand_;  // that its tensors allow
  double combinations_ = 0;                             // in each group
  std::array<std::vector<std::vector<Chain>>, 2>
      chains_of_one_;  // by layout: of m if a alone limits it, of n if b alone does
  std::array<std::vector<Strides>, 4> strides_of_layouts_;
  std::array<std::vector<bool>, 4> as_written_;            // per layout: whether it is the operand's written one
  std::array<std::vector<std::vector<Chain>>, 3> chains_;  // of m, n and k, per pair of layouts; empty: not yet found
  std::vector<int> companion_layouts_;                     // per layout of the result
  std::vector<Found> found_;                               // under the current layouts
  bool operands_distinct_ = false;
  std::array<bool, 2> is_window_{};  // a, b
  int unfolded_ = kNoIndex;          // of the configs that are being found: the operand that is unfolded
};

}  // namespace

std::unique_ptr<ConfigGroups> gemm_configs(const Graph& graph, const std::vector<TensorDomain>& domains,
                                           const EnumerateOptions& options, const Partition& partition) {
  return std::make_unique<GemmConfigs>(graph, domains, options, partition);
}

}  // namespace millrace
