// Partitions, covers and layouts of programs, and every candidate as text and back.
#include "candidates/enumerate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/sanitized.h"
#include "base/text.h"
#include "candidates/partitions.h"
#include "candidates/parts_text.h"
#include "fusion/fusion_text.h"
#include "golden/golden.h"

namespace millrace {
namespace {

EnumerateOptions both_libraries(size_t most = std::numeric_limits<size_t>::max() / 8) {
  EnumerateOptions options;
  options.threads = 2;
  options.libraries = {GemmLibrary::openblas, GemmLibrary::blis};
  options.most = most;
  return options;
}

struct Enumerated {
  TrainingGraph training;
  Candidates candidates;
};

Enumerated enumerated(TrainingGraph training, const EnumerateOptions& options) {
  Enumerated made{std::move(training), {}};
  Result<Candidates> found = enumerate(made.training, fuse(made.training), options);
  EXPECT_TRUE(found) << to_string(found.error());
  if (found) made.candidates = std::move(*found);
  return made;
}

TEST(Partitions, OfBert) {
  const TrainingGraph training = training_of_model("bert_encoder");
  const Result<Candidates> found = find_partitions(training, fuse(training), {});
  ASSERT_TRUE(found);
  EXPECT_TRUE(matches_file(partitions_text(training, *found), "candidates/bert_encoder_partitions.txt", "Partitions"));
}

void expect_every_alternative_is_whole(const EnumerateOptions& options) {
  for (const std::string& model : models()) {
    const TrainingGraph training = training_of_model(model, {"tiny"});
    const Result<Candidates> found = find_partitions(training, fuse(training), options);
    ASSERT_TRUE(found);
    std::map<OperatorId, int> in_choice_points;
    for (const ChoicePoint& choice_point : found->choice_points) {
      ASSERT_FALSE(choice_point.alternatives.empty()) << model;
      std::optional<std::vector<OperatorId>> first;
      for (const std::vector<int>& alternative : choice_point.alternatives) {
        std::vector<OperatorId> operators;
        for (const int partition : alternative) {
          const std::vector<OperatorId>& own = found->partitions[static_cast<size_t>(partition)].partition.operators;
          operators.insert(operators.end(), own.begin(), own.end());
        }
        std::sort(operators.begin(), operators.end());
        if (!first) {
          first = operators;
          for (const OperatorId op : operators) ++in_choice_points[op];
        }
        EXPECT_EQ(operators, *first) << model;
      }
    }
    EXPECT_EQ(in_choice_points.size(), training.graph.operators.size()) << model;
    for (const auto& [op, count] : in_choice_points) EXPECT_EQ(count, 1) << model;
    // Whichever alternatives are taken, partitions in their order find what they read.
    for (const bool last : {false, true}) {
      std::vector<bool> chosen(found->partitions.size(), false);
      for (const ChoicePoint& choice_point : found->choice_points) {
        for (const int partition : last ? choice_point.alternatives.back() : choice_point.alternatives.front())
          chosen[static_cast<size_t>(partition)] = true;
      }
      std::set<TensorId> there(training.graph.arguments.begin(), training.graph.arguments.end());
      there.insert(training.result_gradients.begin(), training.result_gradients.end());
      for (size_t k = 0; k < found->partitions.size(); ++k) {
        if (!chosen[k]) continue;
        const Partition& partition = found->partitions[k].partition;
        for (const TensorId tensor : partition.reads)
          EXPECT_TRUE(there.contains(tensor)) << model << ": " << partition.name << " reads "
                                              << training.graph.tensor(tensor).name << " before it is written";
        there.insert(partition.writes.begin(), partition.writes.end());
      }
      for (const Output& result : training.graph.results) EXPECT_TRUE(there.contains(result.tensor)) << model;
      for (const TensorId gradient : training.argument_gradients)
        EXPECT_TRUE(!gradient.valid() || there.contains(gradient)) << model;
    }
  }
}

TEST(Partitions, EveryAlternativeCarriesOutItsSitesOperatorsOnce) {
  EnumerateOptions options;
  expect_every_alternative_is_whole(options);
  options.gpu = GpuTarget();
  expect_every_alternative_is_whole(options);
}

TEST(Partitions, FamiliesAreOfOneShape) {
  const TrainingGraph training = training_of_model("bert_encoder", {"tiny"});
  const Result<Candidates> found = find_partitions(training, fuse(training), {});
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->contiguous_groups.empty());
  std::set<TensorId> members;
  for (const std::vector<TensorId>& family : found->contiguous_groups) {
    for (const TensorId tensor : family) {
      EXPECT_TRUE(members.insert(tensor).second) << "in two contiguous groups";
      EXPECT_EQ(training.graph.tensor(tensor).dims.size(), training.graph.tensor(family.front()).dims.size());
    }
  }
}

// --- The caller's layouts ---

TEST(Layouts, TheCallersArePinnedAsWrittenOrAsAsked) {
  const TrainingGraph training = training_of(
      "B = 2\nJ = 3\nI = 4\n\n\ndef layer(x: float32[B, J, I], s: float32):\n    y = softmax(x) * s\n    return y\n");
  const FusedGraph fused = fuse(training);
  const auto pinned = [&](const std::string& layout) -> std::string {
    EnumerateOptions options;
    const size_t equals = layout.find('=');
    if (equals != std::string::npos) options.layouts = {{layout.substr(0, equals), layout.substr(equals + 1)}};
    const Result<Candidates> found = find_partitions(training, fused, options);
    if (!found) return to_string(found.error());
    const TensorId x = training.graph.arguments.front();
    const TensorDomain& domain = found->domains[x.at()];
    return domain.pinned < 0 ? "any"
                             : print_layout(training.graph, x, domain.layouts[static_cast<size_t>(domain.pinned)]);
  };
  EXPECT_EQ(pinned(""), "BJI");
  EXPECT_EQ(pinned("x=IBJ"), "IBJ");
  EXPECT_EQ(pinned("x=I.B.J"), "IBJ");
  EXPECT_EQ(pinned("x=any"), "any");
  EXPECT_EQ(pinned("d_x=any"), "BJI") << "another tensor";
  for (const char* const wrong : {"x=", "x=BJ", "x=BJJ", "x=BJIB", "x=bji", "x=BJIX", "x=bits", "x=drawn", "x=."}) {
    EXPECT_NE(pinned(wrong).find("not an order of its axes"), std::string::npos) << wrong << ": " << pinned(wrong);
    EXPECT_NE(pinned(wrong).find("as in BJI, or any"), std::string::npos) << wrong << ": " << pinned(wrong);
  }
  EXPECT_NE(pinned("s=any").find("it is a scalar"), std::string::npos);
  EXPECT_NE(pinned("d_xx=any").find("did you mean d_x?"), std::string::npos) << pinned("d_xx=any");
  EXPECT_NE(pinned("nothing=any").find("there are x, d_x, s, y, d_y"), std::string::npos) << pinned("nothing=any");
}

TEST(Layouts, AreAllThatDifferInMemory) {
  const TrainingGraph training = training_of(
      "A = 1\nB = 2\nC = 3\nD = 4\n\n\ndef f(x: float32[B, A, C, A], y: float32[B, B], z: float32[A, A], "
      "w: float32[B, C, D, B, C, D], heads: float32[B]):\n    return x * 2, y * 2, z * 2, w * 2, heads * 2\n");
  const Graph& graph = training.graph;
  const auto texts_of = [](const Graph& of, TensorId tensor) {
    std::vector<std::string> list;
    for (const Layout& layout : layouts_of(of, tensor, true)) list.push_back(print_layout(of, tensor, layout));
    return join(list, " ");
  };
  const auto texts = [&](size_t argument) { return texts_of(graph, graph.arguments[argument]); };
  EXPECT_EQ(texts(0), "AA'BC AA'CB");
  EXPECT_EQ(texts(1), "BB' B'B");
  EXPECT_EQ(texts(2), "AA'");
  EXPECT_EQ(texts(3), "BCDB'C'D' CDB'C'D'B BDB'C'D'C BCB'C'D'D BCDC'D'B' BCDB'D'C'");
  EXPECT_EQ(texts(4), "B");
  const TrainingGraph masks = training_of(
      "B = 2\nC = 3\n\n\ndef f(x: float32[B, C]):\n"
      "    return dropout(np.where(x < 0.5, x, 2.0 * x)) + np.where(np.sum(x) < 1, 1.0, 2.0)\n");
  std::vector<std::string> found;
  for (size_t k = 0; k < masks.graph.tensors.size(); ++k) {
    const std::string list = texts_of(masks.graph, TensorId(k));
    const bool boolean = masks.graph.tensors[k].dtype == DType::boolean;
    if (boolean || list.find("bits") != std::string::npos) found.push_back((boolean ? "boolean " : "mask ") + list);
  }
  EXPECT_EQ(found, (std::vector<std::string>{"boolean BC CB bits", "mask BC CB bits regenerated", "boolean "}));
  for (const TensorId tensor : graph.arguments) {
    for (const Layout& layout : layouts_of(graph, tensor, false)) {
      EXPECT_EQ(parse_layout(graph, tensor, print_layout(graph, tensor, layout)), layout);
      // Strides reach every element once.
      std::set<int64_t> places = {0};
      const std::vector<int64_t> strides = strides_of(graph, tensor, layout);
      for (size_t axis = 0; axis < strides.size(); ++axis) {
        std::set<int64_t> wider;
        for (const int64_t place : places) {
          for (int64_t k = 0; k < graph.extent(graph.tensor(tensor).dims[axis]); ++k)
            wider.insert(place + k * strides[axis]);
        }
        places = std::move(wider);
      }
      EXPECT_EQ(static_cast<int64_t>(places.size()), elements_of(graph, tensor));
      EXPECT_EQ(*places.rbegin(), elements_of(graph, tensor) - 1);
    }
  }
  // Axes of extent one may stand anywhere.
  EXPECT_EQ(parse_layout(graph, graph.arguments[0], "CA'BA"), parse_layout(graph, graph.arguments[0], "AA'CB"));
}

// --- Candidates as text ---

TEST(CandidatesOfPrograms, EachIsReadBackFromItsTextAndIsOne) {
  const Enumerated made = enumerated(training_of_model("mha", {"tiny"}), both_libraries(300));
  size_t count = 0;
  for (const PartitionCandidates& of : made.candidates.partitions) {
    std::set<std::string> texts;
    for (size_t k = 0; k < of.candidates.size(); ++k) {
      const Candidate& candidate = of.candidates[k];
      const std::string text = print_candidate(made.candidates.domains, of.partition, candidate);
      EXPECT_TRUE(texts.insert(text).second) << of.partition.name << " twice: " << text;
      const std::optional<Candidate> read = parse_candidate(made.candidates.domains, of.partition, text);
      ASSERT_TRUE(read) << of.partition.name << ": " << text;
      EXPECT_EQ(read->layouts, candidate.layouts) << text;
      EXPECT_EQ(read->config, candidate.config) << text;
      if (k % (kSanitized ? 160 : 16) != 0) continue;  // finding them anew takes longer
      EXPECT_TRUE(is_candidate(made.training.graph, made.candidates.domains, of.partition, candidate))
          << of.partition.name << ": " << text;
      ++count;
    }
  }
  EXPECT_GT(count, kSanitized ? 30U : 300U);
}

TEST(CandidatesOfPrograms, WhatIsChangedIsNone) {
  const Enumerated made = enumerated(training_of_model("mha", {"tiny"}), both_libraries(60));
  const Graph& graph = made.training.graph;
  size_t changed = 0;
  const auto expect_none = [&](const Partition& partition, const Candidate& candidate, const std::string& how) {
    EXPECT_FALSE(is_candidate(graph, made.candidates.domains, partition, candidate))
        << partition.name << ", " << how << ": " << print_candidate(made.candidates.domains, partition, candidate);
    ++changed;
  };
  for (size_t number = 0; number < made.candidates.partitions.size(); number += kSanitized ? 3 : 1) {
    const PartitionCandidates& of = made.candidates.partitions[number];
    for (size_t k = 0; k < of.candidates.size(); k += kSanitized ? 60 : 20) {
      Candidate candidate = of.candidates[k];
      if (auto* const kernel = std::get_if<KernelConfig>(&candidate.config)) {
        const KernelConfig config = *kernel;
        kernel->loops.push_back(0);
        expect_none(of.partition, candidate, "a loop twice");
        *kernel = config;
        if (config.loops.size() > 1) {
          kernel->vector = config.loops.front();
          if (!config.rows) expect_none(of.partition, candidate, "the vector along the outermost loop");
          *kernel = config;
          kernel->block = config.vector;
          expect_none(of.partition, candidate, "blocks of the vector");
        }
      } else {
        auto& gemm = std::get<GemmConfig>(candidate.config);
        const GemmConfig config = gemm;
        std::swap(gemm.m, gemm.k);
        if (gemm.m != gemm.k) expect_none(of.partition, candidate, "rows reduced");
        gemm = config;
        if (!gemm.n.empty()) {
          gemm.n.pop_back();
          if (gemm.n.empty()) expect_none(of.partition, candidate, "an index less");
        }
        gemm = config;
        gemm.m.insert(gemm.m.end(), gemm.k.begin(), gemm.k.end());
        if (!gemm.k.empty()) expect_none(of.partition, candidate, "an index twice");
      }
    }
  }
  EXPECT_GT(changed, kSanitized ? 20U : 100U);
}

TEST(CandidatesOfPrograms, TextsThatDoNotFitAreRefused) {
  const Enumerated made = enumerated(training_of_model("mha", {"tiny"}), both_libraries(10));
  for (const PartitionCandidates& of : made.candidates.partitions) {
    const std::string text = print_candidate(made.candidates.domains, of.partition, of.candidates.front());
    const auto refused = [&](const std::string& wrong) {
      EXPECT_FALSE(parse_candidate(made.candidates.domains, of.partition, wrong)) << of.partition.name << ": " << wrong;
    };
    refused("");
    refused("; ");
    refused(text + " ");
    refused(text + " more");
    refused(" " + text);
    refused(text.substr(0, text.find("; ")));
    refused(text.substr(text.find("; ")));
    for (const char* const number : {"-1", "4097", "99999999999999999999", "0", "x", "1x", ""}) {
      const size_t at = text.find("threads ") + 8;
      refused(text.substr(0, at) + number +
              text.substr(text.find_first_of(" ", at) == std::string::npos ? text.size() : text.find(' ', at)));
    }
    // Cut anywhere: nothing, or at least nothing that falls over.
    for (size_t cut = 0; cut < text.size(); ++cut) {
      const std::optional<Candidate> read = parse_candidate(made.candidates.domains, of.partition, text.substr(0, cut));
      if (read) is_candidate(made.training.graph, made.candidates.domains, of.partition, *read);
    }
  }
}

TEST(CandidatesOfPrograms, AreCountedWhetherKeptOrNot) {
  const TrainingGraph training = training_of_model("mha", {"tiny"});
  const Enumerated all = enumerated(training, both_libraries());
  const Enumerated some = enumerated(training, both_libraries(50));
  for (size_t k = 0; k < all.candidates.partitions.size(); ++k) {
    const PartitionCandidates& of = all.candidates.partitions[k];
    EXPECT_FALSE(of.candidates.empty()) << of.partition.name;
    EXPECT_EQ(of.configurations, static_cast<double>(of.candidates.size())) << of.partition.name;
    const PartitionCandidates& few = some.candidates.partitions[k];
    EXPECT_EQ(few.configurations, of.configurations) << of.partition.name;
    EXPECT_LE(few.candidates.size(), of.candidates.size());
    EXPECT_FALSE(of.rejected.empty()) << of.partition.name << ": what was left out has a reason";
    for (const Rejected& rejected : of.rejected) EXPECT_GT(rejected.count, 0) << rejected.reason;
  }
}

TEST(CandidatesOfPrograms, AMissingLibraryIsAReason) {
  EnumerateOptions options;
  options.missing = {{GemmLibrary::openblas, "no libopenblas here"}, {GemmLibrary::blis, "no libblis here"}};
  const Enumerated made = enumerated(training_of_model("mha", {"tiny"}), options);
  size_t told = 0;
  for (const PartitionCandidates& of : made.candidates.partitions) {
    if (of.partition.kind != PartitionKind::contraction) continue;
    for (const Rejected& rejected : of.rejected) told += rejected.reason == "no libblis here" ? 1 : 0;
    EXPECT_EQ(of.candidates.empty(), of.partition.members.empty())
        << of.partition.name << ": single ones by generated loops";
  }
  EXPECT_GT(told, 5U);
}

TEST(CandidatesOfPrograms, ConversionsGoFromOneLayoutToTheOther) {
  const Enumerated made = enumerated(training_of_model("mha", {"tiny"}), both_libraries(10));
  const Graph& graph = made.training.graph;
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    const TensorDomain& domain = made.candidates.domains[k];
    if (domain.layouts.size() < 2 || domain.layouts[1].storage != MaskStorage::words) continue;
    const PartitionCandidates found = conversions(graph, domain, TensorId(k), 1, 0, 2);
    EXPECT_FALSE(found.candidates.empty());
    for (const Candidate& candidate : found.candidates) {
      EXPECT_EQ(candidate.layouts, (std::vector<int>{1, 0}));
      EXPECT_TRUE(is_candidate(graph, made.candidates.domains, found.partition, candidate));
    }
  }
}

