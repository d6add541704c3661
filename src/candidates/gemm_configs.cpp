// Contractions by a library: every permutation of the three tensors that one matrix product, or a loop of them,
// expresses.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "candidates/configs.h"
#include "candidates/product.h"

namespace millrace {
namespace {

constexpr size_t kA = 0;
constexpr size_t kB = 1;
constexpr size_t kC = 2;
constexpr size_t kV = kVectorOperand;
constexpr double kFlopPerSecond = 60e9;  // of a core; only the order of candidates depends on it
constexpr double kCallSeconds = 5e-7;
constexpr double kGpuFlopPerSecond = 6e14;
constexpr double kGpuPlainFlopPerSecond = 4e13;

using Chain = std::vector<int>;  // indices of the product, outermost first, that make one index of a matrix

class GemmConfigs {
 public:
  GemmConfigs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
              const Partition& partition, Collector& collector)
      : graph_(graph),
        domains_(domains),
        options_(options),
        partition_(partition),
        product_(partition.product),
        collector_(collector) {}

  void run() {
    for (const auto& [library, why] : options_.missing) collector_.reject(why);
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
    operands_apart_ = are_operands_apart();
    if (product_.beside().valid()) find_layouts_beside();
    each_layout(kA, [&](int a) {
      each_layout(kB, [&](int b) {
        each_layout(kC, [&](int c) { each_layout(kV, [&](int v) { try_layouts({a, b, c, v}); }); });
      });
    });
  }

 private:
  using Layouts = std::array<int, 4>;  // of a, b, c and the vector

  // Stacked tensors lie in one layout, in which each of them can.
  template <class Body>
  void each_layout(size_t operand, const Body& body) {
    if (product_.operand(operand).empty()) return body(0);
    const std::vector<TensorId>& tensors = product_.operand(operand);
    bool any = false;
    for (int k = 0; k < static_cast<int>(domain_[operand]->layouts.size()); ++k) {
      const bool fits =
          std::all_of(tensors.begin(), tensors.end(), [&](TensorId tensor) { return domains_[tensor.at()].allows(k); });
      if (fits) body(k);
      any = any || fits;
    }
    if (!any) collector_.reject("stacked tensors are pinned differently");
  }

