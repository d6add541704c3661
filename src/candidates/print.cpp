#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "base/text.h"
#include "candidates/candidates.h"

namespace millrace {
namespace {

// An index as its number, kFixed as -1, any other position as a sum.
std::string print_positions(const std::vector<Position>& axes) {
  std::vector<std::string> texts;
  for (const Position& axis : axes) {
    if (axis.is_index()) {
      texts.push_back(concat(axis.index()));
      continue;
    }
    std::string text = concat(axis.offset);
    for (const IndexTerm& term : axis.terms) text += concat("+", term.stride, "*", term.index);
    texts.push_back(std::move(text));
  }
  return join(texts, ",");
}

std::string digits(const Layout& layout) {
  if (layout.storage == MaskStorage::bits) return "bits";
  if (layout.storage == MaskStorage::regenerated) return "regenerated";
  return layout.order.empty() ? "-" : join(layout.order, layout.order.size() > 9 ? "." : "");
}

std::string chain(const std::vector<int>& indices) { return indices.empty() ? "-" : join(indices, "."); }

std::string text_of(const KernelConfig& config) {
  return concat(config.rows ? "rows" : "flat", " loops ", chain(config.loops), " vector ", config.vector, " threads ",
                config.threads, " block ", config.block,
                config.gpu ? concat(" gpu ", config.gpu->width, ".", config.gpu->row_threads, ".", config.gpu->threads,
                                    ".", config.gpu->blocks, ".", config.gpu->prefetch)
                           : "");
}

std::array<int, 9> attributes(const GemmAlgorithm& a) {
  return {a.id, a.tile, a.stages, a.split_k, a.reduction, a.swizzle, a.custom, a.inner_shape, a.cluster};
}

std::string unfolded_text(const GemmConfig& config) {
  return config.unfolded == kNoIndex ? "" : config.unfolded == 0 ? " unfolded a" : " unfolded b";
}

std::string text_of(const GemmConfig& config) {
  if (config.library == GemmLibrary::cublaslt) {
    const std::array<int, 9> numbers = attributes(config.algorithm);
    return concat("cublaslt m ", chain(config.m), " n ", chain(config.n), " k ", chain(config.k), " on ",
                  config.tensor_cores ? "tensor" : "plain", " algorithm ",
                  config.algorithm.id < 0 ? "heuristic" : join(std::vector<int>(numbers.begin(), numbers.end()), "."),
                  unfolded_text(config));
  }
  return concat(word_of(config.library), " m ", chain(config.m), " n ", chain(config.n), " k ", chain(config.k),
                " threads ", config.threads, config.threads_over_loops ? " over" : " inside", unfolded_text(config));
}

std::string text_of(const AttentionConfig& config) {
  return concat("attention warps ", config.warps, " row_tiles ", config.row_tiles, " tile_columns ",
                config.tile_columns, " stages ", config.stages, config.wgmma ? " wgmma" : "",
                config.rows_in_smem ? " rows_in_smem" : "", config.single_kernel ? " single_kernel" : "",
                config.specialized ? " specialized" : "",
                config.head_splits > 1 ? concat(" head_splits ", config.head_splits) : "");
}

std::string text_of(const CpuAttentionConfig& config) {
  return concat("attention tile_queries ", config.tile_queries, " tile_keys ", config.tile_keys, " threads ",
                config.threads);
}

std::string text_of(const CudnnConfig& /*config*/) { return "cudnn"; }

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Indices below `count`, each at most once.
std::optional<std::vector<int>> parse_chain(std::string_view text, size_t count) {
  std::vector<int> indices;
  if (text == "-") return indices;
  for (const std::string& word : split(text, '.')) {
    const std::optional<int> index = parse_int(word);
    if (!index || *index < 0 || as_index(*index) >= count) return std::nullopt;
    if (std::find(indices.begin(), indices.end(), *index) != indices.end()) return std::nullopt;
    indices.push_back(*index);
  }
  return indices;
}

// The names and values after the first word of "rows loops 0.1 vector 1 threads 2 block -1".
std::map<std::string, std::string> fields(const std::vector<std::string>& words) {
  std::map<std::string, std::string> found;
  for (size_t k = 1; k + 1 < words.size(); k += 2) found[words[k]] = words[k + 1];
  return found;
}

constexpr int kMostThreads = 4096;

// A shape for which a kernel can be generated, from untrusted text.
std::optional<GpuShape> parse_shape(const std::string& text) {
  constexpr int kMostWidth = 16;
  constexpr int kMostGpuThreads = 1024;
  constexpr int kMostBlocks = 1 << 20;
  const std::vector<std::string> words = split(text, '.');
  std::array<int, 5> numbers{};
  if (words.size() != numbers.size()) return std::nullopt;
  for (size_t k = 0; k < numbers.size(); ++k) {
    const std::optional<int> number = parse_int(words[k]);
    if (!number || *number < 0) return std::nullopt;
    numbers[k] = *number;
  }
  const GpuShape shape{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
  const auto power = [](int x) { return x > 0 && (x & (x - 1)) == 0; };
  const bool fits = power(shape.width) && shape.width <= kMostWidth && power(shape.row_threads) &&
                    power(shape.threads) && shape.threads >= 32 && shape.threads <= kMostGpuThreads &&
                    shape.row_threads <= shape.threads && shape.blocks <= kMostBlocks &&
                    shape.prefetch <= (shape.blocks > 0 ? 1 : 0);
  if (!fits) return std::nullopt;
  return shape;
}

std::optional<KernelConfig> parse_kernel(const Partition& partition, const std::vector<std::string>& words) {
  const auto named = fields(words);
  if ((words.size() != 9 && words.size() != 11) || !named.contains("loops") || !named.contains("vector") ||
      !named.contains("threads") || !named.contains("block"))
    return std::nullopt;
  const auto loops = parse_chain(named.at("loops"), partition.space.size());
  const auto vector = parse_int(named.at("vector"));
  const auto threads = parse_int(named.at("threads"));
  const auto block = parse_int(named.at("block"));
  if (!loops || !vector || !threads || !block || loops->size() != partition.space.size()) return std::nullopt;
  const int count = static_cast<int>(partition.space.size());
  if (*threads < 1 || *threads > kMostThreads || *vector < (count == 0 ? -1 : 0) || *vector >= std::max(count, 1) ||
      *block < -1 || *block >= count || (*block >= 0 && *block == *vector))
    return std::nullopt;
  if (count == 0 && *vector != kNoIndex) return std::nullopt;
  KernelConfig config;
  config.rows = words[0] == "rows";
  if (config.rows && *block != kNoIndex) return std::nullopt;
  config.loops = *loops;
  config.vector = *vector;
  config.threads = *threads;
  config.block = *block;
  if (words.size() == 11) {
    const std::optional<GpuShape> shape = parse_shape(named.contains("gpu") ? named.at("gpu") : "");
    const bool conversion = partition.operators.empty();
    if (!shape || *threads != 1 || (*block != kNoIndex && !conversion)) return std::nullopt;
    config.gpu = shape;
  }
  if (config.rows) {
    // Outer indices must precede inner ones.
    const auto outer = [&](int index) { return partition.space[as_index(index)].outer; };
    if (!std::is_partitioned(config.loops.begin(), config.loops.end(), outer)) return std::nullopt;
  }
  return config;
}

std::optional<GemmAlgorithm> parse_algorithm(const std::string& text) {
  if (text == "heuristic") return GemmAlgorithm();
  std::vector<int> numbers;
  for (const std::string& word : split(text, '.')) {
    const std::optional<int> number = parse_int(word);
    if (!number || *number < 0) return std::nullopt;
    numbers.push_back(*number);
  }
  if (numbers.size() != 9) return std::nullopt;
  return GemmAlgorithm{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4],
                       numbers[5], numbers[6], numbers[7], numbers[8]};
}

std::optional<GemmConfig> parse_cublaslt(const Partition& partition, const std::vector<std::string>& words) {
  if (words.size() != 11 || words[1] != "m" || words[3] != "n" || words[5] != "k" || words[7] != "on" ||
      words[9] != "algorithm" || (words[8] != "tensor" && words[8] != "plain"))
    return std::nullopt;
  const size_t count = partition.product.indices.size();
  const auto m = parse_chain(words[2], count);
  const auto n = parse_chain(words[4], count);
  const auto k = parse_chain(words[6], count);
  const auto algorithm = parse_algorithm(words[10]);
  if (!m || !n || !k || !algorithm) return std::nullopt;
  return GemmConfig{GemmLibrary::cublaslt, *m, *n, *k, false, 1, words[8] == "tensor", *algorithm};
}

std::optional<GemmConfig> parse_cpu_gemm(const Partition& partition, GemmLibrary library,
                                         const std::vector<std::string>& words) {
  const auto named = fields(words);
  if (words.size() != 10 || !named.contains("m") || !named.contains("n") || !named.contains("k") ||
      !named.contains("threads") || (words[9] != "over" && words[9] != "inside"))
    return std::nullopt;
  const size_t count = partition.product.indices.size();
  const auto m = parse_chain(named.at("m"), count);
  const auto n = parse_chain(named.at("n"), count);
  const auto k = parse_chain(named.at("k"), count);
  const auto threads = parse_int(named.at("threads"));
  if (!m || !n || !k || !threads || *threads < 1 || *threads > kMostThreads) return std::nullopt;
  return GemmConfig{library, *m, *n, *k, words[9] == "over", *threads, true, {}};
}

std::optional<GemmConfig> parse_gemm(const Partition& partition, GemmLibrary library, std::vector<std::string> words) {
  int unfolded = kNoIndex;
  if (words.size() > 2 && words[words.size() - 2] == "unfolded") {
    unfolded = words.back() == "a" ? 0 : 1;
    if (unfolded == 1 && words.back() != "b") return std::nullopt;
    words.resize(words.size() - 2);
  }
  std::optional<GemmConfig> config =
      library == GemmLibrary::cublaslt ? parse_cublaslt(partition, words) : parse_cpu_gemm(partition, library, words);
  if (config) config->unfolded = unfolded;
  return config;
}

// A config from untrusted text. is_candidate checks whether it is one of the partition's.
std::optional<AttentionConfig> parse_attention(const std::vector<std::string>& words) {
  constexpr std::array<const char*, 4> kNames = {"warps", "row_tiles", "tile_columns", "stages"};
  std::array<int, 4> numbers{};
  size_t end = 1 + 2 * kNames.size();
  const auto has = [&](const char* word) {
    const bool found = end < words.size() && words[end] == word;
    end += found ? 1 : 0;
    return found;
  };
  const bool wgmma = has("wgmma");
  const bool rows_in_smem = wgmma && has("rows_in_smem");
  const bool single_kernel = has("single_kernel");
  const bool specialized = rows_in_smem && has("specialized");
  const bool is_split = specialized && end + 1 < words.size() && has("head_splits");
  const std::optional<int> head_splits = is_split ? parse_int(words[end++]) : 1;
  if (words.size() != end || !head_splits || *head_splits < 1) return std::nullopt;
  for (size_t k = 0; k < kNames.size(); ++k) {
    const std::optional<int> number = parse_int(words[2 + 2 * k]);
    if (words[1 + 2 * k] != kNames[k] || !number || *number < 1) return std::nullopt;
    numbers[k] = *number;
  }
  return AttentionConfig{numbers[0],   numbers[1],    numbers[2],  numbers[3],  wgmma,
                         rows_in_smem, single_kernel, specialized, *head_splits};
}

std::optional<CpuAttentionConfig> parse_cpu_attention(const std::vector<std::string>& words) {
  constexpr size_t kWords = 7;
  if (words.size() != kWords || words[1] != "tile_queries" || words[3] != "tile_keys" || words[5] != "threads")
    return std::nullopt;
  const std::optional<int> tile_queries = parse_int(words[2]);
  const std::optional<int> tile_keys = parse_int(words[4]);
  const std::optional<int> threads = parse_int(words[6]);
  if (!tile_queries || !tile_keys || !threads || *threads < 1 || *threads > kMostThreads) return std::nullopt;
  return CpuAttentionConfig{*tile_queries, *tile_keys, *threads};
}

}  // namespace

std::string print_partition(const Graph& graph, const Partition& partition) {
  std::map<TensorId, size_t> numbers;
  const auto number = [&](TensorId tensor) { return numbers.try_emplace(tensor, numbers.size()).first->second; };
  std::string text;
  const auto describe = [&](TensorId tensor) {
    std::vector<int64_t> shape;
    for (const DimId dim : graph.tensor(tensor).dims) shape.push_back(graph.extent(dim));
    return concat(number(tensor), ":", name_of(graph.tensor(tensor).dtype), "[", join(shape, ","), "]");
  };
  for (const TensorId tensor : partition.reads) text += concat("read ", describe(tensor), "; ");
  for (const TensorId tensor : partition.writes) text += concat("write ", describe(tensor), "; ");
  std::vector<OperatorId> operators = partition.operators;
  if (partition.kind == PartitionKind::contraction || partition.attention.has_score_expression() ||
      partition.attention.has_row_expressions() || partition.attention.window)
    operators.insert(operators.begin(), partition.repeats.begin(), partition.repeats.end());
  for (const OperatorId id : operators) {
    const Operator& op = graph.operators[id.at()];
    text += concat(info_of(op.kind).name, op.value != 0 ? concat("(", op.value, ")") : "",
                   op.gathered != 0 ? concat("[", op.gathered, "]") : "");
    for (const std::vector<Access>* accesses : {&op.inputs, &op.outputs}) {
      for (const Access& access : *accesses)
        text += concat(" ", number(access.tensor), "[", print_positions(access.axes), "]");
    }
    std::vector<std::string> space;
    for (size_t index = 0; index < op.space.size(); ++index)
      space.push_back(concat(graph.extent(op.space[index]), op.reduced[index] ? "r" : ""));
    text += concat(" over ", join(space, ","), "; ");
    for (const Region& region : op.regions) {
      text += "region";
      for (const Range& range : region) text += concat(" ", range.first, "-", range.last);
      text += "; ";
    }
  }
  if (const std::optional<KeyWindow>& window = partition.attention.window)
    text += concat("window ", window->first, " ", window->last, "; ");
  for (size_t k = 0; k < partition.members.size(); ++k) {
    text += concat("nest ", join(partition.index_of[k], ","), "; ");
    const bool shifted =
        !partition.shift_of.empty() && std::any_of(partition.shift_of[k].begin(), partition.shift_of[k].end(),
                                                   [](int64_t shift) { return shift != 0; });
    if (shifted) text += concat("shift ", join(partition.shift_of[k], ","), "; ");
  }
  for (const PartitionIndex& index : partition.space) text += index.outer ? "o" : "i";
  // Whether stacked operands are packed or adjacent.
  for (size_t operand = 0; operand < kOperands; ++operand) {
    if (partition.product.operand(operand).size() > 1) text += partition.product.packed[operand] ? "p" : "a";
  }
  if (partition.product.has_epilogue()) text += "e";
  if (partition.product.adds()) text += "+";
  return text;
}

std::string print_config(const Config& config) {
  return std::visit([](const auto& one) { return text_of(one); }, config);
}

std::string print_candidate(const std::vector<TensorDomain>& domains, const Partition& partition,
                            const Candidate& candidate) {
  std::vector<std::string> layouts;
  for (const Layout& layout : layouts_of(domains, partition, candidate)) layouts.push_back(digits(layout));
  return concat(join(layouts, " "), "; ", print_config(candidate.config));
}

std::optional<Candidate> parse_candidate(const std::vector<TensorDomain>& domains, const Partition& partition,
                                         std::string_view text) {
  const size_t cut = text.find("; ");
  if (cut == std::string_view::npos) return std::nullopt;
  const std::vector<TensorId> tensors = tensors_of(partition);
  const std::vector<std::string> layouts = cut == 0 ? std::vector<std::string>() : split(text.substr(0, cut), ' ');
  if (layouts.size() != tensors.size()) return std::nullopt;
  Candidate candidate;
  for (size_t k = 0; k < tensors.size(); ++k) {
    const std::vector<Layout>& domain = domains[tensors[k].at()].layouts;
    const auto found =
        std::find_if(domain.begin(), domain.end(), [&](const Layout& l) { return digits(l) == layouts[k]; });
    if (found == domain.end()) return std::nullopt;
    candidate.layouts.push_back(static_cast<int>(found - domain.begin()));
  }
  const std::vector<std::string> words = split(text.substr(cut + 2), ' ');
  if (words.front() == "rows" || words.front() == "flat") {
    const std::optional<KernelConfig> config = parse_kernel(partition, words);
    if (!config || (partition.members.empty() && partition.kind != PartitionKind::kernel)) return std::nullopt;
    candidate.config = *config;
    return candidate;
  }
  if (words.front() == "attention" && words.size() > 1 && words[1] == "tile_queries") {
    const std::optional<CpuAttentionConfig> config = parse_cpu_attention(words);
    if (!config || partition.kind != PartitionKind::attention) return std::nullopt;
    candidate.config = *config;
    return candidate;
  }
  if (words.front() == "attention") {
    const std::optional<AttentionConfig> config = parse_attention(words);
    if (!config || partition.kind != PartitionKind::attention) return std::nullopt;
    candidate.config = *config;
    return candidate;
  }
  if (words == std::vector<std::string>{"cudnn"}) {
    if (partition.kind != PartitionKind::attention) return std::nullopt;
    candidate.config = CudnnConfig();
    return candidate;
  }
  const std::optional<GemmLibrary> library = gemm_library_of(words.front());
  if (!library || partition.kind != PartitionKind::contraction) return std::nullopt;
  const std::optional<GemmConfig> config = parse_gemm(partition, *library, words);
  if (!config) return std::nullopt;
  candidate.config = *config;
  return candidate;
}

}  // namespace millrace
