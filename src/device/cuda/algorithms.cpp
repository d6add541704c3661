#include "device/cuda/algorithms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>

namespace millrace {
namespace {

// A product has tens of algorithms, each with hundreds of combinations of tiles, stages and options. Beyond these
// limits neither queries nor measurements pay off; what is cut are variants of what is kept (see `rank`).
constexpr size_t kMostAlgorithms = 2000;
constexpr size_t kMostChecks = 40000;     // queries to the library about a product
constexpr size_t kMostChecksAnId = 6000;  // queries about one algorithm; half of them before its variants
constexpr int kHeuristicChoices = 64;
constexpr int kMostCustom = 63;
constexpr double kFewWaves = 2;  // with fewer waves, split-k gives more blocks
constexpr int64_t kLeastSplit = 64;
constexpr std::array kSplits = {2, 3, 4, 6, 8, 12, 16};
constexpr int kLastInnerShape = CUBLASLT_MATMUL_INNER_SHAPE_END - 1;
constexpr int kFirstCluster = CUBLASLT_CLUSTER_SHAPE_1x1x1;
constexpr int kLastCluster = CUBLASLT_CLUSTER_SHAPE_END - 1;

using Key = std::tuple<int, int, int, int, int, int, int, int, int>;
Key key_of(const GemmAlgorithm& one) {
  return {one.id,      one.tile,   one.stages,      one.split_k, one.reduction,
          one.swizzle, one.custom, one.inner_shape, one.cluster};
}

enum class Round { heuristic, plain, variant };

struct Admitted {
  GemmAlgorithm algorithm;
  Round round = Round::plain;
  float waves = 0;
};

// Orders by round, then by how much of the device idles in the last wave of blocks.
bool rank(const Admitted& one, const Admitted& other) {
  if (one.round != other.round) return one.round < other.round;
  if (one.round == Round::heuristic) return false;
  const auto waste = [](const Admitted& admitted) {
    return admitted.waves > 0 ? std::ceil(admitted.waves) / admitted.waves : 1.0F;
  };
  return waste(one) < waste(other);
}

class Search {
 public:
  explicit Search(const CublasLtProduct& product) : product_(product) {}

  Result<std::vector<GemmAlgorithm>> run() {
    const Result<std::vector<cublasLtMatmulHeuristicResult_t>> chosen = product_.heuristic(kHeuristicChoices);
    if (!chosen) return chosen.error();
    for (const cublasLtMatmulHeuristicResult_t& one : *chosen) add(product_.attributes(one.algo), Round::heuristic);
    Result<std::vector<int>> ids = product_.algorithm_ids();
    if (!ids) return ids.error();
    std::reverse(ids->begin(), ids->end());  // later ones are for newer devices
    heuristic_ = admitted_.size();
    for (const int id : *ids) try_id(id, product_.tensor_cores());
    if (admitted_.empty() && product_.tensor_cores())
      for (const int id : *ids) try_id(id, false);
    std::stable_sort(admitted_.begin(), admitted_.end(), rank);
    if (admitted_.size() > kMostAlgorithms) admitted_.resize(kMostAlgorithms);
    std::vector<GemmAlgorithm> algorithms;
    for (const Admitted& one : admitted_) algorithms.push_back(one.algorithm);
    return algorithms;
  }

 private:
  // What an algorithm can vary.
  struct Abilities {
    std::vector<uint32_t> tiles;
    std::vector<uint32_t> stages;
    std::vector<uint32_t> reductions;  // empty: no split-k
    int custom_max = 0;
    bool swizzles = false;
  };

  // Keeps it if it is new and the library accepts it.
  void add(const GemmAlgorithm& algorithm, Round round) {
    if (!seen_.insert(key_of(algorithm)).second) return;
    ++checks_;
    const Result<cublasLtMatmulAlgo_t> configured = product_.configured(algorithm);
    cublasLtMatmulHeuristicResult_t result{};
    if (configured && product_.admits(*configured, result)) admitted_.push_back({algorithm, round, result.wavesCount});
  }

  // Whether `most` queries about the current id have been made.
  bool spent(size_t most) const { return checks_ >= kMostChecks || checks_ - checks_before_id_ >= most; }

  void try_id(int id, bool tensor_cores) {
    checks_before_id_ = checks_;
    const Result<cublasLtMatmulAlgo_t> algorithm = product_.initialised(id);
    if (!algorithm || !is_for_this_product(*algorithm, tensor_cores)) return;
    const Abilities abilities = abilities_of(*algorithm);
    const size_t before = admitted_.size();
    try_plain(id, abilities);
    std::vector<Admitted> bases;
    for (size_t k = 0; k < admitted_.size(); ++k)
      if ((k < heuristic_ || k >= before) && admitted_[k].algorithm.id == id) bases.push_back(admitted_[k]);
    if (bases.empty()) return;
    const GemmAlgorithm& first = bases.front().algorithm;
    const std::vector<int> clusters = heeded(first, &GemmAlgorithm::cluster, kFirstCluster, kLastCluster);
    const std::vector<int> shapes = heeded(first, &GemmAlgorithm::inner_shape, 1, kLastInnerShape);
    for (const Admitted& base : bases) {
      if (spent(kMostChecksAnId)) return;
      if (abilities.swizzles) try_variant(base, &GemmAlgorithm::swizzle, 1);
      for (const int shape : shapes) try_variant(base, &GemmAlgorithm::inner_shape, shape);
      for (const int cluster : clusters) try_variant(base, &GemmAlgorithm::cluster, cluster);
      if (base.waves < kFewWaves && base.algorithm.split_k == 1) try_splits(base, abilities);
    }
  }