constexpr const char* kWeights = R"(
B = 8
H = 4
J = 16
K = 16


def weights(x: float16[B, H, J, K]):
    return dropout(softmax(x + x))
)";

// A plan's verifier asks so: whatever GPU the plan was made for.
// The partitions before and behind may want any of them: none is lost because others promise more.
TEST(EnumerateOnAGpu, EveryLayoutOfEveryTensorHasACandidate) {
  const TrainingGraph training = training_of(kWeights);
  EnumerateOptions options;
  options.gpu = GpuTarget{2};
  options.most = 10;
  const Result<Candidates> found = enumerate(training, fuse(training), options);
  ASSERT_TRUE(found);
  for (const PartitionCandidates& of : found->partitions) {
    std::vector<std::set<int>> layouts(tensors_of(of.partition).size());
    for (const Candidate& candidate : of.candidates) {
      for (size_t k = 0; k < layouts.size(); ++k) layouts[k].insert(candidate.layouts[k]);
    }
    size_t k = 0;
    for (const TensorId tensor : tensors_of(of.partition)) {
      const TensorDomain& domain = found->domains[tensor.at()];
      const size_t all = domain.pinned < 0 ? domain.layouts.size() : 1;
      EXPECT_EQ(layouts[k].size(), all) << of.partition.name << " " << training.graph.tensor(tensor).name;
      ++k;
    }
  }
}

