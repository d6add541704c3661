#include "frontend/not_covered.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace millrace {
namespace {

// One or more names, separated by spaces, that have the same remedy.
struct Entry {
  std::string_view names;
  std::string_view remedy;
};

constexpr std::string_view kNoFiles =
    "a program reads and writes no files: pass the tensor as an argument or return it";
constexpr std::string_view kNoComplex = "complex numbers are not covered: keep real and imaginary parts as two tensors";

// Functions of NumPy; those of a submodule are written with its name, and `fft.*` is all of it.
constexpr auto kNumpy = std::to_array<Entry>({
    {"sort argsort msort partition argpartition lexsort sort_complex searchsorted",
     "sorting is not covered; for the largest value write np.max(x, axis=-1)"},
    {"argmax argmin nanargmax nanargmin",
     "positions of elements are not covered; mark the largest ones with x == np.max(x, axis=-1, keepdims=True)"},
    {"median percentile quantile nanmedian nanpercentile nanquantile",
     "it needs sorting, which is not covered; np.mean, np.max and np.min are"},
    {"unique nonzero flatnonzero argwhere extract compress intersect1d union1d setdiff1d setxor1d trim_zeros",
     "the shape of the result would depend on the data; keep all elements and write np.where(condition, x, 0)"},
    {"histogram histogram2d histogramdd bincount digitize count_nonzero",
     "count with comparisons: np.sum(np.where(x < edge, 1.0, 0.0))"},
    {"any", "write np.max(np.where(condition, 1.0, 0.0)) > 0"},
    {"all", "write np.min(np.where(condition, 1.0, 0.0)) > 0"},
    {"in1d isin", "compare with each item: (a == b) | (a == c)"},
    {"linalg.inv linalg.pinv linalg.solve linalg.lstsq linalg.tensorsolve linalg.tensorinv",
     "linear systems are not covered; pass the inverse as an argument"},
    {"linalg.svd linalg.svdvals linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh linalg.qr linalg.cholesky",
     "matrix decompositions are not covered; pass the factors as arguments"},
    {"linalg.det linalg.slogdet linalg.matrix_rank linalg.cond",
     "it needs a matrix decomposition, which is not covered"},
    {"linalg.matrix_power", "write the products: a @ a @ a"},
    {"linalg.multi_dot", "write a @ b @ c"},
    {"linalg.*", "of np.linalg only norm is covered"},
    {"fft.*",
     "Fourier transforms are not covered; multiply with the matrices of cosines and sines, passed as arguments"},
    {"random.*", "pass random numbers as an argument; dropout(x, p) draws its own mask"},
    {"interp", "write the pieces with np.where(x < knot, a, b)"},
    {"convolve correlate", "write it with sliding_window_view and np.einsum, or with conv1d of millrace.numpy"},
    {"vectorize frompyfunc apply_along_axis apply_over_axes piecewise fromfunction fromiter",
     "functions are not values; write the expression of whole tensors, with np.where for its cases"},
    {"select choose", "nest np.where(condition, a, b)"},
    {"meshgrid", "broadcast instead: x[:, None] and y[None, :]"},
    {"mgrid ogrid indices ix_ r_ c_", "broadcast instead: np.arange(N)[:, None] and np.arange(M)[None, :]"},
    {"kron", "write np.einsum(\"ij,kl->ikjl\", a, b) and merge its axes with reshape"},
    {"cross", "write its three components with slices and np.stack"},
    {"trace", "write np.einsum(\"ii->\", x)"},
    {"diag diagonal diagflat", "take a diagonal by np.einsum(\"ii->i\", x); make one by x[:, None] * np.eye(N)"},
    {"vecdot", "write np.einsum(\"i,i->\", a, b)"},
    {"einsum_path", "write np.einsum(…): the order of its products is chosen by cost"},
    {"hstack column_stack", "write np.concatenate([a, b], axis=1)"},
    {"vstack row_stack", "write np.concatenate([a, b], axis=0)"},
    {"dstack", "write np.stack([a, b], axis=-1)"},
    {"block bmat", "nest np.concatenate([a, b], axis=…)"},
    {"append insert", "tensors do not grow; write np.concatenate([a, b])"},
    {"delete", "write np.concatenate([x[:k], x[k + 1:]])"},
    {"resize", "write x.reshape(…), or np.tile(x, n)"},
    {"array_split hsplit vsplit dsplit", "write np.split(x, parts, axis=…), or slices"},
    {"fliplr", "write np.flip(x, axis=1)"},
    {"flipud", "write np.flip(x, axis=0)"},
    {"rot90", "write np.flip(np.swapaxes(x, 0, 1), axis=0)"},
    {"rollaxis", "write np.moveaxis(x, from, to)"},
    {"atleast_1d atleast_2d atleast_3d", "write x[None, :] where an axis is missing"},
    {"broadcast_arrays broadcast", "write np.broadcast_to(x, shape)"},
    {"tri", "write np.tril(np.ones((N, N)))"},
    {"identity", "write np.eye(N)"},
    {"tril_indices triu_indices diag_indices", "write np.where with np.arange(N)[:, None] <= np.arange(N)"},
    {"linspace", "write start + step * np.arange(N)"},
    {"logspace geomspace", "write np.exp(start + step * np.arange(N))"},
    {"array asarray asanyarray ascontiguousarray asfortranarray matrix asmatrix fromstring",
     "tensors are arguments of the function; write numbers as np.arange, np.ones or module-level constants"},
    {"empty empty_like", "write np.zeros(shape)"},
    {"diff ediff1d", "write x[1:] - x[:-1]"},
    {"gradient", "write (x[2:] - x[:-2]) / 2"},
    {"trapz trapezoid", "write np.sum((y[1:] + y[:-1]) * (x[1:] - x[:-1])) / 2"},
    {"cumprod nancumprod", "write np.exp(np.cumsum(np.log(x))) of positive numbers, or a loop over range(N)"},
    {"nansum nanmean nanmax nanmin nanstd nanvar nanprod nancumsum nan_to_num",
     "select the numbers first: np.where(x == x, x, 0)"},
    {"isnan", "write x != x"},
    {"isfinite", "write np.abs(x) < np.inf"},
    {"isinf isposinf isneginf", "write np.abs(x) == np.inf"},
    {"isclose allclose array_equal array_equiv", "write np.abs(a - b) < 1e-6"},
    {"floor ceil trunc rint fix round around round_",
     "rounding of tensors is not covered; of numbers write math.floor or math.ceil"},
    {"mod remainder fmod floor_divide divmod modf frexp ldexp", "remainders are for numbers: % and // of sizes"},
    {"logaddexp logaddexp2", "write m + np.log(np.exp(a - m) + np.exp(b - m)) with m = np.maximum(a, b)"},
    {"cbrt", "write np.abs(x) ** (1 / 3), with np.where for its sign"},
    {"true_divide", "write a / b"},
    {"positive", "write x"},
    {"float_power", "write x ** 2"},
    {"hypot", "write np.sqrt(a * a + b * b)"},
    {"fabs", "write np.abs(x)"},
    {"fmax", "write np.maximum(a, b)"},
    {"fmin", "write np.minimum(a, b)"},
    {"tan", "write np.sin(x) / np.cos(x)"},
    {"sinh", "write (np.exp(x) - np.exp(-x)) / 2"},
    {"cosh", "write (np.exp(x) + np.exp(-x)) / 2"},
    {"arctanh atanh", "write np.log((1 + x) / (1 - x)) / 2"},
    {"arcsinh asinh", "write np.log(x + np.sqrt(x * x + 1))"},
    {"arccosh acosh", "write np.log(x + np.sqrt(x * x - 1))"},
    {"arcsin arccos arctan arctan2 asin acos atan atan2 sinc i0 unwrap spacing nextafter copysign signbit",
     "this function is not covered; pass its values as an argument"},
    {"deg2rad radians", "write x * (np.pi / 180)"},
    {"rad2deg degrees", "write x * (180 / np.pi)"},
    {"heaviside", "write np.where(x < 0, 0, 1)"},
    {"logical_xor", "write a != b"},
    {"bitwise_and", "write a & b"},
    {"bitwise_or", "write a | b"},
    {"invert bitwise_not bitwise_invert", "write ~a"},
    {"bitwise_xor left_shift right_shift packbits unpackbits gcd lcm", "bits of tensors are not covered"},
    {"average", "write np.sum(w * x) / np.sum(w)"},
    {"ptp", "write np.max(x) - np.min(x)"},
    {"cov corrcoef", "subtract np.mean(x, axis=0), then write the products with np.einsum"},
    {"polyval polyfit polyadd polymul poly1d roots", "write polynomials as (a * x + b) * x + c"},
    {"put putmask place copyto fill_diagonal put_along_axis", "tensors are not changed in place; write np.where"},
    {"shape", "write x.shape"},
    {"ndim", "write x.ndim"},
    {"size", "write x.size"},
    {"copy", "write x: tensors are not changed in place, so a copy is not needed"},
    {"save savez savez_compressed savetxt load loadtxt genfromtxt fromfile frombuffer memmap tofile", kNoFiles},
    {"real imag conj conjugate angle iscomplex isreal iscomplexobj real_if_close", kNoComplex},
    {"finfo iinfo", "write the number"},
    {"dtype result_type promote_types can_cast issubdtype", "write x.astype(float32) to choose a type"},
    {"float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 bool_", "write x.astype(float32) of a tensor"},
    {"set_printoptions errstate seterr", "leave it out: a program prints nothing"},
    {"add.at subtract.at multiply.at maximum.at",
     "tensors are not changed in place; write np.einsum with a matrix of zeros and ones"},
    {"add.reduce", "write np.sum(x, axis=0)"},
    {"maximum.reduce", "write np.max(x, axis=0)"},
    {"minimum.reduce", "write np.min(x, axis=0)"},
    {"add.accumulate", "write np.cumsum(x, axis=0)"},
    {"add.outer", "write a[:, None] + b"},
    {"subtract.outer", "write a[:, None] - b"},
    {"maximum.accumulate minimum.accumulate multiply.accumulate", "write a loop over range(N)"},
    {"multiply.outer", "write np.einsum(\"i,j->ij\", a, b)"},
});

constexpr auto kBuiltInNames = std::to_array<Entry>({
    {"print input", "a program has no output but its results; leave it out"},
    {"eval exec compile __import__", "programs are parsed, never executed"},
    {"open", kNoFiles},
    {"sorted", "write the items in order"},
    {"map filter", "write a list: [f(x) for x in xs]"},
    {"iter next", "write `for x in xs:`"},
    {"any", "write `a or b`"},
    {"all", "write `a and b`"},
    {"isinstance issubclass type callable", "every parameter has one type; leave the test out"},
    {"getattr setattr hasattr vars globals locals dir id", "write the name itself"},
    {"dict set frozenset str repr bytes", "a program has numbers, tensors, tuples and lists"},
    {"round", "write int(x + 0.5) of a positive number"},
    {"divmod", "write a // b and a % b"},
    {"pow", "write a ** b"},
    {"slice", "write x[start:stop]"},
    {"super property object", "classes are not covered; write functions with the weights as parameters"},
    {"complex", kNoComplex},
});

constexpr auto kMethodNames = std::to_array<Entry>({
    {"sort argsort partition argpartition searchsorted",
     "sorting is not covered; for the largest value write np.max(x, axis=-1)"},
    {"argmax argmin",
     "positions of elements are not covered; mark the largest ones with x == np.max(x, axis=-1, keepdims=True)"},
    {"nonzero compress",
     "the shape of the result would depend on the data; keep all elements and write np.where(condition, x, 0)"},
    {"item tolist", "a value is not known before the program runs; compute with the tensor"},
    {"fill put itemset resize setfield", "tensors are not changed in place; write np.where"},
    {"any", "write np.max(np.where(condition, 1.0, 0.0)) > 0"},
    {"all", "write np.min(np.where(condition, 1.0, 0.0)) > 0"},
    {"cumprod", "write np.exp(np.cumsum(np.log(x))) of positive numbers, or a loop over range(N)"},
    {"ptp", "write np.max(x) - np.min(x)"},
    {"round", "rounding of tensors is not covered; of numbers write math.floor or math.ceil"},
    {"trace", "write np.einsum(\"ii->\", x)"},
    {"diagonal", "write np.einsum(\"ii->i\", x)"},
    {"choose", "nest np.where(condition, a, b)"},
    {"take", "write table[ids], or np.take_along_axis(x, ids, axis)"},
    {"view", "write x.reshape(…) for a shape, x.astype(…) for a type"},
    {"permute", "write np.transpose(x, axes)"},
    {"unsqueeze", "write np.expand_dims(x, axis)"},
    {"matmul mm bmm", "write a @ b"},
    {"float half double bfloat16", "write x.astype(float32)"},
    {"contiguous detach clone cpu cuda to", "write x: there is nothing to do here"},
    {"backward grad requires_grad", "gradients are derived from the program: see `millrace analyze`"},
    {"dump dumps tobytes tofile", kNoFiles},
    {"real imag conj conjugate", kNoComplex},
    {"dtype itemsize nbytes strides data flags base flat device ctypes",
     "a tensor has x.shape, x.ndim, x.size and x.T"},
});

constexpr auto kWords = std::to_array<Entry>({
    {"while", "the number of iterations must be known before the program runs: `for k in range(N):`"},
    {"break", "write the range up to there, or put the statements under `if` with a static condition"},
    {"continue", "put the statements after it under `if` with a static condition"},
    {"class", "write functions with the weights as parameters"},
    {"with", "write its statements without it"},
    {"try except finally", "a program has no exceptions; write its statements without it"},
    {"raise", "write `assert` with a static condition"},
    {"global nonlocal", "pass the value as a parameter and return it"},
    {"yield", "return a tuple or a list"},
    {"lambda", "define a function with `def` at module level"},
    {"def", "define functions at module level, and pass what they use as parameters"},
    {"del", "leave it out: memory is planned for the whole program"},
    {"async await", "leave it out: a program describes tensors, not when they are computed"},
    {"import from", "write imports at the top of the file"},
    {"as elif else", "write it after the statement that it belongs to"},
});

template <size_t N>
const Entry* find_entry(const std::array<Entry, N>& table, std::string_view name) {
  for (const Entry& entry : table) {
    for (size_t at = entry.names.find(name); at != std::string_view::npos; at = entry.names.find(name, at + 1)) {
      const size_t end = at + name.size();
      const bool begins = at == 0 || entry.names[at - 1] == ' ';
      if (begins && (end == entry.names.size() || entry.names[end] == ' ')) return &entry;
    }
  }
  return nullptr;
}

const Entry* function_entry(std::string_view prefix, std::string_view name) {
  if (name.empty() || name == "*") return nullptr;
  if (prefix.empty()) {
    const Entry* const built_in = find_entry(kBuiltInNames, name);
    return built_in != nullptr ? built_in : find_entry(kNumpy, name);
  }
  const size_t dot = prefix.rfind('.');
  if (dot == std::string_view::npos) {
    if (prefix != "linalg" && prefix != "fft" && prefix != "random") return find_entry(kNumpy, name);
  }
  const std::string_view module = dot == std::string_view::npos ? prefix : prefix.substr(dot + 1);
  const Entry* const exact = find_entry(kNumpy, concat(module, ".", name));
  return exact != nullptr ? exact : find_entry(kNumpy, concat(module, ".*"));
}

template <size_t N>
std::vector<std::string> names_in(const std::array<Entry, N>& table) {
  std::vector<std::string> names;
  for (const Entry& entry : table) {
    for (std::string& name : split(entry.names, ' ')) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

bool is_not_covered_function(std::string_view prefix, std::string_view name) {
  return function_entry(prefix, name) != nullptr;
}

NotCovered not_covered_function(std::string_view prefix, std::string_view name) {
  const Entry* const entry = function_entry(prefix, name);
  const std::string dotted = prefix.empty() ? std::string(name) : concat(prefix, ".", name);
  return {concat("'", dotted, "' is not covered"), entry == nullptr ? "" : std::string(entry->remedy)};
}

bool is_not_covered_method(std::string_view name) { return find_entry(kMethodNames, name) != nullptr; }

NotCovered not_covered_method(std::string_view name) {
  const Entry* const entry = find_entry(kMethodNames, name);
  return {concat("'.", name, "' of a tensor is not covered"), entry == nullptr ? "" : std::string(entry->remedy)};
}

bool is_not_covered_word(std::string_view word) { return find_entry(kWords, word) != nullptr; }

NotCovered not_covered_word(std::string_view word) {
  const Entry* const entry = find_entry(kWords, word);
  return {concat("'", word, "' is not supported"),
          entry == nullptr ? "a function has assignments, loops over static ranges, static branches and a return"
                           : std::string(entry->remedy)};
}

std::vector<std::string> not_covered_numpy() { return names_in(kNumpy); }
std::vector<std::string> not_covered_built_in() { return names_in(kBuiltInNames); }
std::vector<std::string> not_covered_methods() { return names_in(kMethodNames); }
std::vector<std::string> not_covered_words() { return names_in(kWords); }

}  // namespace millrace