  // Matrices aligned as it requires; with or without tensor cores, as requested.
  bool is_for_this_product(const cublasLtMatmulAlgo_t& algorithm, bool tensor_cores) const {
    const auto flags = product_.capability<uint64_t>(algorithm, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, 0);
    const bool on_tensor_cores = (flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK) != 0;
    if (on_tensor_cores != tensor_cores) return false;
    const ColumnMajorProduct& shape = product_.shape();
    const auto fits = [&](cublasLtMatmulAlgoCapAttributes_t which, const ColumnMajor& matrix) {
      const auto wanted = product_.capability<uint32_t>(algorithm, which, 1);
      return wanted == 0 || matrix.alignment % wanted == 0;
    };
    return fits(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES, shape.a) &&
           fits(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES, shape.b) &&
           fits(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES, shape.c) &&
           fits(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES, shape.c) &&
           (shape.batch == 1 ||
            product_.capability<int32_t>(algorithm, CUBLASLT_ALGO_CAP_STRIDED_BATCH_SUPPORT, 1) != 0);
  }

  Abilities abilities_of(const cublasLtMatmulAlgo_t& algorithm) const {
    Abilities abilities;
    abilities.tiles = product_.capabilities(algorithm, CUBLASLT_ALGO_CAP_TILE_IDS);
    abilities.stages = product_.capabilities(algorithm, CUBLASLT_ALGO_CAP_STAGES_IDS);
    if (abilities.tiles.empty()) abilities.tiles = {CUBLASLT_MATMUL_TILE_UNDEFINED};
    if (abilities.stages.empty()) abilities.stages = {CUBLASLT_MATMUL_STAGES_UNDEFINED};
    abilities.custom_max =
        std::clamp(product_.capability<int32_t>(algorithm, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX, 0), 0, kMostCustom);
    abilities.swizzles = product_.capability<uint32_t>(algorithm, CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT, 0) != 0;
    if (product_.capability<int32_t>(algorithm, CUBLASLT_ALGO_CAP_SPLITK_SUPPORT, 0) == 0) return abilities;
    const uint32_t able = product_.capability<uint32_t>(algorithm, CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK, 0);
    for (const uint32_t scheme : {CUBLASLT_REDUCTION_SCHEME_INPLACE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                                  CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE})
      if ((able & product_.reductions() & scheme) != 0) abilities.reductions.push_back(scheme);
    return abilities;
  }

  void try_plain(int id, const Abilities& abilities) {
    GemmAlgorithm algorithm;
    algorithm.id = id;
    for (algorithm.custom = 0; algorithm.custom <= abilities.custom_max; ++algorithm.custom) {
      for (const uint32_t tile : abilities.tiles) {
        for (const uint32_t stages : abilities.stages) {
          if (spent(kMostChecksAnId / 2)) return;
          algorithm.tile = static_cast<int>(tile);
          algorithm.stages = static_cast<int>(stages);
          add(algorithm, Round::plain);
        }
      }
    }
  }

  void try_variant(const Admitted& base, int GemmAlgorithm::*attribute, int value) {
    GemmAlgorithm algorithm = base.algorithm;
    algorithm.*attribute = value;
    add(algorithm, Round::variant);
  }

  void try_splits(const Admitted& base, const Abilities& abilities) {
    for (const int split : kSplits) {
      if (product_.k() < split * kLeastSplit) return;
      for (const uint32_t scheme : abilities.reductions) {
        GemmAlgorithm algorithm = base.algorithm;
        algorithm.split_k = split;
        algorithm.reduction = static_cast<int>(scheme);
        add(algorithm, Round::variant);
      }
    }
  }

  // The library does not report which cluster and inner shapes an algorithm has. An algorithm that accepts some and
  // rejects others distinguishes them; one that accepts all ignores them. Returns those that it distinguishes.
  std::vector<int> heeded(const GemmAlgorithm& base, int GemmAlgorithm::*attribute, int first, int last) {
    std::vector<int> admitted;
    GemmAlgorithm algorithm = base;
    for (int value = first; value <= last; ++value) {
      algorithm.*attribute = value;
      ++checks_;
      const Result<cublasLtMatmulAlgo_t> configured = product_.configured(algorithm);
      cublasLtMatmulHeuristicResult_t result{};
      if (configured && product_.admits(*configured, result)) admitted.push_back(value);
    }
    if (std::ssize(admitted) == last - first + 1) admitted.clear();
    return admitted;
  }

  const CublasLtProduct& product_;
  std::set<Key> seen_;
  std::vector<Admitted> admitted_;
  size_t heuristic_ = 0;  // how many of them are the heuristic's
  size_t checks_ = 0;
  size_t checks_before_id_ = 0;
};

}  // namespace

Result<std::vector<GemmAlgorithm>> list_algorithms(const CublasLtProduct& product) { return Search(product).run(); }

}  // namespace millrace