TEST(EnumerateOnAGpu, UnderGivenLayoutsThereIsEveryShape) {
  const TrainingGraph training = kSanitized ? training_of(kWeights) : training_of_model("mha", {"tiny"});
  EnumerateOptions options;
  options.gpu = GpuTarget{2};
  const Result<Candidates> few = enumerate(training, fuse(training), options);
  options.every_shape = true;
  options.most = 1'000'000;
  const Result<Candidates> all = enumerate(training, fuse(training), options);
  ASSERT_TRUE(few && all);
  size_t more = 0;
  for (size_t number = 0; number < few->partitions.size(); ++number) {
    const PartitionCandidates& of = all->partitions[number];
    EXPECT_EQ(few->partitions[number].configurations, of.configurations) << of.partition.name;
    more += of.candidates.size() > few->partitions[number].candidates.size() ? 1 : 0;
    if (of.partition.kind != PartitionKind::kernel) continue;
    const std::vector<int>& layouts = of.candidates.back().layouts;
    const auto lies_so = [&](const Candidate& candidate) { return candidate.layouts == layouts; };
    EXPECT_EQ(
        static_cast<std::ptrdiff_t>(configs_under(training.graph, few->domains, options, of.partition, layouts).size()),
        std::count_if(of.candidates.begin(), of.candidates.end(), lies_so))
        << of.partition.name;
  }
  EXPECT_GT(more, 0U);
}