  // What is added, or auxiliary, lies as the result does: under each layout of that, its own, or kNoIndex where it
  // cannot.
  void find_layouts_beside() {
    const TensorDomain& domain = domains_[product_.beside().at()];
    for (const Layout& layout : domain_[kC]->layouts) {
      const auto same = std::find(domain.layouts.begin(), domain.layouts.end(), layout);
      const int number = static_cast<int>(same - domain.layouts.begin());
      layout_beside_.push_back(same != domain.layouts.end() && domain.allows(number) ? number : kNoIndex);
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

  // A way under the layouts in question. There are millions: of most of them only the number is needed.
  struct Found {
    const Chain* m = nullptr;
    const Chain* n = nullptr;
    const Chain* k = nullptr;
    GemmLibrary library = GemmLibrary::openblas;
    bool threads_over_loops = false;
    bool tensor_cores = true;
    double estimate = 0;
    size_t position = 0;

    bool cuts_like(const Found& other) const { return m == other.m && n == other.n && k == other.k; }
  };

  void try_layouts(const Layouts& layouts) {
    // One tensor cannot be read in two layouts by one partition.
    if (product_.tensors[kA] == product_.tensors[kB] && layouts[kA] != layouts[kB]) return;
    if (product_.beside().valid() && layout_beside(layouts) == kNoIndex)
      return collector_.reject(product_.adds() ? "what is added lies otherwise than the result"
                                               : "the auxiliary matrix lies otherwise than the result");
    for (const size_t operand : {kA, kB, kC, kV}) {
      if (!product_.operand(operand).empty())
        steps_[operand] = &steps_of_layouts_[operand][static_cast<size_t>(layouts[operand])];
    }
    found_.clear();
    for (const Chain& m : chains_of(0, layouts)) {
      for (const Chain& n : chains_of(1, layouts)) {
        for (const Chain& k : chains_of(2, layouts)) consider(m, n, k);
      }
    }
    // Of several ways to cut one combination of layouts the two with the largest products.
    std::sort(found_.begin(), found_.end(), [](const Found& l, const Found& r) {
      return l.estimate != r.estimate ? l.estimate < r.estimate : l.position < r.position;
    });
    const Found* second = nullptr;
    for (const Found& found : found_) {
      if (!found.cuts_like(found_.front())) {
        if (second != nullptr && !found.cuts_like(*second)) break;
        second = &found;
      }
      add(layouts, found);
    }
  }

  void add(const Layouts& layouts, const Found& found) {
    bool as_written = true;
    for (const size_t operand : {kA, kB, kC, kV}) {
      if (!product_.operand(operand).empty())
        as_written = as_written && as_written_[operand][static_cast<size_t>(layouts[operand])];
    }
    if (product_.beside().valid())
      as_written = as_written && layout_beside(layouts) == std::max(0, domains_[product_.beside().at()].pinned);
    std::vector<int> all = all_layouts(layouts);
    if (operands_apart_ && !as_written && !collector_.keeps(all, found.estimate)) return collector_.count();
    const int threads = found.library == GemmLibrary::cublaslt ? 1 : options_.threads;
    Candidate candidate{
        std::move(all),
        GemmConfig{
            found.library, *found.m, *found.n, *found.k, found.threads_over_loops, threads, found.tensor_cores, {}},
        found.estimate};
    operands_apart_ ? collector_.add_new(std::move(candidate)) : collector_.add(std::move(candidate));
  }

  // Whether layouts of a, b and c are all different candidates: no tensor is in two of them, unless both are the same.
  // A vector is none of them.
  bool are_operands_apart() const {
    const std::vector<TensorId>& a = product_.tensors[kA];
    const std::vector<TensorId>& b = product_.tensors[kB];
    return a == b || std::find_first_of(a.begin(), a.end(), b.begin(), b.end()) == a.end();
  }

  bool is_as_written(size_t operand, int layout) const {
    return std::all_of(product_.operand(operand).begin(), product_.operand(operand).end(),
                       [&](TensorId tensor) { return layout == std::max(0, domains_[tensor.at()].pinned); });
  }

  int layout_beside(const Layouts& layouts) const { return layout_beside_[static_cast<size_t>(layouts[kC])]; }

  std::vector<int64_t> steps_in(size_t operand, const Layout& layout) const {
    std::vector<int64_t> steps;
    for (size_t index = 0; index < product_.indices.size(); ++index)
      steps.push_back(step_along(graph_, product_, operand, index, layout));
    return steps;
  }

  // Of m, n or k (0, 1, 2): two operands' layouts decide.
  const std::vector<Chain>& chains_of(size_t role, const Layouts& layouts) {
    const Role& of = kRoles[role];
    std::vector<Chain>& known = chains_[role][static_cast<size_t>(layouts[of.one]) * domain_[of.two]->layouts.size() +
                                              static_cast<size_t>(layouts[of.two])];
    if (known.empty()) known = find_chains(of);
    return known;
  }

  int64_t along(size_t operand, int index) const { return (*steps_[operand])[static_cast<size_t>(index)]; }

  // The indices that `one` and `two` run along and `other` does not, merged where their strides allow it in both. The
  // empty chain stands for an extent of one.
  std::vector<Chain> find_chains(const Role& role) const {
    std::vector<int> indices;
    for (int k = 0; k < static_cast<int>(product_.indices.size()); ++k) {
      const bool fits = product_.indices[static_cast<size_t>(k)].reduced == role.reduced && along(role.one, k) != 0 &&
                        along(role.two, k) != 0 && along(role.other, k) == 0;
      if (fits) indices.push_back(k);
    }
    std::sort(indices.begin(), indices.end(), [&](int l, int r) { return along(role.one, l) > along(role.one, r); });
    std::vector<Chain> found;
    for (const int index : indices) {
      if (!found.empty() && merges(found.back().back(), index, role.one) &&
          merges(found.back().back(), index, role.two)) {
        found.back().push_back(index);
      } else {
        found.emplace_back(1, index);
      }
    }
    if (found.empty()) found.emplace_back();
    return found;
  }

  bool merges(int outer, int inner, size_t operand) const {
    return along(operand, outer) == along(operand, inner) * product_.indices[static_cast<size_t>(inner)].extent;
  }

  int64_t extent(const Chain& chain) const {
    int64_t points = 1;
    for (const int index : chain) points *= product_.indices[static_cast<size_t>(index)].extent;
    return points;
  }

  int64_t step(size_t operand, const Chain& chain) const { return chain.empty() ? 1 : along(operand, chain.back()); }

  // What OpenBLAS wants of each matrix: neighbours along one of its indices are neighbours in memory.
  bool unit_stride(size_t operand, const Chain& one, const Chain& two) const {
    return step(operand, one) == 1 || step(operand, two) == 1;
  }

  void consider(const Chain& m, const Chain& n, const Chain& k) {
    double calls = 1;
    bool shared_loops = false;  // loops whose products do not add up
    for (size_t index = 0; index < product_.indices.size(); ++index) {
      const auto in = [&](const Chain& chain) {
        return std::find(chain.begin(), chain.end(), static_cast<int>(index)) != chain.end();
      };
      if (in(m) || in(n) || in(k)) continue;
      calls *= static_cast<double>(product_.indices[index].extent);
      shared_loops = shared_loops || along(kC, static_cast<int>(index)) != 0;
    }
    const bool unit = unit_stride(kA, m, k) && unit_stride(kB, k, n) && unit_stride(kC, m, n);
    for (const GemmLibrary library : options_.libraries) {
      if (product_.has_epilogue() && library != GemmLibrary::cublaslt) {
        collector_.reject("only cuBLASLt does what is absorbed");
        continue;
      }
      if (library == GemmLibrary::cublaslt) {
        consider_cublaslt(m, n, k, unit);
        continue;
      }
      if (library == GemmLibrary::openblas && !unit) {
        collector_.reject("OpenBLAS: a matrix has no unit stride along either of its indices");
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

  // One call: what is not in m, n or k is one batch, the same distance apart from one to the next.
  void consider_cublaslt(const Chain& m, const Chain& n, const Chain& k, bool unit) {
    if (!unit) return collector_.reject("cuBLASLt: a matrix has no unit stride along either of its indices");
    std::vector<int> batch;
    for (size_t index = 0; index < product_.indices.size(); ++index) {
      const auto in = [&](const Chain& chain) {
        return std::find(chain.begin(), chain.end(), static_cast<int>(index)) != chain.end();
      };
      if (in(m) || in(n) || in(k)) continue;
      if (along(kC, static_cast<int>(index)) == 0)
        return collector_.reject("cuBLASLt: a sum over products is more than one call");
      batch.push_back(static_cast<int>(index));
    }
    std::sort(batch.begin(), batch.end(), [&](int l, int r) { return along(kC, l) > along(kC, r); });
    for (size_t at = 0; at + 1 < batch.size(); ++at) {
      for (const size_t operand : {kA, kB, kC}) {
        if (!merges(batch[at], batch[at + 1], operand))
          return collector_.reject("cuBLASLt: a batch along two indices that do not lie as one");
      }
    }
    if (const char* const reason = why_no_vector(m, n, batch)) return collector_.reject(reason);
    if (product_.auxiliary.valid() && !can_be_auxiliary(m, n, batch))
      return collector_.reject("cuBLASLt: columns of the auxiliary matrix are no multiple of 8 apart");
    // Tensor Cores take halves as they are; float32 they would round first.
    const DType dtype = graph_.tensor(product_.tensors[kC].front()).dtype;
    for (const bool tensor_cores : {true, false}) {
      if (tensor_cores ? dtype == DType::float32 : dtype == DType::float64) continue;
      Found found{&m, &n, &k, GemmLibrary::cublaslt, false, tensor_cores, 0, found_.size()};
      found.estimate = estimate_on_gpu(found, extent(batch));
      found_.push_back(found);
    }
  }

  // What cuBLASLt asks of a vector: a bias runs along the matrix index whose neighbours are neighbours in C, the
  // gradient of one along that of the operand's which is not contracted. Null: it is so.
  const char* why_no_vector(const Chain& m, const Chain& n, const std::vector<int>& batch) const {
    if (!product_.vector) return nullptr;
    const bool of_c = product_.vector->role == ProductVector::Role::bias;
    const bool of_m =
        of_c ? step(kC, m) == 1 && !m.empty() : product_.vector->role == ProductVector::Role::gradient_of_a;
    const Chain& chain = of_m ? m : n;
    const auto still = [&](const Chain& indices) {
      return std::all_of(indices.begin(), indices.end(), [&](int index) { return along(kV, index) == 0; });
    };
    if (!still(of_m ? n : m) || (of_c && step(kC, chain) != 1))
      return "cuBLASLt: a bias runs along the index whose neighbours in the result are apart";
    if (chain.empty() || step(kV, chain) != 1) return "cuBLASLt: the neighbours in a bias are apart";
    for (size_t at = 0; at + 1 < chain.size(); ++at) {
      if (!merges(chain[at], chain[at + 1], kV)) return "cuBLASLt: a bias does not lie as the matrix's index does";
    }
    for (size_t at = 0; at < batch.size(); ++at) {
      if (at + 1 < batch.size() && !merges(batch[at], batch[at + 1], kV))
        return "cuBLASLt: biases of a batch are not equally far apart";
      if (!of_c && along(kV, batch[at]) == 0) return "cuBLASLt: products of a batch would write one gradient";
    }
    return nullptr;
  }

  // What cuBLASLt asks of an auxiliary matrix, which lies as the result does.
  bool can_be_auxiliary(const Chain& m, const Chain& n, const std::vector<int>& batch) const {
    const bool of_m = step(kC, m) == 1 && !m.empty();
    const Chain& column = of_m ? m : n;
    const Chain& row = of_m ? n : m;
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
    if (const TensorId beside = product_.beside(); beside.valid())
      bytes += static_cast<double>(elements_of(graph_, beside) * bytes_of(graph_.tensor(beside).dtype));
    return std::max(flop / (config.tensor_cores ? kGpuFlopPerSecond : kGpuPlainFlopPerSecond),
                    bytes / kGpuBytesPerSecond) +
           kGpuLaunchSeconds;
  }

  std::vector<int> all_layouts(const Layouts& layouts) const {
    std::vector<int> all;
    for (const bool writes : {false, true}) {
      for (const TensorId tensor : writes ? partition_.writes : partition_.reads) {
        if (tensor == product_.beside() && writes == product_.writes_auxiliary()) {
          all.push_back(layout_beside(layouts));
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
    const auto filled = [](double x) { return x / (x + 8); };  // how well short matrices fill a product
    double threads = options_.threads;
    if (!config.threads_over_loops && m * n * k < 1e5) threads = 1;
    const double flop = 2 * m * n * k / (filled(m) * filled(n) * filled(k));
    double bytes = 0;
    for (size_t operand = 0; operand < 3; ++operand) {
      if (!product_.packed[operand]) continue;
      for (const TensorId tensor : product_.tensors[operand])
        bytes += 8.0 * static_cast<double>(elements_of(graph_, tensor));
    }
    if (product_.adds()) bytes += 8.0 * static_cast<double>(elements_of(graph_, product_.added));
    return calls * (flop / kFlopPerSecond / threads + kCallSeconds) * (unit ? 1 : 1.5) + bytes / 10e9;
  }

  const Graph& graph_;
  const std::vector<TensorDomain>& domains_;
  const EnumerateOptions& options_;
  const Partition& partition_;
  const Product& product_;
  Collector& collector_;
  std::array<const TensorDomain*, 4> domain_{};
  std::array<std::vector<std::vector<int64_t>>, 4> steps_of_layouts_;
  std::array<std::vector<bool>, 4> as_written_;  // one a layout: whether it is how the operand's tensors are written
  std::array<std::vector<std::vector<Chain>>, 3> chains_;  // of m, n and k, for every two layouts; empty: not yet found
  std::array<const std::vector<int64_t>*, 4> steps_{};     // of the layouts in question
  std::vector<int> layout_beside_;                         // one a layout of the result
  std::vector<Found> found_;                               // under the layouts in question
  bool operands_apart_ = false;
};

}  // namespace

void gemm_configs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                  PartitionCandidates& into, Collector& collector) {
  GemmConfigs(graph, domains, options, into.partition, collector).run();
}

}  // namespace millrace
