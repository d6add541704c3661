// Generated kernels and lowered products, of candidates by chance, against the reference.
#include <gtest/gtest.h>

#include "base/text.h"
#include "codegen/trials_of_programs.h"
#include "device/cpu/blas_library.h"
#include "fusion/fusion_text.h"
#include "golden/golden.h"
#include "random/generator.h"

namespace millrace {
namespace {

const std::vector<std::string>& dtypes() {
  static const std::vector<std::string> names = {"float32", "float64", "bfloat16", "float16"};
  return names;
}

void draw_in_all_types(TrialsOfPrograms& trials, const std::string& name, const std::string& text,
                       const std::vector<std::string>& sizes, size_t count, bool libraries = true) {
  const TriedProgram first = tried_program(name, text, sizes, dtypes().front(), nullptr, libraries);
  ASSERT_FALSE(testing::Test::HasFailure());
  for (const std::string& dtype : dtypes())
    trials.draw(tried_program(name, text, sizes, dtype, &first.candidates), count, true);
}

// What models and chance may miss. Extents: one, below a vector, a vector, and more than one with a rest.
const char* const kCorners = R"(
A = 19
B = 16
C = 35
D = 1
E = 5


def corners(x: float32[A, C], y: float32[A, C], row: float32[C], column: float32[A], one: float32[D, E, D],
            square: float32[A, A], wide: float32[B, A, A], scale: float32, shift: float32[E]):
    masked = softmax(causal_mask(square))
    chosen = np.where(x < y, x * scale, np.maximum(y, row[None, :]))
    highest = np.max(chosen, axis=1)
    lowest = np.min(chosen, axis=0, keepdims=True)
    spread = chosen - lowest + np.minimum(column, 0.25)[:, None]
    diagonal = np.einsum("ii->i", square) + np.einsum("bii->i", wide)
    dropped = dropout(gelu(spread), p=0.3)
    widened = dropout(wide + masked[None, :, :], p=0.5)
    ones = dropout(softmax(one) + shift[None, :, None], p=0.4)
    means = np.mean(widened, axis=(0, 2)) * highest + diagonal
    powers = np.abs(spread) ** 1.5 + np.square(chosen) + silu(x) * np.tanh(y) + relu(x) ** 3
    return dropped, widened, ones, means, np.sum(powers, axis=0), np.max(wide, axis=(0, 1)), rmsnorm(y, row)
)";

// Contractions of every kind, by the libraries and by generated loops.
const char* const kContractions = R"(
A = 5
B = 3
C = 7
D = 1


def contractions(x: float32[A, B], y: float32[B, C], t: float32[A, B, C], u: float32[A, B, C], v: float32[A],
                 w: float32[C], s: float32[A, A], one: float32[D, B], scale: float32):
    outer = np.einsum("a,c->ac", v, w)
    matrix = scale * np.einsum("ab,bc->ac", x, y)
    batched = np.einsum("abc,abc->ab", t, u)
    swapped = np.einsum("abc,bc->ca", t, y)
    diagonal = np.einsum("aa,ab->ab", s, x)
    one_sided = np.einsum("abc,ab->c", t, x)
    unreduced = np.einsum("abc,ab->bca", t, x)
    dot = np.einsum("abc,abc->", t, u)
    thin = np.einsum("db,bc->dc", one, y)
    own = np.einsum("ab,db->da", x, one)
    summed = np.einsum("abc,c->a", t, w) + np.einsum("abc,c->a", u, w)
    square = np.einsum("ab,cb->ac", s, s)
    return outer, matrix, batched, swapped, diagonal, one_sided, unreduced, dot, thin, own, summed, square
)";

// One test: what a kernel of one program has shown, no other is compiled for.
TEST(CpuKernel, CandidatesAgreeWithTheReference) {
  TrialsOfPrograms trials(1);
  draw_in_all_types(trials, "contractions", kContractions, {}, 6);
  draw_in_all_types(trials, "contractions as kernels", kContractions, {}, 1, false);
  draw_in_all_types(trials, "corners", kCorners, {}, 3);
  for (const std::string& model : models()) {
    const std::string text = text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/", model, ".py"));
    draw_in_all_types(trials, model, text, {"odd"}, 1);
    if (model != "llama_block") draw_in_all_types(trials, model, text, {"tiny"}, 1);  // six axes: long to enumerate
  }
  for (uint64_t seed = 1001; seed <= 1040; ++seed) {
    const std::string text = random_programs::random_program(seed);
    trials.draw(tried_program(concat("random ", seed), text, {}, dtypes()[seed % dtypes().size()]), 2, true);
  }
  ASSERT_FALSE(testing::Test::HasFailure());
  trials.run();
  for (const char* const wanted : {"softmax_dx & rows",
                                   "softmax_dx & rows in lanes",
                                   "layernorm_dw & flat",
                                   "rmsnorm & rows in lanes",
                                   "causal_mask & rows",
                                   "causal_mask_dx & rows in lanes",
                                   "dropout_dx & flat",
                                   "conversion & flat in blocks",
                                   "conversion & flat",
                                   "where & flat",
                                   "extremum_dx & rows in lanes",
                                   "embed_diagonal & flat",
                                   "max & rows",
                                   "min & rows in lanes",
                                   "less & flat",
                                   "silu_dx in float64",
                                   "gelu_dx in float32",
                                   "power_dx in float32",
                                   "contraction in float64",
                                   "flat in blocks & threads",
                                   "rows in lanes & bfloat16",
                                   "rows & float16",
                                   "a mask written as bits & float16",
                                   "a mask read as drawn & bfloat16",
                                   "rows in lanes & a mask read as drawn",
                                   "rows & vectors and a rest",
                                   "rows & whole vectors",
                                   "rows in lanes & vectors and a rest"})
    EXPECT_TRUE(trials.features().contains(wanted)) << wanted;
  if (blas_info(BlasLibrary::openblas).there || blas_info(BlasLibrary::blis).there) {
    EXPECT_GT(trials.products(), 500U);
  } else {
    GTEST_SKIP() << "no library's products here: kernels alone were compared";
  }
  RecordProperty("kernels", static_cast<int>(trials.kernels()));
  RecordProperty("products", static_cast<int>(trials.products()));
}

// MILLRACE_RANDOM_KERNELS=1000: so many programs, with nothing left out.
TEST(CpuKernel, ManyRandomProgramsWhereAskedFor) {
  const char* const count = std::getenv("MILLRACE_RANDOM_KERNELS");
  for (uint64_t seed = 0; count != nullptr && seed < std::stoull(count); ++seed) {
    TrialsOfPrograms trials(seed);
    const std::string text = random_programs::random_program(seed);
    trials.draw(tried_program(concat("random ", seed), text, {}, dtypes()[seed % dtypes().size()]), 3, false);
    trials.run();
  }
}

}  // namespace
}  // namespace millrace