// Small ones are, and those that lie as the program has them.
TEST(EnumerateOnAGpu, LargeTensorsAreNotReadAcrossTheirLines) {
  const auto counted = [](int rows, const std::string& other) {
    const TrainingGraph training = training_of(concat("J = ", rows, R"(
K = 1024

def sum_of(x: float16[J, K], y: float16[K, J]):
    return relu(np.exp(x) + np.einsum(")",
                                                      other, R"(->jk", np.exp(y)))
)"));
    EnumerateOptions options;
    options.gpu = GpuTarget{2};
    options.most = std::numeric_limits<size_t>::max() / 8;
    const Result<Candidates> found = enumerate(training, fuse(training), options);
    EXPECT_TRUE(found);
    double rejected = 0;
    for (const PartitionCandidates& of : found->partitions) {
      EXPECT_FALSE(of.candidates.empty()) << of.partition.name;
      for (const Rejected& reason : of.rejected)
        rejected += reason.reason.find("across the lines") != std::string::npos ? reason.count : 0;
      // Ways along the lines of each of its tensors are there.
      for (const Candidate& candidate : of.candidates)
        EXPECT_TRUE(is_candidate(training.graph, found->domains, of.partition, candidate)) << of.partition.name;
    }
    return rejected;
  };
  EXPECT_EQ(counted(64, "kj"), 0);
  EXPECT_GT(counted(4096, "kj"), 0);
}

// Whether a mask is drawn again where it is read, and kept nowhere.
bool keeps_none(const std::vector<TensorDomain>& domains, const Partition& partition, const Candidate& candidate) {
  const std::vector<Layout> layouts = layouts_of(domains, partition, candidate);
  return std::any_of(layouts.begin(), layouts.end(),
                     [](const Layout& l) { return l.storage == MaskStorage::regenerated; });
}

// Small ones are across, too, and any where tensors lie as the program or the caller has them.
TEST(EnumerateOnAGpu, LargeMasksAreDrawnAlongTheirNeighbours) {
  const auto across = [](int rows) {
    const TrainingGraph training = training_of(concat("J = ", rows, R"(
K = 1024

def dropped(x: float16[J, K]):
    return dropout(np.exp(x), p=0.5)
)"));
    EnumerateOptions options;
    options.gpu = GpuTarget{2};
    options.layouts = {{"x", "KJ"}};
    options.most = std::numeric_limits<size_t>::max() / 8;
    const Result<Candidates> found = enumerate(training, fuse(training), options);
    EXPECT_TRUE(found) << to_string(found.error());
    size_t drawn = 0;
    for (const PartitionCandidates& of : found->partitions) {
      EXPECT_FALSE(of.candidates.empty()) << of.partition.name;
      for (const Candidate& candidate : of.candidates) {
        EXPECT_TRUE(is_candidate(training.graph, found->domains, of.partition, candidate)) << of.partition.name;
        const bool draws = of.partition.pass == Pass::forward || keeps_none(found->domains, of.partition, candidate);
        const bool masks = print_partition(training.graph, of.partition).find("dropout") != std::string::npos;
        if (has_written_layouts(found->domains, of.partition, candidate)) continue;
        drawn += masks && draws && std::get<KernelConfig>(candidate.config).vector == 0 ? 1U : 0U;
      }
    }
    return drawn;
  };
  EXPECT_GT(across(64), 0U);
  EXPECT_EQ(across(4096), 0U);
}

// A conversion draws nothing; and elements are numbered along the last axis that has more than one.
TEST(EnumerateOnAGpu, LargeMasksAreConvertedLikeOtherTensors) {
  const TrainingGraph training = training_of(R"(
J = 4096
K = 1024
L = 1

def dropped(x: float16[J, K, L]):
    return dropout(np.exp(x), p=0.5)
)");
  EnumerateOptions options;
  options.gpu = GpuTarget{2};
  const Result<Candidates> found = enumerate(training, fuse(training), options);
  ASSERT_TRUE(found) << to_string(found.error());
  std::set<size_t> counts;
  for (size_t t = 0; t < training.graph.tensors.size(); ++t) {
    const TensorDomain& domain = found->domains[t];
    if (domain.layouts.size() < 2 || domain.layouts[1].storage != MaskStorage::words) continue;
    counts.insert(conversions(training.graph, domain, TensorId(t), 0, 1, 1, options.gpu).candidates.size());
  }
  EXPECT_EQ(counts.size(), 1U);
  for (const PartitionCandidates& of : found->partitions) {
    if (of.partition.pass != Pass::forward || of.partition.members.size() != 2) continue;
    EXPECT_TRUE(std::any_of(of.candidates.begin(), of.candidates.end(), [&](const Candidate& candidate) {
      return keeps_none(found->domains, of.partition, candidate);
    })) << of.partition.name;
  }
}

TEST(EnumerateOnAGpu, WhatIsEnumeratedIsACandidate) {
  const TrainingGraph training = training_of(R"(
B = 6
I = 64

def layer(x: float16[B, I], w: float16[I], b: float16[I]):
    return layernorm(x, w, b)
)");
  for (const int multiprocessors : {2, 78, 132}) {
    EnumerateOptions options;
    options.gpu = GpuTarget{multiprocessors};
    const Result<Candidates> found = enumerate(training, fuse(training), options);
    ASSERT_TRUE(found);
    bool across = false;
    for (const PartitionCandidates& of : found->partitions) {
      for (size_t k = 0; k < of.candidates.size(); k += 1 + of.candidates.size() / 40) {
        const auto& shape = std::get<KernelConfig>(of.candidates[k].config).gpu;
        across = across || (shape && shape->blocks > multiprocessors);
        EXPECT_TRUE(is_candidate(training.graph, found->domains, of.partition, of.candidates[k]))
            << print_candidate(found->domains, of.partition, of.candidates[k]);
      }
    }
    EXPECT_TRUE(across);
  }
}

}  // namespace
}  // namespace millrace
