// How well trials predict the products of a step: the products of a layer, forward and backward, timed in a step, alone
// on one copy of their tensors, and alone on copies in turn that together are as large as all of the layer's tensors
// (docs/decisions/0018-cache-use.md).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

extern "C" void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                            const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);

namespace {

constexpr int kRowMajor = 101, kAsStored = 111;
constexpr int kRounds = 7, kSamples = 9;
constexpr double kMostCopies = 16;  // as in src/measure/cache_use.cpp

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

using Matrix = std::shared_ptr<std::vector<float>>;
Matrix matrix(int rows, int columns) {
  return std::make_shared<std::vector<float>>(static_cast<size_t>(rows) * static_cast<size_t>(columns), 0.01F);
}

struct Product {
  std::string name;
  int m, n, k;
  Matrix a, b, c;

  double bytes() const { return 4.0 * static_cast<double>(a->size() + b->size() + c->size()); }
  double run() const {
    const double begin = cpu_seconds();
    cblas_sgemm(kRowMajor, kAsStored, kAsStored, m, n, k, 1, a->data(), k, b->data(), n, 0, c->data(), n);
    return cpu_seconds() - begin;
  }
  Product copy() const { return {name, m, n, k, matrix(m, k), matrix(k, n), matrix(m, n)}; }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Queries, keys, values, output, and two layers of a feed-forward network, with a gradient of each operand.
std::vector<Product> layer(int rows, int columns, int hidden) {
  std::vector<Product> forward, backward;
  const auto add = [&](const std::string& name, const Matrix& in, int from, int to, const Matrix& out) {
    const Matrix weights = matrix(from, to);
    forward.push_back({name, rows, to, from, in, weights, out});
    backward.push_back({"dx " + name, rows, from, to, out, weights, in});
    backward.push_back({"dw " + name, from, to, rows, in, out, matrix(from, to)});
  };
  const Matrix x = matrix(rows, columns), values = matrix(rows, columns), attended = matrix(rows, columns);
  const Matrix inside = matrix(rows, hidden);
  add("queries", x, columns, columns, matrix(rows, columns));
  add("keys", x, columns, columns, matrix(rows, columns));
  add("values", x, columns, columns, values);
  add("output", values, columns, columns, attended);
  add("up", attended, columns, hidden, inside);
  add("down", inside, hidden, columns, matrix(rows, columns));
  forward.insert(forward.end(), backward.begin(), backward.end());
  return forward;
}

double bytes_of(const std::vector<Product>& step) {
  std::vector<Matrix> all;
  for (const Product& product : step) all.insert(all.end(), {product.a, product.b, product.c});
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  double bytes = 0;
  for (const Matrix& each : all) bytes += 4.0 * static_cast<double>(each->size());
  return bytes;
}

// Medians of samples, of every product.
using Times = std::vector<double>;

Times in_step(const std::vector<Product>& step) {
  std::vector<std::vector<double>> samples(step.size());
  for (int k = 0; k < kSamples; ++k) {
    for (size_t each = 0; each < step.size(); ++each) samples[each].push_back(step[each].run());
  }
  Times times;
  for (const std::vector<double>& own : samples) times.push_back(median(own));
  return times;
}

Times alone(const std::vector<std::vector<Product>>& copies) {
  Times times;
  for (const std::vector<Product>& turn : copies) {
    for (const Product& each : turn) each.run();
    std::vector<double> samples;
    for (size_t k = 0; k < kSamples; ++k) samples.push_back(turn[k % turn.size()].run());
    times.push_back(median(samples));
  }
  return times;
}

double sum(const Times& times) {
  double all = 0;
  for (const double each : times) all += each;
  return all;
}

void print(const char* name, std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  std::printf("  %-16s predicted / step: %.3f  [%.3f, %.3f]\n", name, median(ratios), ratios.front(), ratios.back());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: cache_use ROWS COLUMNS HIDDEN\n"), 2;
  const std::vector<Product> step = layer(std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3]));
  const double bytes = bytes_of(step);
  std::vector<std::vector<Product>> one, turn;
  for (const Product& product : step) {
    one.push_back({product});
    turn.emplace_back();
    const double copies = std::clamp(bytes / product.bytes() + 1, 1.0, kMostCopies);
    for (int k = 0; k < static_cast<int>(copies); ++k) turn.back().push_back(product.copy());
  }
  std::vector<double> ratios_of_one, ratios_in_turn, seconds;
  for (int round = 0; round < kRounds; ++round) {
    seconds.push_back(sum(in_step(step)));
    ratios_of_one.push_back(sum(alone(one)) / seconds.back());
    ratios_in_turn.push_back(sum(alone(turn)) / seconds.back());
  }
  std::printf("%s rows, %s columns, %s hidden: %.1f MiB, step %.2f ms\n", argv[1], argv[2], argv[3], bytes / 1048576,
              1e3 * median(seconds));
  print("one copy", ratios_of_one);
  print("copies in turn", ratios_in_turn);
  return 0;
}
