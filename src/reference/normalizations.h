// The operators that reduce. They process one row at a time: for each point of the kept indices, one or more loops over
// the reduced ones. Statistics (mean, rstd) and gradients of weights do not run along the reduced indices; y and dx do.
// Tests: tests/reference/interpreter_test.cpp.
#pragma once

#include <cmath>
#include <limits>

#include "reference/operands.h"
#include "reference/scalar.h"

namespace millrace {

template <class Scalar>
void sum(const Operands<Scalar, 1, 1>& o) {
  o.for_each_row(
      [&](const auto& row) { o.out(0, row) = o.sum(row, [&](const auto& at) -> Scalar { return o.in(0, at); }); });
}

template <class Scalar>
Scalar row_maximum(const Operands<Scalar, 1, 1>& o, const typename Operands<Scalar, 1, 1>::At& row) {
  Scalar best(-std::numeric_limits<double>::infinity());
  o.along(row, [&](const auto& at) { best = larger(best, o.in(0, at)); });
  return best;
}

// The derivative of an extremum is the mean over all elements equal to it.
template <class Scalar>
Scalar with_mean_tangent(const Operands<Scalar, 1, 1>& o, const typename Operands<Scalar, 1, 1>::At& row, Scalar best) {
  if constexpr (requires { best.tangent; }) {
    decltype(best.tangent) total(0);
    double count = 0;
    o.along(row, [&](const auto& at) {
      if (value_of(o.in(0, at)) != value_of(best)) return;
      total = total + o.in(0, at).tangent;
      ++count;
    });
    if (count > 1) best.tangent = total / decltype(total)(count);
  }
  return best;
}

template <class Scalar>
void max(const Operands<Scalar, 1, 1>& o) {
  o.for_each_row([&](const auto& row) { o.out(0, row) = with_mean_tangent(o, row, row_maximum(o, row)); });
}

template <class Scalar>
void min(const Operands<Scalar, 1, 1>& o) {
  o.for_each_row([&](const auto& row) {
    Scalar best(std::numeric_limits<double>::infinity());
    o.along(row, [&](const auto& at) { best = smaller(best, o.in(0, at)); });
    o.out(0, row) = with_mean_tangent(o, row, best);
  });
}

// (a, y, g)
template <class Scalar>
void extremum_dx(const Operands<Scalar, 3, 1>& o) {
  o.for_each_row([&](const auto& row) {
    const auto is_extremum = [&](const auto& at) { return value_of(o.in(0, at)) == value_of(o.in(1, at)); };
    double count = 0;
    o.along(row, [&](const auto& at) { count += is_extremum(at) ? 1 : 0; });
    o.along(row, [&](const auto& at) { o.out(0, at) = is_extremum(at) ? o.in(2, at) / Scalar(count) : Scalar(0); });
  });
}

template <class Scalar>
void softmax(const Operands<Scalar, 1, 1>& o) {
  using std::exp;
  o.for_each_row([&](const auto& row) {
    // Any shift gives the same softmax, so the shift is a constant: it has no derivative and no error.
    const Scalar shift(value_of(row_maximum(o, row)));
    o.along(row, [&](const auto& at) { o.out(0, at) = exp(o.in(0, at) - shift); });
    const Scalar total = o.sum(row, [&](const auto& at) -> Scalar { return o.out(0, at); });
    o.along(row, [&](const auto& at) { o.out(0, at) = o.out(0, at) / total; });
  });
}

// log Σ exp(a), shifted by the maximum so that no exponential overflows.
template <class Scalar>
void log_sum_exp(const Operands<Scalar, 1, 1>& o) {
  using std::exp, std::log;
  o.for_each_row([&](const auto& row) {
    // Any shift gives the same logarithm, as for the softmax.
    const Scalar shift(value_of(row_maximum(o, row)));
    const Scalar total = o.sum(row, [&](const auto& at) -> Scalar { return exp(o.in(0, at) - shift); });
    o.out(0, row) = log(total) + shift;
  });
}

// (y, g)
template <class Scalar>
void softmax_dx(const Operands<Scalar, 2, 1>& o) {
  o.for_each_row([&](const auto& row) {
    const Scalar inner = o.sum(row, [&](const auto& at) { return o.in(0, at) * o.in(1, at); });
    o.along(row, [&](const auto& at) { o.out(0, at) = o.in(0, at) * (o.in(1, at) - inner); });
  });
}

// (x, weight, bias) -> y, mean, rstd. The variance is the biased one.
template <class Scalar>
void layernorm(const Operands<Scalar, 3, 3>& o, double epsilon) {
  using std::sqrt;
  o.for_each_row([&](const auto& row) {
    const Scalar mean = o.mean(row, [&](const auto& at) -> Scalar { return o.in(0, at); });
    const Scalar variance = o.mean(row, [&](const auto& at) {
      const Scalar deviation = o.in(0, at) - mean;
      return deviation * deviation;
    });
    const Scalar rstd = Scalar(1) / sqrt(variance + Scalar(epsilon));
    o.along(row, [&](const auto& at) { o.out(0, at) = (o.in(0, at) - mean) * rstd * o.in(1, at) + o.in(2, at); });
    o.out(1, row) = mean;
    o.out(2, row) = rstd;
  });
}

// (x, weight, mean, rstd, g)
template <class Scalar>
void layernorm_dx(const Operands<Scalar, 5, 1>& o) {
  o.for_each_row([&](const auto& row) {
    const auto normalized = [&](const auto& at) { return (o.in(0, at) - o.in(2, at)) * o.in(3, at); };
    const auto weighted = [&](const auto& at) { return o.in(4, at) * o.in(1, at); };
    const Scalar mean = o.mean(row, weighted);
    const Scalar slope = o.mean(row, [&](const auto& at) { return weighted(at) * normalized(at); });
    o.along(row, [&](const auto& at) { o.out(0, at) = o.in(3, at) * (weighted(at) - mean - normalized(at) * slope); });
  });
}

// (x, mean, rstd, g) -> d_weight, d_bias. Reduces over the indices that layernorm keeps.
template <class Scalar>
void layernorm_dw(const Operands<Scalar, 4, 2>& o) {
  o.for_each_row([&](const auto& row) {
    o.out(0, row) = o.sum(row, [&](const auto& at) { return o.in(3, at) * (o.in(0, at) - o.in(1, at)) * o.in(2, at); });
    o.out(1, row) = o.sum(row, [&](const auto& at) -> Scalar { return o.in(3, at); });
  });
}

// (x, weight) -> y, rstd
template <class Scalar>
void rmsnorm(const Operands<Scalar, 2, 2>& o, double epsilon) {
  using std::sqrt;
  o.for_each_row([&](const auto& row) {
    const Scalar square = o.mean(row, [&](const auto& at) { return o.in(0, at) * o.in(0, at); });
    const Scalar rstd = Scalar(1) / sqrt(square + Scalar(epsilon));
    o.along(row, [&](const auto& at) { o.out(0, at) = o.in(0, at) * rstd * o.in(1, at); });
    o.out(1, row) = rstd;
  });
}

// (x, weight, rstd, g)
template <class Scalar>
void rmsnorm_dx(const Operands<Scalar, 4, 1>& o) {
  o.for_each_row([&](const auto& row) {
    const auto weighted = [&](const auto& at) { return o.in(3, at) * o.in(1, at); };
    const Scalar slope = o.mean(row, [&](const auto& at) { return weighted(at) * o.in(0, at); });
    o.along(row, [&](const auto& at) {
      const Scalar& rstd = o.in(2, at);
      o.out(0, at) = rstd * (weighted(at) - o.in(0, at) * rstd * rstd * slope);
    });
  });
}

// (x, rstd, g) -> d_weight. Reduces over the indices that rmsnorm keeps.
template <class Scalar>
void rmsnorm_dw(const Operands<Scalar, 3, 1>& o) {
  o.for_each_row([&](const auto& row) {
    o.out(0, row) = o.sum(row, [&](const auto& at) { return o.in(2, at) * o.in(0, at) * o.in(1, at); });
  });
}

}  // namespace millrace
