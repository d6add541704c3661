// Tensors made of numbers: np.zeros, np.arange, np.eye, the triangles of a matrix, and np.cumsum, which is a product
// with a triangle of ones.
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "frontend/einsum.h"
#include "frontend/function_handlers.h"
#include "frontend/shape_call.h"
#include "frontend/views.h"

namespace millrace {
namespace {

constexpr double kMostPositions = 1 << 24;  // float32 counts no further
constexpr std::string_view kCumsumLetters = "abcdefghijklmnopqrstuvwxyzABCDEF";
static_assert(kCumsumLetters.size() == kMaxRank);

std::optional<std::vector<DimId>> dims_of_shape(const FunctionCall& call, const Value& shape) {
  std::vector<DimId> dims;
  for (const Value& item : shape.kind == ValueKind::tuple ? *shape.items : std::vector<Value>{shape}) {
    if (!item.integer || *item.integer < 1) {
      call.report(concat("the shape of '", call.expression.text, "' is not made of positive integers"),
                  concat("write np.", call.expression.text, "((A, B)) with sizes A and B"));
      return std::nullopt;
    }
    dims.push_back(call.builder.dim_of_extent(*item.integer));
  }
  if (dims.size() <= kMaxRank) return dims;
  call.report(concat("this tensor has ", dims.size(), " dimensions"), concat("at most ", kMaxRank, " are allowed"));
  return std::nullopt;
}

Value filled_with(const FunctionCall& call, double number) {
  const std::optional<std::vector<DimId>> dims = dims_of_shape(call, *call.arguments[0]);
  return dims ? call.builder.filled(number, *dims, std::nullopt, call.location()) : Value::broken();
}

Value filled_like(const FunctionCall& call, double number) {
  const View* const view = call.tensor(0);
  if (view == nullptr) return Value::broken();
  const DType dtype = call.builder.graph.tensor(view->tensor).dtype;
  if (dtype == DType::boolean)
    return call.report("a comparison is not a number", concat("pass a tensor of numbers to ", call.expression.text));
  std::vector<DimId> dims;
  for (size_t axis = 0; axis < view->axes.size(); ++axis) dims.push_back(call.builder.dim_of(*view, axis));
  return call.builder.filled(number, dims, dtype, call.location());
}

// The positions along a row and a column dimension, as [rows, 1] and [columns]; rows are shifted by `offset`.
struct MatrixPositions {
  Value row;
  Value column;
};

std::optional<MatrixPositions> matrix_positions(const FunctionCall& call, DimId rows, DimId columns, int64_t offset) {
  MatrixPositions made;
  made.row = call.builder.positions(rows, call.location());
  made.column = call.builder.positions(columns, call.location());
  if (made.row.kind != ValueKind::view || made.column.kind != ValueKind::view) return std::nullopt;
  made.row = Value::of(call.builder.spread(made.row.view, {true, false}));
  if (offset != 0) made.row = call.map(OperatorKind::add, {made.row, Value::of_integer(offset)});
  if (made.row.kind != ValueKind::view) return std::nullopt;
  return made;
}

enum class Triangle { lower, upper };

Value triangle_of(const FunctionCall& call, Triangle triangle) {
  const View* const view = call.tensor(0);
  const std::optional<int64_t> offset = call.integer(1, 0);
  if (view == nullptr || !offset) return Value::broken();
  const size_t rank = view->axes.size();
  if (rank < 2) {
    return call.report(concat("'", call.expression.text, "' needs a tensor with at least two axes"),
                       "the last two axes are the matrix's rows and columns");
  }
  const DimId rows = call.builder.dim_of(*view, rank - 2);
  const DimId columns = call.builder.dim_of(*view, rank - 1);
  const std::optional<MatrixPositions> at = matrix_positions(call, rows, columns, *offset);
  if (!at) return Value::broken();
  const bool lower = triangle == Triangle::lower;
  const Value kept = call.map(OperatorKind::less_equal, {lower ? at->column : at->row, lower ? at->row : at->column});
  if (kept.kind != ValueKind::view) return Value::broken();
  return call.map(OperatorKind::where, {kept, Value::of(*view), Value::of_integer(0)});
}

// start + step · position, without the operators that change nothing.
Value progression(const FunctionCall& call, double start, double step, int64_t count) {
  Value value = call.builder.positions(call.builder.dim_of_extent(count), call.location());
  if (value.kind == ValueKind::view && step != 1) value = call.map(OperatorKind::multiply, {value, Value::of(step)});
  if (value.kind == ValueKind::view && start != 0) value = call.map(OperatorKind::add, {value, Value::of(start)});
  return value;
}

}  // namespace

Value call_zeros(const FunctionCall& call, OperatorKind) { return filled_with(call, 0); }
Value call_ones(const FunctionCall& call, OperatorKind) { return filled_with(call, 1); }

Value call_full(const FunctionCall& call, OperatorKind) {
  const std::optional<double> number = call.number(1, 0);
  return number ? filled_with(call, *number) : Value::broken();
}

Value call_zeros_like(const FunctionCall& call, OperatorKind) { return filled_like(call, 0); }
Value call_ones_like(const FunctionCall& call, OperatorKind) { return filled_like(call, 1); }

Value call_full_like(const FunctionCall& call, OperatorKind) {
  const std::optional<double> number = call.number(1, 0);
  return number ? filled_like(call, *number) : Value::broken();
}

// np.arange(stop), np.arange(start, stop) or np.arange(start, stop, step).
Value call_arange(const FunctionCall& call, OperatorKind) {
  const std::optional<double> first = call.number(0, 0);
  const std::optional<double> second = call.number(1, 0);
  const std::optional<double> step = call.number(2, 1);
  if (!first || !second || !step) return Value::broken();
  const bool from_zero = !call.arguments[1];
  const double start = from_zero ? 0 : *first;
  const double stop = from_zero ? *first : *second;
  const double count = *step == 0 ? 0 : std::ceil((stop - start) / *step);
  if (!(count >= 1 && count <= kMostPositions)) {
    return call.report(concat("np.arange from ", start, " to ", stop, " in steps of ", *step, " has ",
                              count >= 1 ? "too many" : "no", " elements"),
                       "write np.arange(N) or np.arange(start, stop, step) of 1 to 2^24 elements");
  }
  return progression(call, start, *step, static_cast<int64_t>(count));
}

Value call_eye(const FunctionCall& call, OperatorKind) {
  const std::optional<int64_t> rows = call.integer(0, 1);
  const std::optional<int64_t> columns = rows ? call.integer(1, *rows) : std::nullopt;
  const std::optional<int64_t> offset = columns ? call.integer(2, 0) : std::nullopt;
  if (!offset) return Value::broken();
  if (*rows < 1 || *columns < 1) return call.report("np.eye needs positive sizes", "write np.eye(N)");
  const std::optional<MatrixPositions> at =
      matrix_positions(call, call.builder.dim_of_extent(*rows), call.builder.dim_of_extent(*columns), *offset);
  if (!at) return Value::broken();
  const Value on_diagonal = call.map(OperatorKind::equal, {at->row, at->column});
  if (on_diagonal.kind != ValueKind::view) return Value::broken();
  return call.map(OperatorKind::where, {on_diagonal, Value::of_integer(1), Value::of_integer(0)});
}

// Σ over j of where(j <= i, 1, 0) · x[j]. Without an axis: of all elements, in order.
Value call_cumsum(const FunctionCall& call, OperatorKind) {
  const View* const view = call.tensor(0);
  if (view == nullptr) return Value::broken();
  if (call.builder.graph.tensor(view->tensor).dtype == DType::boolean)
    return call.report("a comparison is not a number", "choose with np.where(a < b, x, y)");
  const bool flat = !call.arguments[1] || call.arguments[1]->kind == ValueKind::nothing;
  const std::vector<int64_t> extents = extents_of(*view, call.builder);
  const int64_t elements = std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
  const std::optional<View> summed = flat ? reshaped(*view, {elements}, call.builder, call.location()) : *view;
  if (!summed) return Value::broken();
  const std::optional<size_t> axis = flat ? 0 : call.axis(*call.arguments[1], summed->axes.size());
  if (!axis) return Value::broken();
  const DimId dim = call.builder.dim_of(*summed, *axis);
  const std::optional<MatrixPositions> at = matrix_positions(call, dim, dim, 0);
  if (!at) return Value::broken();
  const Value kept = call.map(OperatorKind::less_equal, {at->column, at->row});
  if (kept.kind != ValueKind::view) return Value::broken();
  const Value ones = call.map(OperatorKind::where, {kept, Value::of_integer(1), Value::of_integer(0)});
  if (ones.kind != ValueKind::view) return Value::broken();
  std::string letters(kCumsumLetters.substr(0, summed->axes.size()));
  std::string out = letters;
  out[*axis] = 'Z';
  const std::string subscripts = concat(letters, ",Z", letters.substr(*axis, 1), "->", out);
  return lower_einsum(subscripts, {*summed, ones.view}, {}, call.location(), call.builder, call.diagnostics);
}

Value call_tril(const FunctionCall& call, OperatorKind) { return triangle_of(call, Triangle::lower); }
Value call_triu(const FunctionCall& call, OperatorKind) { return triangle_of(call, Triangle::upper); }

}  // namespace millrace
