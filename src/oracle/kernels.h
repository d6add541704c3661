// The kernels of the oracle: one thread per output element, plain loops, double precision, a running error bound.
// The text follows cuda_hardware.h, an enumeration of the operators (namespace kind), task.h and numbers.h. It shares
// no code with generated kernels. Over 500 lines because it is one self-contained text. Test:
// tests/oracle/oracle_test.cpp
#pragma once

namespace millrace::oracle {

using u32 = mr::u32;
using u64 = mr::u64;
using i64 = long long;

// The parameter of every kernel, as device/cuda/kernel_parameters.h lays it out.
struct Parameter {
  const Task* task;
  double values[1];
  const void* state;
  char* scratch;
  u32 subsequences[2];
};

// A point of a task's indices.
struct Point {
  i64 at[kMostIndices];
};

// Sets the indices from `first` to before `end` to the point with this number, the last index fastest.
ORACLE_FUNCTION void set_point(const Task& task, int first, int end, i64 number, Point& point) {
  for (int index = end - 1; index >= first; --index) {
    point.at[index] = number % task.extents[index];
    number /= task.extents[index];
  }
}

ORACLE_FUNCTION i64 element_of(const Operand& operand, int indices, const Point& point) {
  i64 element = operand.first;
  for (int index = 0; index < indices; ++index) element += operand.strides[index] * point.at[index];
  return element;
}

ORACLE_FUNCTION Number load(const Operand& operand, i64 element) {
  if (operand.format == kNumber) return exact(operand.number);
  if (operand.format == kBounded) return reinterpret_cast<const Number*>(operand.data)[element];
  const double x = operand.data[element];
  return bounded(x, operand.relative * magnitude_of(x) + operand.absolute);
}

MR_DEVICE void store(const Operand& operand, i64 element, const Number& x) {
  if (operand.format == kBounded)
    reinterpret_cast<Number*>(operand.data)[element] = x;
  else
    operand.data[element] = x.value;
}

// --- Random numbers, as reference/philox.h defines them ---

struct Words {
  u32 at[4];
};

ORACLE_FUNCTION Words philox(Words counter, u64 seed, int rounds) {
  u32 low = static_cast<u32>(seed);
  u32 high = static_cast<u32>(seed >> 32);
  for (int round = 0; round < rounds; ++round) {
    const u64 first = static_cast<u64>(0xD2511F53u) * counter.at[0];
    const u64 second = static_cast<u64>(0xCD9E8D57u) * counter.at[2];
    const Words next = {{static_cast<u32>(second >> 32) ^ counter.at[1] ^ low, static_cast<u32>(second),
                         static_cast<u32>(first >> 32) ^ counter.at[3] ^ high, static_cast<u32>(first)}};
    counter = next;
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return counter;
}

// A product that no addition absorbs, so that draws have the reference's bits.
MR_DEVICE double rounded_product(double a, double b) {
#ifdef __CUDACC__
  return __dmul_rn(a, b);
#else
  const volatile double product = a * b;
  return product;
#endif
}

// Uniform in [-1, 1).
MR_DEVICE double uniform(const Task& task, u64 element) {
  const u64 block = element / 2;
  const Words words =
      philox({{static_cast<u32>(block), static_cast<u32>(block >> 32), task.subsequence, 0x6d696c6cu}}, task.seed, 10);
  const bool odd = element % 2 == 1;
  const u64 high = odd ? words.at[2] : words.at[0];
  const u64 low = odd ? words.at[3] : words.at[1];
  return static_cast<double>((high << 21) | (low >> 11)) * 0x1p-52 - 1.0;
}

ORACLE_FUNCTION bool keeps(const Task& task, u64 element) {
  const u64 block = element / 8;
  const Words words =
      philox({{static_cast<u32>(block), static_cast<u32>(block >> 32), task.subsequence, task.step}}, task.seed, 7);
  const u64 number = element % 8 / 2;
  const u32 word = number == 0 ? words.at[0] : number == 1 ? words.at[1] : number == 2 ? words.at[2] : words.at[3];
  const u32 draw = element % 2 == 0 ? word & 0xffffu : word >> 16;
  const i64 threshold = static_cast<i64>(task.number * 65536.0 + 0.5);
  return static_cast<i64>(draw) >= (threshold < 65535 ? threshold : 65535);
}

// Rounds to the nearest value with `mantissa` bits after the point, ties to even. Adding and subtracting a number whose
// last bit has the weight of the result's last bit rounds to that bit.
ORACLE_FUNCTION double rounded(const Task& task, double x) {
  if (task.mantissa == 0 || x == 0) return x;
  double quantum = 1;
  int exponent = 0;
  for (double size = magnitude_of(x); size < 1 && exponent > task.exponent; size *= 2, --exponent) quantum *= 0.5;
  for (double size = magnitude_of(x); size >= 2; size *= 0.5) quantum *= 2;
  for (int bit = 0; bit < task.mantissa; ++bit) quantum *= 0.5;
  const double shift = 0x1.8p52 * quantum;
  return (x + shift) - shift;
}

ORACLE_FUNCTION double drawn(const Task& task, u64 element) {
  const double draw = uniform(task, element);
  if (task.is_boolean != 0) return draw < 0 ? 0 : 1;
  if (task.positions == 0) return rounded(task, task.shift + rounded_product(task.scale, draw)) * task.numbers[0];
  const double count = static_cast<double>(task.positions);
  const double position = static_cast<double>(static_cast<i64>((draw + 1) / 2 * count));
  return rounded(task, least(position, count - 1));
}

// --- What an operator computes at a point ---

// The position that an id selects.
MR_DEVICE i64 selected(const Number& id, i64 extent) {
  return id.value > 0 ? static_cast<i64>(least(id.value, static_cast<double>(extent - 1))) : 0;
}

struct Formulas {
  Arithmetic m;

  ORACLE_FUNCTION Number normal_cdf(const Number& a) const {
    return m.multiply(exact(0.5), m.add(exact(1), error_function(m, m.divide(a, m.root(exact(2))))));
  }
  ORACLE_FUNCTION Number sigmoid(const Number& a) const {
    return m.divide(exact(1), m.add(exact(1), exponential(m, negative(a))));
  }
  ORACLE_FUNCTION Number gelu_dx(const Number& a, const Number& g) const {
    const Number half_square = m.multiply(m.multiply(exact(-0.5), a), a);
    const Number density = m.divide(exponential(m, half_square), m.root(exact(6.283185307179586)));
    return m.multiply(g, m.add(normal_cdf(a), m.multiply(a, density)));
  }
  // √(2/π) · (a + 0.044715 a³), then its tanh.
  ORACLE_FUNCTION Number gelu_slope() const { return m.root(exact(0.6366197723675814)); }
  ORACLE_FUNCTION Number gelu_inner(const Number& a) const {
    const Number cube = m.multiply(m.multiply(m.multiply(exact(0.044715), a), a), a);
    return hyperbolic_tangent(m, m.multiply(gelu_slope(), m.add(a, cube)));
  }
  ORACLE_FUNCTION Number gelu_tanh(const Number& a) const {
    return m.multiply(m.multiply(exact(0.5), a), m.add(exact(1), gelu_inner(a)));
  }
  ORACLE_FUNCTION Number gelu_tanh_dx(const Number& a, const Number& g) const {
    const Number t = gelu_inner(a);
    const Number square = m.multiply(m.multiply(exact(3 * 0.044715), a), a);
    const Number slope = m.multiply(gelu_slope(), m.add(exact(1), square));
    const Number rest = m.multiply(m.multiply(a, m.subtract(exact(1), m.multiply(t, t))), slope);
    return m.multiply(m.multiply(g, exact(0.5)), m.add(m.add(exact(1), t), rest));
  }
  ORACLE_FUNCTION Number softplus(const Number& a) const {
    return m.add(larger(a, exact(0)), logarithm_plus_one(m, exponential(m, negative(absolute(a)))));
  }
  ORACLE_FUNCTION Number silu_dx(const Number& a, const Number& g) const {
    const Number s = sigmoid(a);
    return m.multiply(m.multiply(g, s), m.add(exact(1), m.multiply(a, m.subtract(exact(1), s))));
  }
};

// The errors of a library's GELU: measure/library_gelu.h. numbers: the error of its tanh; where it is -1.
ORACLE_FUNCTION double library_gelu(const Task& task, double x) {
  return task.numbers[0] / 2 * (x < 0 ? least(-x, task.numbers[1]) : x);
}
ORACLE_FUNCTION double library_gelu_gradient(const Task& task, double x, double g) {
  const double most = task.numbers[1];
  const double clamped = x < -most ? -most : x > most ? most : x;
  const double inner = 0.044715 * clamped * clamped;
  const double slope = mr::root_of(0.6366197723675814);
  const double t = mr::tanh_of(slope * (clamped + inner * clamped));
  return magnitude_of(g) * task.numbers[0] * (0.5 + magnitude_of(clamped * t * slope * (1 + 3 * inner)));
}

// The formulas of an attention, whose errors are not those of the arithmetic.
MR_DEVICE Number dropped_weight(const Task& task, double weight, double mask, double relative) {
  const double value = weight * mask;
  if (value == 0) return exact(0);
  return bounded(value, value * (relative + task.numbers[0]) + task.numbers[1] + mask * task.numbers[2]);
}

// (weight, gradient of the dropped weight times the mask, their inner product, mask, error of that gradient, error of
// the inner product, relative error of the weight)
ORACLE_FUNCTION Number gradient_of_score(const Task& task, const double* x) {
  if (x[0] == 0) return exact(0);
  const double value = x[0] * (x[1] - x[2]);
  const double difference = x[3] * x[4] + x[5] + task.numbers[3] * (magnitude_of(x[1]) + magnitude_of(x[2]));
  const double error = magnitude_of(value) * (x[6] + task.numbers[0]) + x[0] * difference + task.numbers[1];
  return bounded(task.number * value, magnitude_of(task.number) * error + task.numbers[2]);
}

MR_DEVICE bool is_later(const Task& task, const Point& point) {
  return point.at[task.outer - 1] > point.at[task.outer - 2];
}

// Whether an attention's query does not see the key.
MR_DEVICE bool is_outside(const Task& task, const Point& point) {
  const double distance = static_cast<double>(point.at[task.outer - 1] - point.at[task.outer - 2]);
  return task.is_boolean != 0 && (distance < task.numbers[0] || distance > task.numbers[1]);
}

MR_DEVICE Number scaled_gradient(const Task& task, const Number& a) {
  if (is_zero(a)) return a;
  const double error = a.error + magnitude_of(a.value) * task.numbers[0] + task.numbers[1];
  return bounded(task.number * a.value, magnitude_of(task.number) * error + task.numbers[2]);
}

ORACLE_FUNCTION bool is_on_diagonal(const Task& task, const Point& point) {
  for (int index = 0; index < task.outer; ++index) {
    if (point.at[index] != point.at[task.diagonal[index]]) return false;
  }
  return true;
}

ORACLE_FUNCTION Number dropout_mask(const Task& task, const Arithmetic& m, u64 element) {
  return keeps(task, element) ? m.divide(exact(1), m.subtract(exact(1), exact(task.number))) : exact(0);
}

// The inputs of a task at a point.
struct Inputs {
  Number at[kMostInputs];
  ORACLE_FUNCTION Inputs(const Task& task, const Point& point) {
    for (int k = 0; k < task.inputs; ++k) at[k] = load(task.in[k], element_of(task.in[k], task.outer, point));
  }
  MR_DEVICE const Number& operator()(int k) const { return at[k]; }
};

// The value of the first output.
ORACLE_FUNCTION Number value_at(const Task& task, const Point& point, i64 element) {
  const Arithmetic m{task.roundoff};
  const Formulas f{m};
  const Inputs in(task, point);
  const Number zero = exact(0);
  const Number one = exact(1);
  switch (task.formula) {
    case kind::add: return m.add(in(0), in(1));
    case kind::subtract: return m.subtract(in(0), in(1));
    case kind::multiply: return m.multiply(in(0), in(1));
    case kind::divide: return m.divide(in(0), in(1));
    case kind::negate: return negative(in(0));
    case kind::absolute: return absolute(in(0));
    case kind::exp: return exponential(m, in(0));
    case kind::log: return logarithm(m, in(0));
    case kind::sqrt: return m.root(in(0));
    case kind::tanh: return hyperbolic_tangent(m, in(0));
    case kind::sin: return sine(m, in(0));
    case kind::cos: return cosine(m, in(0));
    case kind::log1p: return logarithm_plus_one(m, in(0));
    case kind::expm1: return exponential_less_one(m, in(0));
    case kind::erf: return error_function(m, in(0));
    case kind::sign: return sign(in(0));
    case kind::power: return power(m, in(0), task.number);
    case kind::maximum: return larger(in(0), in(1));
    case kind::minimum: return smaller(in(0), in(1));
    case kind::less: return decided(in(0).value < in(1).value, in(0), in(1));
    case kind::less_equal: return decided(in(0).value <= in(1).value, in(0), in(1));
    case kind::equal: return decided(in(0).value == in(1).value, in(0), in(1));
    case kind::not_equal: return decided(in(0).value != in(1).value, in(0), in(1));
    case kind::logical_and: return smaller(in(0), in(1));
    case kind::logical_or: return larger(in(0), in(1));
    case kind::logical_not: return decided(in(0).value == 0, in(0), zero);
    case kind::where: return in(0).value != 0 ? in(1) : in(2);
    case kind::relu: return larger(zero, in(0));
    case kind::gelu: return m.multiply(in(0), f.normal_cdf(in(0)));
    case kind::gelu_tanh: return f.gelu_tanh(in(0));
    case kind::silu: return m.divide(in(0), m.add(one, exponential(m, negative(in(0)))));
    case kind::sigmoid: return f.sigmoid(in(0));
    case kind::softplus: return f.softplus(in(0));
    case kind::dropout: return m.multiply(in(0), dropout_mask(task, m, static_cast<u64>(element)));
    case kind::causal_mask: return is_later(task, point) ? exact(-infinite()) : in(0);
    case kind::copy: return in(0);
    case kind::index: return exact(static_cast<double>(element));
    case kind::gather: {
      const i64 table = element_of(task.in[0], task.outer, point);
      return load(task.in[0], table + task.gathered_stride * selected(in(1), task.positions));
    }
    case kind::embed_diagonal: return is_on_diagonal(task, point) ? in(0) : zero;
    case kind::tanh_dx: return m.multiply(in(1), m.subtract(one, m.multiply(in(0), in(0))));
    case kind::erf_dx: {
      const Number slope = exponential(m, negative(m.multiply(in(0), in(0))));
      return m.multiply(in(1), m.multiply(exact(kSlopeOfErf), slope));
    }
    case kind::sigmoid_dx: return m.multiply(in(1), m.multiply(in(0), m.subtract(one, in(0))));
    case kind::power_dx: return m.multiply(m.multiply(in(1), exact(task.number)), power(m, in(0), task.number - 1));
    case kind::relu_dx: return in(0).value > 0 ? in(1) : zero;
    case kind::gelu_dx: return f.gelu_dx(in(0), in(1));
    case kind::gelu_tanh_dx: return f.gelu_tanh_dx(in(0), in(1));
    case kind::silu_dx: return f.silu_dx(in(0), in(1));
    case kind::dropout_dx: return m.multiply(in(0), in(1));
    case kind::causal_mask_dx: return is_later(task, point) ? zero : in(0);
    // Normalizations, after their sums: (the operator's inputs, the sums).
    case kind::extremum_dx:  // (a, y, g, count)
      return in(0).value == in(1).value ? m.divide(in(2), exact(in(3).value)) : zero;
    case kind::softmax:  // (a, maximum, sum)
      return m.divide(exponential(m, m.subtract(in(0), exact(in(1).value))), in(2));
    case kind::softmax_dx: return m.multiply(in(0), m.subtract(in(1), in(2)));      // (y, g, Σ y·g)
    case kind::log_sum_exp: return m.add(logarithm(m, in(1)), exact(in(0).value));  // (maximum, sum)
    case kind::layernorm:                                                           // (x, weight, bias, mean, rstd)
      return m.add(m.multiply(m.multiply(m.subtract(in(0), in(3)), in(4)), in(1)), in(2));
    case kind::layernorm_dx: {  // (x, weight, mean, rstd, g, mean of g·weight, mean of g·weight·normalized)
      const Number normalized = m.multiply(m.subtract(in(0), in(2)), in(3));
      const Number weighted = m.multiply(in(4), in(1));
      return m.multiply(in(3), m.subtract(m.subtract(weighted, in(5)), m.multiply(normalized, in(6))));
    }
    case kind::rmsnorm: return m.multiply(m.multiply(in(0), in(2)), in(1));  // (x, weight, rstd)
    case kind::rmsnorm_dx: {  // (x, weight, rstd, g, mean of g·weight·x)
      const Number cubed = m.multiply(m.multiply(m.multiply(in(0), in(2)), in(2)), in(4));
      return m.multiply(in(2), m.subtract(m.multiply(in(3), in(1)), cubed));
    }
    case kFill: return exact(task.number);
    case kReciprocalRoot: return m.divide(one, m.root(m.add(in(0), exact(task.number))));
    case kDraw: return exact(drawn(task, static_cast<u64>(element)));
    case kMask: return exact(keeps(task, static_cast<u64>(element)) ? rounded(task, 1 / (1 - task.number)) : 0);
    case kRound: return exact(rounded(task, in(0).value));
    case kTolerance: return exact(in(0).value);
    case kLibraryGelu: return exact(in(0).value + library_gelu(task, in(1).value));
    case kLibraryGeluGradient: return exact(in(0).value + library_gelu_gradient(task, in(1).value, in(2).value));
    case kScore: return exact(is_outside(task, point) ? -infinite() : in(0).value * task.number);
    case kErrorOfLogit: return exact(in(1).value >= 0x1p-100 ? in(0).error : 0);
    case kScaledGradient: return scaled_gradient(task, in(0));
    case kLogSum: return exact(mr::log_of(in(0).value) + in(1).value);
    case kWeight: return exact(mr::exp_of(in(0).value - in(1).value) / in(2).value);
    case kLinear:
      return exact(task.numbers[0] * in(0).value + task.numbers[1] * magnitude_of(in(1).value) + task.numbers[2]);
    case kWithError: return bounded(in(0).value, in(1).value);
    case kDropped: return dropped_weight(task, in(0).value, in(1).value, in(2).value);
    case kGradientOfScore: {
      double x[7];
      for (int k = 0; k < 7; ++k) x[k] = in(k).value;
      return gradient_of_score(task, x);
    }
    default: return exact(infinite() - infinite());  // no operator: a NaN that no candidate passes
  }
}

// The value of the second output.
MR_DEVICE Number second_at(const Task& task, const Point& point, i64 element) {
  if (task.formula == kind::dropout) return dropout_mask(task, {task.roundoff}, static_cast<u64>(element));
  const Number x = load(task.in[0], element_of(task.in[0], task.outer, point));
  if (!is_finite(x.value) && task.first_nonfinite != nullptr)
    mr::lower_to(task.first_nonfinite, static_cast<u64>(element));
  return exact(task.scale * x.error + task.numbers[0] * magnitude_of(x.value) + task.numbers[1]);
}

// --- Sums over the inner indices ---

MR_DEVICE Number first_partial(const Task& task) {
  return task.formula == kLargest ? exact(-infinite()) : task.formula == kSmallest ? exact(infinite()) : exact(0);
}

ORACLE_FUNCTION Number joined(const Task& task, const Arithmetic& m, const Number& a, const Number& b) {
  switch (task.formula) {
    case kLargest:
    case kLargestMagnitude: return larger(a, b);
    case kSmallest: return smaller(a, b);
    default: return m.add(a, b);
  }
}

// The inputs of a sum: their elements at a point.
struct Terms {
  const Task& task;
  i64 at[kMostInputs];
  MR_DEVICE Number operator()(int k) const { return load(task.in[k], at[k]); }
};

ORACLE_FUNCTION Number term_at(const Arithmetic& m, const Point& point, const Terms& in) {
  const Task& task = in.task;
  switch (task.formula) {
    case kProduct: return m.multiply(in(0), in(1));
    case kProductOfThree: return m.multiply(m.multiply(in(0), in(1)), in(2));
    case kShiftedExponential: return exponential(m, m.subtract(in(0), exact(in(1).value)));
    case kSquaredDeviation: {
      const Number deviation = m.subtract(in(0), in(1));
      return m.multiply(deviation, deviation);
    }
    case kEqual: return exact(in(0).value == in(1).value ? 1 : 0);
    case kNormalized: {
      const Number normalized = m.multiply(m.subtract(in(2), in(3)), in(4));
      return m.multiply(m.multiply(in(0), in(1)), normalized);
    }
    case kDeviation: return m.multiply(m.multiply(in(0), m.subtract(in(1), in(2))), in(3));
    case kSelected: return selected(in(1), task.positions) == point.at[task.gathered] ? in(0) : exact(0);
    case kLargestMagnitude: return absolute(in(0));
    case kMagnitude: return m.multiply(absolute(in(0)), in(1));
    default: return in(0);
  }
}

// The inner points of one thread: part number `part` of the output element number `row`.
struct Range {
  i64 begin;
  i64 end;
};

MR_DEVICE Range range_of(const Task& task, i64 part) {
  return {task.length * part / task.inner_parts, task.length * (part + 1) / task.inner_parts};
}

// Sets the inner indices to point number `from`, and returns how many points follow along the last index.
MR_DEVICE i64 start_run(const Task& task, i64 from, i64 end, Point& point) {
  set_point(task, task.outer, task.indices, from, point);
  if (task.indices == task.outer) return 1;
  const i64 left = task.extents[task.indices - 1] - point.at[task.indices - 1];
  return left < end - from ? left : end - from;
}

MR_DEVICE i64 last_stride(const Task& task, int k) {
  return task.indices == task.outer ? 0 : task.in[k].strides[task.indices - 1];
}

MR_DEVICE Number partial_of(const Task& task, i64 row, i64 part) {
  const Arithmetic m{task.roundoff};
  Point point;
  set_point(task, 0, task.outer, row, point);
  const Range range = range_of(task, part);
  Number total = first_partial(task);
  for (i64 from = range.begin; from < range.end;) {
    const i64 run = start_run(task, from, range.end, point);
    Terms terms{task, {}};
    for (int k = 0; k < task.inputs; ++k) terms.at[k] = element_of(task.in[k], task.indices, point);
    for (i64 k = 0; k < run; ++k) {
      total = joined(task, m, total, term_at(m, point, terms));
      for (int input = 0; input < task.inputs; ++input) terms.at[input] += last_stride(task, input);
    }
    from += run;
  }
  return total;
}

// A sum of products. It has the same value and bound as kProduct, with less to do for each product.
struct SumOfProducts {
  double value;
  double terms_error;
  double magnitude;
  i64 terms;  // other than exact zeros

  MR_DEVICE void add(double product, double error) {
    value += product;
    terms_error += error;
    magnitude += magnitude_of(product);
    terms += product != 0 || error != 0 ? 1 : 0;
  }
  // The error of such a product is u times its magnitude.
  MR_DEVICE void add_plain(double product) {
    value += product;
    magnitude += magnitude_of(product);
    terms += product != 0 ? 1 : 0;
  }
  MR_DEVICE Number number(double u) const {
    if (!is_finite(value)) return bounded(value, 0);
    const double additions = terms > 0 ? static_cast<double>(terms - 1) : 0;
    return {value, terms_error + additions * u * magnitude, terms_error, magnitude, additions};
  }
};

// A number without what only sums need.
struct Factor {
  double value;
  double error;
};

MR_DEVICE Factor load_factor(const Operand& operand, i64 element) {
  if (operand.format == kNumber) return {operand.number, 0};
  if (operand.format == kBounded) {
    const Number& x = reinterpret_cast<const Number*>(operand.data)[element];
    return {x.value, x.error};
  }
  const double x = operand.data[element];
  return {x, operand.relative * magnitude_of(x) + operand.absolute};
}

// The error of a product, as Arithmetic::multiply bounds it.
MR_DEVICE double error_of_product(const Factor& a, const Factor& b, double u) {
  const double y = a.value * b.value;
  if (!is_finite(y)) return 0;
  return error_product(magnitude_of(a.value), b.error) + error_product(magnitude_of(b.value), a.error) +
         error_product(a.error, b.error) + u * magnitude_of(y);
}

// Whether its values are doubles without errors.
MR_DEVICE bool is_plain(const Operand& operand) {
  return operand.format == kExact && operand.relative == 0 && operand.absolute == 0;
}

MR_DEVICE Number products_of(const Task& task, i64 row, i64 part) {
  Point point;
  set_point(task, 0, task.outer, row, point);
  const Range range = range_of(task, part);
  const bool plain = is_plain(task.in[0]) && is_plain(task.in[1]);
  const double u = task.roundoff;
  SumOfProducts sum{0, 0, 0, 0};
  for (i64 from = range.begin; from < range.end;) {
    const i64 run = start_run(task, from, range.end, point);
    i64 a = element_of(task.in[0], task.indices, point);
    i64 b = element_of(task.in[1], task.indices, point);
    const i64 a_step = last_stride(task, 0);
    const i64 b_step = last_stride(task, 1);
    if (plain) {
      const double* const as = task.in[0].data;
      const double* const bs = task.in[1].data;
      for (i64 k = 0; k < run; ++k, a += a_step, b += b_step) sum.add_plain(as[a] * bs[b]);
    } else {
      for (i64 k = 0; k < run; ++k, a += a_step, b += b_step) {
        const Factor x = load_factor(task.in[0], a);
        const Factor y = load_factor(task.in[1], b);
        sum.add(x.value * y.value, error_of_product(x, y, u));
      }
    }
    from += run;
  }
  if (plain) sum.terms_error = u * sum.magnitude;
  return sum.number(u);
}

ORACLE_FUNCTION void store_sum(const Task& task, i64 row, Number total) {
  Point point;
  set_point(task, 0, task.outer, row, point);
  if (task.divisor != 0) total = Arithmetic{task.roundoff}.divide(total, exact(task.divisor));
  store(task.out[0], element_of(task.out[0], task.outer, point), total);
}

MR_DEVICE void store_partial(const Task& task, i64 work, const Number& partial) {
  if (task.inner_parts == 1)
    store_sum(task, work, partial);
  else
    reinterpret_cast<Number*>(task.partials)[work] = partial;
}

MR_DEVICE i64 first_work() { return static_cast<i64>(mr::block_number()) * 256 + mr::thread_number(); }
MR_DEVICE i64 all_threads() { return static_cast<i64>(mr::grid_size()) * 256; }

}  // namespace millrace::oracle

// Elementwise: each thread writes the outputs at a point.
MR_KERNEL(256) MILLRACE_KERNEL_map(MR_PARAMETER millrace::oracle::Parameter parameter) {
  using namespace millrace::oracle;
  mr::begin();
  const Task& task = *parameter.task;
  for (i64 work = first_work(); work < task.points; work += all_threads()) {
    Point point;
    set_point(task, 0, task.outer, work, point);
    const i64 element = element_of(task.out[0], task.outer, point);
    const Number value = value_at(task, point, element);
    if (task.outputs > 1)
      store(task.out[1], element_of(task.out[1], task.outer, point), second_at(task, point, element));
    store(task.out[0], element, value);
  }
}

// Each thread makes a partial result of an output element.
MR_KERNEL(256) MILLRACE_KERNEL_fold(MR_PARAMETER millrace::oracle::Parameter parameter) {
  using namespace millrace::oracle;
  mr::begin();
  const Task& task = *parameter.task;
  for (i64 work = first_work(); work < task.points * task.inner_parts; work += all_threads())
    store_partial(task, work, partial_of(task, work / task.inner_parts, work % task.inner_parts));
}

// The same for sums of products.
MR_KERNEL(256) MILLRACE_KERNEL_contract(MR_PARAMETER millrace::oracle::Parameter parameter) {
  using namespace millrace::oracle;
  mr::begin();
  const Task& task = *parameter.task;
  for (i64 work = first_work(); work < task.points * task.inner_parts; work += all_threads())
    store_partial(task, work, products_of(task, work / task.inner_parts, work % task.inner_parts));
}

// Each thread joins the partial results of an output element.
MR_KERNEL(256) MILLRACE_KERNEL_join(MR_PARAMETER millrace::oracle::Parameter parameter) {
  using namespace millrace::oracle;
  mr::begin();
  const Task& task = *parameter.task;
  const Number* const partials = reinterpret_cast<const Number*>(task.partials);
  for (i64 row = first_work(); row < task.points; row += all_threads()) {
    Number total = partials[row * task.inner_parts];
    for (i64 part = 1; part < task.inner_parts; ++part)
      total = joined(task, {task.roundoff}, total, partials[row * task.inner_parts + part]);
    store_sum(task, row, total);
  }
}
