// Contractions by a library: every permutation of the three tensors that one matrix product, or a loop over products,
// supports. Over 500 lines, because all libraries share one enumeration, and each has conditions of its own.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "base/text.h"
#include "candidates/configs.h"
#include "candidates/product.h"

namespace millrace {
namespace {

constexpr size_t kA = 0;
constexpr size_t kB = 1;
constexpr size_t kC = 2;
constexpr size_t kV = kVectorOperand;
// Speeds of a core, and of a GPU with and without tensor cores. They affect only the order of candidates.
constexpr double kFlopPerSecond = 60e9;
constexpr double kCallSeconds = 5e-7;
constexpr double kGpuFlopPerSecond = 6e14;
constexpr double kGpuPlainFlopPerSecond = 4e13;

using Chain = std::vector<int>;  // indices of the product, outermost first, merged into one index of a matrix

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
        tensors_(tensors_of(partition)) {
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
        made[static_cast<size_t>(std::find(tensors_.begin(), tensors_.end(), tensor) - tensors_.begin())] = {layout};
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
  using Layouts = std::array<int, 4>;  // of a, b, c and the vector

  struct Group {
    int a;
    int b;
  };

  void find_groups() {
    for (const size_t operand : {kA, kB, kC, kV}) {
      if (product_.operand(operand).empty()) continue;
      domain_[operand] = &domains_[product_.operand(operand).front().at()];
      for (size_t k = 0; k < domain_[operand]->layouts.size(); ++k) {
        steps_of_layouts_[operand].push_back(steps_in(operand, domain_[operand]->layouts[k]));
        as_written_[operand].push_back(is_as_written(operand, static_cast<int>(k)));
      }
    }
    for (size_t role = 0; role < kRoles.size(); ++role)
      chains_[role].resize(domain_[kRoles[role].one]->layouts.size() * domain_[kRoles[role].two]->layouts.size());
    for (const size_t operand : {kA, kB}) is_window_[operand] = is_window(product_, operand);
    operands_distinct_ = are_operands_distinct();
    if (product_.companion().valid()) find_companion_layouts();
    for (const size_t operand : {kA, kB, kC, kV}) layouts_of_operand_[operand] = allowed_layouts(operand);
    combinations_ = static_cast<double>(layouts_of_operand_[kC].size() * layouts_of_operand_[kV].size());
    for (const int a : layouts_of_operand_[kA]) {
      for (const int b : layouts_of_operand_[kB]) groups_.push_back({a, b});
    }
    for (const size_t operand : {kA, kB, kC}) steps_[operand] = steps_of_layouts_[operand].data();
    for (const size_t operand : {kA, kB}) {
      const std::vector<int> indices = indices_of_role(kRoles[operand]);
      for (const std::vector<int64_t>& steps : steps_of_layouts_[operand]) {
        steps_[operand] = &steps;
        chains_of_one_[operand].push_back(merged(indices, {operand}));
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

  // A product's m, n and k: the operands that run along its indices, and the one that does not.
  struct Role {
    size_t one;
    size_t two;
    size_t other;
    bool reduced;
  };
  static constexpr std::array<Role, 3> kRoles = {{{kA, kC, kB, false}, {kB, kC, kA, false}, {kA, kB, kC, true}}};

  // A config under the current layouts. There are millions; most are only counted.
  struct Found {
    const Chain* m = nullptr;
    const Chain* n = nullptr;
    const Chain* k = nullptr;
    GemmLibrary library = GemmLibrary::openblas;
    bool threads_over_loops = false;
    bool tensor_cores = true;
    double estimate = 0;
    size_t position = 0;

    bool has_same_chains(const Found& other) const { return m == other.m && n == other.n && k == other.k; }
  };

  void try_layouts(const Layouts& layouts) {
    // One tensor cannot be read in two layouts by one partition.
    if (product_.tensors[kA] == product_.tensors[kB] && layouts[kA] != layouts[kB]) return;
    if (product_.companion().valid() && companion_layout(layouts) == kNoIndex)
      return collector_->reject(product_.adds() ? "the added tensor cannot have the result's layout"
                                                : "the auxiliary matrix cannot have the result's layout");
    for (const size_t operand : {kA, kB, kC, kV}) {
      if (!product_.operand(operand).empty()) steps_[operand] = &steps_of_layouts_[operand][as_index(layouts[operand])];
    }
    if (overlaps(kA) || overlaps(kB))
      collector_->reject("a library multiplies matrices, not windows or reversed axes");
    else
      try_products(layouts, chains_of(0, layouts), chains_of(1, layouts), chains_of(2, layouts));
    for (const size_t operand : {kA, kB}) {
      if (is_window_[operand] && !overlaps(1 - operand)) try_unfolded(operand, layouts);
    }
  }

  void try_products(const Layouts& layouts, const std::vector<Chain>& ms, const std::vector<Chain>& ns,
                    const std::vector<Chain>& ks) {
    found_.clear();
    for (const Chain& m : ms) {
      for (const Chain& n : ns) {
        for (const Chain& k : ks) unfolded_ == kNoIndex ? consider(m, n, k) : consider_unfolded(m, n, k);
      }
    }
    // If there are several choices of m, n and k for these layouts: the two with the largest products.
    std::sort(found_.begin(), found_.end(), [](const Found& l, const Found& r) {
      return l.estimate != r.estimate ? l.estimate < r.estimate : l.position < r.position;
    });
    const Found* second = nullptr;
    for (const Found& found : found_) {
      if (!found.has_same_chains(found_.front())) {
        if (second != nullptr && !found.has_same_chains(*second)) break;
        second = &found;
      }
      add(layouts, found);
    }
  }

  // The copy is made for the product, so only the other operand and c decide which indices merge.
  void try_unfolded(size_t operand, const Layouts& layouts) {
    const size_t other = 1 - operand;
    const std::vector<Chain> own = merged(indices_of_role(kRoles[operand]), {kC});
    const std::vector<Chain>& others = chains_of(other, layouts);
    const std::vector<Chain> contracted = merged(indices_of_role(kRoles[2]), {other});
    unfolded_ = static_cast<int>(operand);
    try_products(layouts, operand == kA ? own : others, operand == kA ? others : own, contracted);
    unfolded_ = kNoIndex;
  }

  void consider_unfolded(const Chain& m, const Chain& n, const Chain& k) {
    const auto operand = as_index(unfolded_);
    const std::vector<int64_t>* const source = std::exchange(steps_[operand], &steps_of_copy_);
    GemmConfig config;
    config.m = m;
    config.n = n;
    config.k = k;
    config.unfolded = unfolded_;
    const std::vector<int> indices = unfolded_indices(product_, config, *source, *steps_[kC]);
    steps_of_copy_ = unfolded_steps(product_, indices);
    copied_elements_ = static_cast<double>(extent(indices));
    consider(m, n, k);
    steps_[operand] = source;
  }

  // Whether two points of the product read one element of an operand that runs along all their indices, or it is read
  // backwards.
  bool overlaps(size_t operand) const {
    std::vector<std::pair<int64_t, int64_t>> steps;
    for (size_t index = 0; index < product_.indices.size(); ++index) {
      const int64_t step = along(operand, static_cast<int>(index));
      if (step != 0) steps.emplace_back(step, product_.indices[index].extent);
    }
    std::sort(steps.begin(), steps.end());
    int64_t reach = 0;
    for (const auto& [step, extent] : steps) {
      if (step <= reach) return true;
      reach += step * (extent - 1);
    }
    return false;
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
                                   *found.m,
                                   *found.n,
                                   *found.k,
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

  std::vector<int64_t> steps_in(size_t operand, const Layout& layout) const {
    std::vector<int64_t> steps;
    for (size_t index = 0; index < product_.indices.size(); ++index)
      steps.push_back(step_along(graph_, product_, operand, index, layout));
    return steps;
  }

  // The chains that m, n or k (role 0, 1, 2) can be. Two operands' layouts decide.
  const std::vector<Chain>& chains_of(size_t role, const Layouts& layouts) {
    const Role& described = kRoles[role];
    const size_t columns = domain_[described.two]->layouts.size();
    std::vector<Chain>& known =
        chains_[role][as_index(layouts[described.one]) * columns + as_index(layouts[described.two])];
    if (known.empty()) known = find_chains(described);
    return known;
  }

  int64_t along(size_t operand, int index) const { return (*steps_[operand])[as_index(index)]; }

  // The indices that `one` and `two` run along and `other` does not, merged if the strides of both allow it. The empty
  // chain is an extent of one.
  std::vector<Chain> find_chains(const Role& role) const { return merged(indices_of_role(role), {role.one, role.two}); }

  std::vector<int> indices_of_role(const Role& role) const {
    std::vector<int> indices;
    for (int k = 0; k < static_cast<int>(product_.indices.size()); ++k) {
      const bool fits = product_.indices[as_index(k)].reduced == role.reduced && along(role.one, k) != 0 &&
                        along(role.two, k) != 0 && along(role.other, k) == 0;
      if (fits) indices.push_back(k);
    }
    return indices;
  }

  std::vector<Chain> merged(std::vector<int> indices, const std::vector<size_t>& operands) const {
    const size_t one = operands.front();
    std::sort(indices.begin(), indices.end(), [&](int l, int r) { return along(one, l) > along(one, r); });
    std::vector<Chain> found;
    for (const int index : indices) {
      const bool joins = !found.empty() && std::all_of(operands.begin(), operands.end(), [&](size_t operand) {
        return merges(found.back().back(), index, operand);
      });
      if (joins) {
        found.back().push_back(index);
      } else {
        found.emplace_back(1, index);
      }
    }
    if (found.empty()) found.emplace_back();
    return found;
  }

  // The best estimate if the result's layout were to fit: then the chains of m depend on a alone, and those of n on b.
  double bound_of(int a, int b) {
    steps_[kA] = &steps_of_layouts_[kA][as_index(a)];
    steps_[kB] = &steps_of_layouts_[kB][as_index(b)];
    double least = std::numeric_limits<double>::infinity();
    for (const Chain& k : chains_of(2, {a, b, 0, 0})) {
      for (const Chain& m : chains_of_one_[kA][as_index(a)]) {
        for (const Chain& n : chains_of_one_[kB][as_index(b)]) least = std::min(least, least_estimate(m, n, k));
      }
    }
    for (const size_t operand : {kA, kB}) {
      if (!is_window_[operand]) continue;
      const size_t other = 1 - operand;
      const Chain whole = indices_of_role(kRoles[operand]);  // if c's layout merges all
      for (const Chain& k : merged(indices_of_role(kRoles[2]), {other})) {
        for (const Chain& chain : chains_of_one_[other][as_index(other == kA ? a : b)])
          least = std::min(least, operand == kA ? least_estimate(whole, chain, k) : least_estimate(chain, whole, k));
      }
    }
    return least;
  }

  double least_estimate(const Chain& m, const Chain& n, const Chain& k) const {
    double calls = 1;
    for (const ProductIndex& index : product_.indices) calls *= static_cast<double>(index.extent);
    calls /= static_cast<double>(extent(m)) * static_cast<double>(extent(n)) * static_cast<double>(extent(k));
    const bool unit = unit_stride(kA, m, k) && unit_stride(kB, k, n);
    Found found{&m, &n, &k, GemmLibrary::openblas, false, true, 0, 0};
    if (options_.target.gpu) return estimate_on_gpu(found, static_cast<int64_t>(calls));
    const double inside = estimate(found, calls, unit);
    found.threads_over_loops = calls > 1;
    return std::min(inside, estimate(found, calls, unit));
  }

  bool merges(int outer, int inner, size_t operand) const {
    return along(operand, outer) == along(operand, inner) * product_.indices[as_index(inner)].extent;
  }

  int64_t extent(const Chain& chain) const {
    int64_t points = 1;
    for (const int index : chain) points *= product_.indices[as_index(index)].extent;
    return points;
  }

  int64_t step(size_t operand, const Chain& chain) const { return chain.empty() ? 1 : along(operand, chain.back()); }

  // OpenBLAS requires that one of a matrix's indices has stride 1.
  bool unit_stride(size_t operand, const Chain& one, const Chain& two) const {
    return step(operand, one) == 1 || step(operand, two) == 1;
  }

  // Whether the operand is a matrix: strides are positive, and the larger one steps over all elements of the smaller.
  // The windows of a convolution overlap, and the rows of some slices interleave.
  bool is_matrix(size_t operand, const Chain& one, const Chain& two) const {
    const std::array<int64_t, 2> extents = {extent(one), extent(two)};
    const std::array<int64_t, 2> steps = {step(operand, one), step(operand, two)};
    for (const size_t side : {0U, 1U}) {
      if (extents[side] > 1 && steps[side] < 1) return false;
    }
    if (extents[0] == 1 || extents[1] == 1) return true;
    const size_t inner = steps[0] < steps[1] ? 0 : 1;
    return steps[1 - inner] >= extents[inner] * steps[inner];
  }

  void consider(const Chain& m, const Chain& n, const Chain& k) {
    if (!is_matrix(kA, m, k) || !is_matrix(kB, k, n) || !is_matrix(kC, m, n))
      return collector_->reject("the rows of a matrix overlap or interleave, or run backwards");
    double calls = 1;
    bool shared_loops = false;  // loops whose products are not summed
    bool sums = false;          // loops whose products are
    for (size_t index = 0; index < product_.indices.size(); ++index) {
      const auto in = [&](const Chain& chain) {
        return std::find(chain.begin(), chain.end(), static_cast<int>(index)) != chain.end();
      };
      if (in(m) || in(n) || in(k)) continue;
      calls *= static_cast<double>(product_.indices[index].extent);
      const bool shared = along(kC, static_cast<int>(index)) != 0;
      (shared ? shared_loops : sums) = true;
    }
    const bool unit = unit_stride(kA, m, k) && unit_stride(kB, k, n) && unit_stride(kC, m, n);
    for (const GemmLibrary library : options_.libraries) {
      if (library == GemmLibrary::cublaslt) {
        consider_cublaslt(m, n, k, unit);
        continue;
      }
      const char* const epilogue = why_epilogue_rejected(library, m, n);
      if (const char* const reason = epilogue != nullptr ? epilogue : why_library_rejected(library, m, n, unit, sums)) {
        collector_->reject(reason);
        continue;
      }
      for (const bool over : {false, true}) {
        if (over && (!shared_loops || options_.threads == 1)) continue;
        Found found{&m, &n, &k, library, over, true, 0, found_.size()};
        found.estimate = estimate(found, calls, unit);
        found_.push_back(found);
      }
    }
  }

  // Of the CPU's libraries oneDNN alone has epilogues. It adds a bias that runs along the index with
  // stride 1 in the result.
  const char* why_epilogue_rejected(GemmLibrary library, const Chain& m, const Chain& n) const {
    if (!product_.has_epilogue()) return nullptr;
    if (library != GemmLibrary::onednn) return "of the CPU's libraries only oneDNN supports the epilogue";
    if (!product_.vector) return nullptr;
    const bool along_m = step(kC, m) == 1 && !m.empty();
    const Chain& chain = along_m ? m : n;
    const Chain& other = along_m ? n : m;
    const bool varies = std::any_of(other.begin(), other.end(), [&](int index) { return along(kV, index) != 0; });
    if (varies || chain.empty() || step(kC, chain) != 1)
      return "oneDNN: a bias runs along an index that has no unit stride in the result";
    if (has_gaps(m, n)) return "oneDNN: a bias of a result whose rows are apart";
    if (step(kV, chain) != 1) return "oneDNN: a bias has no unit stride";
    for (size_t at = 0; at + 1 < chain.size(); ++at) {
      if (!merges(chain[at], chain[at + 1], kV)) return "oneDNN: a bias's strides do not merge as the matrix's do";
    }
    return nullptr;
  }

  // Whether there is memory between the rows of a product's result.
  bool has_gaps(const Chain& m, const Chain& n) const {
    const bool m_is_column = step(kC, m) == 1 && !m.empty();
    const Chain& column = m_is_column ? m : n;
    const Chain& row = m_is_column ? n : m;
    return extent(row) > 1 && step(kC, row) != extent(column);
  }

  // What a library of the CPU requires. Null if it takes the product.
  const char* why_library_rejected(GemmLibrary library, const Chain& m, const Chain& n, bool unit, bool sums) const {
    if (library == GemmLibrary::openblas && !unit)
      return "OpenBLAS: a matrix has no unit stride along either of its indices";
    if (library == GemmLibrary::mkl && !unit) return "MKL: a matrix has no unit stride along either of its indices";
    if (library != GemmLibrary::onednn) return nullptr;
    const StoredType type = stored_type(graph_.tensor(product_.tensors[kC].front()).dtype);
    if (type == StoredType::f64) return "oneDNN has no products of float64";
    if (options_.lacking.contains({library, type})) return "oneDNN has no fast products of the type on this processor";
    if (!unit) return "oneDNN: a matrix has no unit stride along either of its indices";
    if (type == StoredType::f16 && has_gaps(m, n)) return "oneDNN: a result of float16 whose rows are apart";
    return sums ? "oneDNN: a sum over products needs more than one call" : nullptr;
  }

  // One call: the indices that are not in m, n or k are one batch of constant stride.
  void consider_cublaslt(const Chain& m, const Chain& n, const Chain& k, bool unit) {
    if (!unit) return collector_->reject("cuBLASLt: a matrix has no unit stride along either of its indices");
    std::vector<int> batch;
    for (size_t index = 0; index < product_.indices.size(); ++index) {
      const auto in = [&](const Chain& chain) {
        return std::find(chain.begin(), chain.end(), static_cast<int>(index)) != chain.end();
      };
      if (in(m) || in(n) || in(k)) continue;
      if (along(kC, static_cast<int>(index)) == 0)
        return collector_->reject("cuBLASLt: a sum over products needs more than one call");
      batch.push_back(static_cast<int>(index));
    }
    std::sort(batch.begin(), batch.end(), [&](int l, int r) { return along(kC, l) > along(kC, r); });
    for (size_t at = 0; at + 1 < batch.size(); ++at) {
      for (const size_t operand : {kA, kB, kC}) {
        if (!merges(batch[at], batch[at + 1], operand))
          return collector_->reject("cuBLASLt: a batch along two indices that do not merge into one");
      }
    }
    if (const char* const reason = why_vector_rejected(m, n, batch)) return collector_->reject(reason);
    if (product_.auxiliary.valid() && !can_be_auxiliary(m, n, batch))
      return collector_->reject(
          "cuBLASLt: the auxiliary matrix's leading dimension or batch stride is no multiple of 8");
    // Tensor cores multiply halves exactly, but would round float32 first.
    const DType dtype = graph_.tensor(product_.tensors[kC].front()).dtype;
    for (const bool tensor_cores : {true, false}) {
      if (tensor_cores ? dtype == DType::float32 : dtype == DType::float64) continue;
      Found found{&m, &n, &k, GemmLibrary::cublaslt, false, tensor_cores, 0, found_.size()};
      found.estimate = estimate_on_gpu(found, extent(batch));
      found_.push_back(found);
    }
  }

  // What cuBLASLt requires of a vector: a bias runs along the matrix index that has stride 1 in C, the gradient of a
  // bias along the operand's index that is not contracted. Null if so.
  const char* why_vector_rejected(const Chain& m, const Chain& n, const std::vector<int>& batch) const {
    if (!product_.vector) return nullptr;
    const bool is_bias = product_.vector->role == ProductVector::Role::bias;
    const bool along_m =
        is_bias ? step(kC, m) == 1 && !m.empty() : product_.vector->role == ProductVector::Role::gradient_of_a;
    const Chain& chain = along_m ? m : n;
    const auto constant_along = [&](const Chain& indices) {
      return std::all_of(indices.begin(), indices.end(), [&](int index) { return along(kV, index) == 0; });
    };
    if (!constant_along(along_m ? n : m) || (is_bias && step(kC, chain) != 1))
      return "cuBLASLt: a bias runs along an index that has no unit stride in the result";
    if (chain.empty() || step(kV, chain) != 1) return "cuBLASLt: a bias has no unit stride";
    for (size_t at = 0; at + 1 < chain.size(); ++at) {
      if (!merges(chain[at], chain[at + 1], kV)) return "cuBLASLt: a bias's strides do not merge as the matrix's do";
    }
    for (size_t at = 0; at < batch.size(); ++at) {
      if (at + 1 < batch.size() && !merges(batch[at], batch[at + 1], kV))
        return "cuBLASLt: biases of a batch have no constant stride";
      if (!is_bias && along(kV, batch[at]) == 0) return "cuBLASLt: products of a batch would write the same gradient";
    }
    return nullptr;
  }

  // What cuBLASLt requires of an auxiliary matrix, which has the result's layout.
  bool can_be_auxiliary(const Chain& m, const Chain& n, const std::vector<int>& batch) const {
    const bool m_is_column = step(kC, m) == 1 && !m.empty();
    const Chain& column = m_is_column ? m : n;
    const Chain& row = m_is_column ? n : m;
    const int64_t leading = row.empty() ? extent(column) : step(kC, row);
    return leading % kAuxiliaryStep == 0 && (batch.empty() || along(kC, batch.back()) % kAuxiliaryStep == 0);
  }

  double estimate_on_gpu(const Found& config, int64_t batch) const {
    const auto filled = [](double x, double tile) { return x / (std::ceil(x / tile) * tile); };
    const auto m = static_cast<double>(extent(*config.m));
    const auto n = static_cast<double>(extent(*config.n));
    const auto k = static_cast<double>(extent(*config.k));
    const double flop = 2 * m * n * k * static_cast<double>(batch) / (filled(m, 64) * filled(n, 64) * filled(k, 16));
    double bytes = 0;
    for (size_t operand = 0; operand < 3; ++operand) {
      for (const TensorId tensor : product_.tensors[operand])
        bytes += (product_.packed[operand] ? 3.0 : 1.0) * static_cast<double>(elements_of(graph_, tensor)) *
                 static_cast<double>(bytes_of(graph_.tensor(tensor).dtype));
    }
    if (unfolded_ != kNoIndex) bytes += 2 * copied_elements_ * static_cast<double>(element_bytes());
    if (const TensorId companion = product_.companion(); companion.valid())
      bytes += static_cast<double>(elements_of(graph_, companion) * bytes_of(graph_.tensor(companion).dtype));
    return std::max(flop / (config.tensor_cores ? kGpuFlopPerSecond : kGpuPlainFlopPerSecond),
                    bytes / kGpuBytesPerSecond) +
           kGpuLaunchSeconds;
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

  double estimate(const Found& config, double calls, bool unit) const {
    const auto m = static_cast<double>(extent(*config.m));
    const auto n = static_cast<double>(extent(*config.n));
    const auto k = static_cast<double>(extent(*config.k));
    const auto filled = [](double x) { return x / (x + 8); };  // efficiency of short extents
    double threads = options_.threads;
    if (!config.threads_over_loops && m * n * k < 1e5) threads = 1;
    const double flop = 2 * m * n * k / (filled(m) * filled(n) * filled(k));
    double bytes = 0;
    for (size_t operand = 0; operand < 3; ++operand) {
      if (!product_.packed[operand]) continue;
      for (const TensorId tensor : product_.tensors[operand])
        bytes += 8.0 * static_cast<double>(elements_of(graph_, tensor));
    }
    if (unfolded_ != kNoIndex) bytes += 2 * copied_elements_ * static_cast<double>(element_bytes());
    if (product_.adds()) bytes += 8.0 * static_cast<double>(elements_of(graph_, product_.added));
    return calls * (flop / kFlopPerSecond / threads + kCallSeconds) * (unit ? 1 : 1.5) + bytes / 10e9;
  }

  int64_t element_bytes() const { return bytes_of(graph_.tensor(product_.tensors[kC].front()).dtype); }

  const Graph& graph_;
  const std::vector<TensorDomain>& domains_;
  const EnumerateOptions& options_;
  const Partition& partition_;
  const Product& product_;
  std::vector<TensorId> tensors_;
  Collector* collector_ = nullptr;  // of the group that is being added
  std::array<const TensorDomain*, 4> domain_{};
  std::vector<Group> groups_;
  std::array<std::vector<int>, 4> layouts_of_operand_;            // that its tensors allow
  double combinations_ = 0;                                       // in each group
  std::array<std::vector<std::vector<Chain>>, 2> chains_of_one_;  // by layout: of m if only a limits it, of n if only b
  std::array<std::vector<std::vector<int64_t>>, 4> steps_of_layouts_;
  std::array<std::vector<bool>, 4> as_written_;            // per layout: whether it is the operand's written one
  std::array<std::vector<std::vector<Chain>>, 3> chains_;  // of m, n and k, per pair of layouts; empty: not yet found
  std::array<const std::vector<int64_t>*, 4> steps_{};     // in the current layouts
  std::vector<int> companion_layouts_;                     // per layout of the result
  std::vector<Found> found_;                               // under the current layouts
  bool operands_distinct_ = false;
  std::array<bool, 2> is_window_{};     // a, b
  int unfolded_ = kNoIndex;             // of the configs that are being found: the operand that is unfolded
  std::vector<int64_t> steps_of_copy_;  // its strides
  double copied_elements_ = 0;
};

}  // namespace

std::unique_ptr<ConfigGroups> gemm_configs(const Graph& graph, const std::vector<TensorDomain>& domains,
                                           const EnumerateOptions& options, const Partition& partition) {
  return std::make_unique<GemmConfigs>(graph, domains, options, partition);
}

}  // namespace millrace
