// A library's product runs over exactly the points of the contraction.
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "base/sanitized.h"
#include "base/text.h"
#include "candidates/enumerate.h"
#include "codegen/lower.h"
#include "fusion/fusion_text.h"

namespace millrace {
namespace {

using Touched = std::map<std::array<int64_t, 3>, int>;  // elements of a, b and c that meet, and how often

// Every point of a space, row-major.
template <class Body>
void for_each_point(const std::vector<int64_t>& extents, const Body& body) {
  std::vector<int64_t> point(extents.size(), 0);
  bool more = true;
  while (more) {
    body(point);
    more = false;
    for (size_t k = extents.size(); k-- > 0 && !more;) {
      more = ++point[k] < extents[k];
      if (!more) point[k] = 0;
    }
  }
}

// The source's element of an element of the copy, or the element itself if there is no copy.
int64_t before_copy(const StridedCopy& copy, int64_t element) {
  if (copy.empty()) return element;
  int64_t source = copy.first;
  for (size_t axis = copy.axes.size(); axis-- > 0; element /= copy.axes[axis].extent)
    source += element % copy.axes[axis].extent * copy.axes[axis].stride;
  return source;
}

Touched touched_by(const Launch& launch) {
  const GemmCall& call = launch.gemm;
  std::vector<int64_t> extents = {call.m, call.n, call.k};
  for (const auto& loop : call.loops) extents.push_back(loop.extent);
  Touched touched;
  for_each_point(extents, [&](const std::vector<int64_t>& at) {
    std::array<int64_t, 3> place = {call.a_first + at[0] * call.a_m + at[2] * call.a_k,
                                    call.b_first + at[2] * call.b_k + at[1] * call.b_n,
                                    at[0] * call.c_m + at[1] * call.c_n};
    for (size_t k = 0; k < call.loops.size(); ++k) {
      place[0] += at[3 + k] * call.loops[k].a;
      place[1] += at[3 + k] * call.loops[k].b;
      place[2] += at[3 + k] * call.loops[k].c;
    }
    for (const size_t operand : {size_t{0}, size_t{1}})
      place[operand] = before_copy(launch.unfolded[operand], place[operand]);
    ++touched[place];
  });
  return touched;
}

// Derived from the operators and layouts alone. Stacked tensors are adjacent.
Touched wanted_of(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts) {
  const auto layout_of = [&](TensorId tensor, bool written) -> const Layout& {
    const std::vector<TensorId>& list = written ? partition.writes : partition.reads;
    const auto at = static_cast<size_t>(std::find(list.begin(), list.end(), tensor) - list.begin());
    return layouts[at + (written ? partition.reads.size() : 0)];
  };
  Touched wanted;
  size_t number = 0;
  for (const OperatorId id : partition.operators) {
    const Operator& op = graph.operators[id.at()];
    if (op.kind != OperatorKind::contraction) continue;
    std::vector<int64_t> extents;
    for (const DimId dim : op.space) extents.push_back(graph.extent(dim));
    const bool swapped =
        op.inputs[0].tensor != partition.product.tensors[0][partition.product.tensors[0].size() > 1 ? number : 0];
    for_each_point(extents, [&](const std::vector<int64_t>& at) {
      std::array<int64_t, 3> place{};
      for (size_t operand = 0; operand < 3; ++operand) {
        const Access& access = operand == 2 ? op.outputs[0] : op.inputs[swapped ? 1 - operand : operand];
        const std::vector<TensorId>& stack = partition.product.tensors[operand];
        const TensorId tensor = operand == 2 && stack.size() == 1 ? stack.front() : access.tensor;
        const std::vector<int64_t> strides = strides_of(graph, tensor, layout_of(tensor, operand == 2));
        for (size_t axis = 0; axis < access.axes.size(); ++axis) {
          place[operand] += strides[axis] * access.axes[axis].offset;
          for (const IndexTerm& term : access.axes[axis].terms)
            place[operand] += strides[axis] * term.stride * at[static_cast<size_t>(term.index)];
        }
        if (stack.size() > 1) place[operand] += static_cast<int64_t>(number) * elements_of(graph, tensor);
      }
      ++wanted[place];
    });
    ++number;
  }
  return wanted;
}

void expect_exactly_the_contraction(const TrainingGraph& training, size_t every) {
  EnumerateOptions options;
  options.threads = 2;
  options.libraries = {GemmLibrary::openblas, GemmLibrary::blis, GemmLibrary::onednn, GemmLibrary::mkl};
  options.most = 4000;
  Result<Candidates> found = find_partitions(training, fuse(training), options);
  ASSERT_TRUE(found);
  size_t stacked = 0;
  size_t looped = 0;
  size_t next = 0;
  for (PartitionCandidates& entry : found->partitions) {
    if (entry.partition.kind != PartitionKind::contraction) continue;
    find_configs(training.graph, found->domains, options, entry);
    EXPECT_FALSE(entry.candidates.empty()) << entry.partition.name;
    for (const Candidate& candidate : entry.candidates) {
      if (next++ % every != 0 || !std::holds_alternative<GemmConfig>(candidate.config)) continue;
      const std::vector<Layout> layouts = layouts_of(found->domains, entry.partition, candidate);
      const Launch launch = lower(training.graph, entry.partition, layouts, candidate.config);
      ASSERT_EQ(touched_by(launch), wanted_of(training.graph, entry.partition, layouts))
          << entry.partition.name << ": " << print_candidate(found->domains, entry.partition, candidate);
      EXPECT_TRUE(launch.gemm.library == GemmLibrary::blis ||
                  ((launch.gemm.a_m == 1 || launch.gemm.a_k == 1) && (launch.gemm.b_k == 1 || launch.gemm.b_n == 1) &&
                   (launch.gemm.c_m == 1 || launch.gemm.c_n == 1)))
          << "OpenBLAS, oneDNN and MKL need a unit stride";
      stacked += entry.partition.members.empty() ? 1 : 0;
      looped += launch.gemm.loops.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(stacked + looped, 0U);
}

TEST(GemmConfigs, RunOverExactlyTheContractionsOfUnfoldedWindows) {
  constexpr const char* kText = R"(
B, C, N, Y, X = 1, 2, 3, 4, 5


def f(x: float32[B, C, Y, X], w: float32[N, C, 3, 2]):
    return conv2d(x, w, stride=2, padding=1), conv2d(x[..., ::-1], w)
)";
  expect_exactly_the_contraction(training_of(kText), 61);
}

TEST(GemmConfigs, RunOverExactlyTheContractionsOfAModel) {
  expect_exactly_the_contraction(training_of_model("mha", {"tiny", "J=3", "K=5", "P=2", "W=3"}), 23);
  if (kSanitized) return;  // the same code
  expect_exactly_the_contraction(training_of_model("bert_encoder", {"tiny", "J=3", "P=2", "W=3", "U=5"}), 23);
}

TEST(GemmConfigs, RunOverExactlyContractionsOfEveryKind) {
  expect_exactly_the_contraction(training_of(R"(
A = 5
B = 3
C = 7
D = 1


def contractions(x: float32[A, B], y: float32[B, C], t: float32[A, B, C], u: float32[A, B, C], v: float32[A],
                 w: float32[C], s: float32[A, A], one: float32[D, B]):
    return (np.einsum("a,c->ac", v, w), np.einsum("ab,bc->ac", x, y), np.einsum("abc,abc->ab", t, u),
            np.einsum("abc,bc->ca", t, y), np.einsum("aa,ab->ab", s, x), np.einsum("abc,ab->c", t, x),
            np.einsum("abc,ab->bca", t, x), np.einsum("abc,abc->", t, u), np.einsum("db,bc->dc", one, y),
            np.einsum("ab,cb->ac", s, s))
)"),
                                 1);
}

// The one contraction of a program, with oneDNN as the only library.
PartitionCandidates product_by_onednn(const char* type, const char* einsum, EnumerateOptions options = {}) {
  const TrainingGraph training = training_of(
      concat("def f(x: ", type, "[4, 5, 6], y: ", type, "[4, 6, 7]):\n    return np.einsum(\"", einsum, "\", x, y)\n"));
  options.libraries = {GemmLibrary::onednn};
  Result<Candidates> found = find_partitions(training, fuse(training), options);
  EXPECT_TRUE(found);
  for (PartitionCandidates& entry : found->partitions) {
    if (entry.partition.kind != PartitionKind::contraction) continue;
    find_configs(training.graph, found->domains, options, entry);
    return entry;
  }
  ADD_FAILURE() << "no contraction";
  return {};
}

size_t products_of(const PartitionCandidates& entry) {
  return static_cast<size_t>(
      std::count_if(entry.candidates.begin(), entry.candidates.end(),
                    [](const Candidate& candidate) { return std::holds_alternative<GemmConfig>(candidate.config); }));
}

bool rejects(const PartitionCandidates& entry, const std::string& reason) {
  return std::any_of(entry.rejected.begin(), entry.rejected.end(),
                     [&](const Rejected& rejected) { return rejected.reason == reason; });
}

TEST(GemmConfigs, OneDnnTakesTheTypesOfTheDevice) {
  EXPECT_GT(products_of(product_by_onednn("float32", "bik,bkj->bij")), 0U);
  EXPECT_GT(products_of(product_by_onednn("bfloat16", "bik,bkj->bij")), 0U);
  const PartitionCandidates wide = product_by_onednn("float64", "bik,bkj->bij");
  EXPECT_EQ(products_of(wide), 0U);
  EXPECT_TRUE(rejects(wide, "oneDNN has no products of float64"));
  EnumerateOptions old;
  old.lacking = {{GemmLibrary::onednn, StoredType::bf16}};
  const PartitionCandidates lacking = product_by_onednn("bfloat16", "bik,bkj->bij", old);
  EXPECT_EQ(products_of(lacking), 0U);
  EXPECT_TRUE(rejects(lacking, "oneDNN has no fast products of the type on this processor"));
}

TEST(GemmConfigs, OneDnnNeedsUnitStridesAndNoSumOfProducts) {
  EXPECT_TRUE(
      rejects(product_by_onednn("float32", "bik,bkj->ij"), "oneDNN: a sum over products needs more than one call"));
  EnumerateOptions any;
  any.layouts = {{"x", "any"}};
  EXPECT_TRUE(rejects(product_by_onednn("float32", "bik,bkj->bij", any),
                      "oneDNN: a matrix has no unit stride along either of its indices"));
}

// oneDNN has only a slow reference for a bias, or for float16, if the rows of the result have gaps between them.
TEST(GemmConfigs, OneDnnHasNoFastCodeForSomeResultsWithGaps) {
  const char* const einsum = "bik,bkj->ibj";
  EXPECT_TRUE(rejects(product_by_onednn("float16", einsum), "oneDNN: a float16 result with gaps between its rows"));
  EXPECT_FALSE(rejects(product_by_onednn("bfloat16", einsum), "oneDNN: a float16 result with gaps between its rows"));
}

}  // namespace
}  // namespace millrace
