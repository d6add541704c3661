// Partitions, choice points and layouts of programs, and every candidate as text and back.
#include "candidates/enumerate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/sanitized.h"
#include "base/text.h"
#include "candidates/partitions.h"
#include "candidates/partitions_text.h"
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

TEST(Partitions, EveryAlternativeCarriesOutItsOperatorsOnce) {
  EnumerateOptions options;
  expect_every_alternative_is_whole(options);
  options.target = gpu_target();
  expect_every_alternative_is_whole(options);
}

TEST(Partitions, ContiguousGroupsHaveOneShape) {
  const TrainingGraph training = training_of_model("bert_encoder", {"tiny"});
  const Result<Candidates> found = find_partitions(training, fuse(training), {});
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->contiguous_groups.empty());
  std::set<TensorId> members;
  for (const std::vector<TensorId>& group : found->contiguous_groups) {
    for (const TensorId tensor : group) {
      EXPECT_TRUE(members.insert(tensor).second) << "in two contiguous groups";
      EXPECT_EQ(training.graph.tensor(tensor).dims.size(), training.graph.tensor(group.front()).dims.size());
    }
  }
}

// --- The caller's layouts ---

TEST(Layouts, TheCallersArePinnedAsWrittenOrAsRequested) {
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
  const auto texts_of = [](const Graph& g, TensorId tensor) {
    std::vector<std::string> list;
    for (const Layout& layout : layouts_of(g, tensor, true)) list.push_back(print_layout(g, tensor, layout));
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
  // Axes of extent one may be anywhere.
  EXPECT_EQ(parse_layout(graph, graph.arguments[0], "CA'BA"), parse_layout(graph, graph.arguments[0], "AA'CB"));
}

// --- Candidates as text ---

TEST(CandidatesOfPrograms, EachIsReadBackFromItsTextAndIsACandidate) {
  const Enumerated made = enumerated(training_of_model("mha", {"tiny"}), both_libraries(300));
  size_t count = 0;
  for (const PartitionCandidates& entry : made.candidates.partitions) {
    std::set<std::string> texts;
    for (size_t k = 0; k < entry.candidates.size(); ++k) {
      const Candidate& candidate = entry.candidates[k];
      const std::string text = print_candidate(made.candidates.domains, entry.partition, candidate);
      EXPECT_TRUE(texts.insert(text).second) << entry.partition.name << " twice: " << text;
      const std::optional<Candidate> read = parse_candidate(made.candidates.domains, entry.partition, text);
      ASSERT_TRUE(read) << entry.partition.name << ": " << text;
      EXPECT_EQ(read->layouts, candidate.layouts) << text;
      EXPECT_EQ(read->config, candidate.config) << text;
      if (k % (kSanitized ? 160 : 16) != 0) continue;  // finding them anew takes longer
      EXPECT_TRUE(is_candidate(made.training.graph, made.candidates.domains, entry.partition, candidate))
          << entry.partition.name << ": " << text;
      ++count;
    }
  }
  EXPECT_GT(count, kSanitized ? 30U : 300U);
}

TEST(CandidatesOfPrograms, AChangedCandidateIsRejected) {
  const Enumerated made = enumerated(training_of_model("mha", {"tiny"}), both_libraries(60));
  const Graph& graph = made.training.graph;
  size_t changed = 0;
  const auto expect_none = [&](const Partition& partition, const Candidate& candidate, const std::string& how) {
    EXPECT_FALSE(is_candidate(graph, made.candidates.domains, partition, candidate))
        << partition.name << ", " << how << ": " << print_candidate(made.candidates.domains, partition, candidate);
    ++changed;
  };
  for (size_t number = 0; number < made.candidates.partitions.size(); number += kSanitized ? 3 : 1) {
    const PartitionCandidates& entry = made.candidates.partitions[number];
    for (size_t k = 0; k < entry.candidates.size(); k += kSanitized ? 60 : 20) {
      Candidate candidate = entry.candidates[k];
      if (auto* const kernel = std::get_if<KernelConfig>(&candidate.config)) {
        const KernelConfig config = *kernel;
        kernel->loops.push_back(0);
        expect_none(entry.partition, candidate, "a loop twice");
        *kernel = config;
        if (config.loops.size() > 1) {
          kernel->vector = config.loops.front();
          if (!config.rows) expect_none(entry.partition, candidate, "the vector along the outermost loop");
          *kernel = config;
          kernel->block = config.vector;
          expect_none(entry.partition, candidate, "blocks of the vector");
        }
      } else {
        auto& gemm = std::get<GemmConfig>(candidate.config);
        const GemmConfig config = gemm;
        std::swap(gemm.m, gemm.k);
        if (gemm.m != gemm.k) expect_none(entry.partition, candidate, "rows reduced");
        gemm = config;
        if (!gemm.n.empty()) {
          gemm.n.pop_back();
          if (gemm.n.empty()) expect_none(entry.partition, candidate, "an index less");
        }
        gemm = config;
        gemm.m.insert(gemm.m.end(), gemm.k.begin(), gemm.k.end());
        if (!gemm.k.empty()) expect_none(entry.partition, candidate, "an index twice");
      }
    }
  }
  EXPECT_GT(changed, kSanitized ? 20U : 100U);
}

TEST(CandidatesOfPrograms, TextsThatDoNotFitAreRefused) {
  const Enumerated made = enumerated(training_of_model("mha", {"tiny"}), both_libraries(10));
  for (const PartitionCandidates& entry : made.candidates.partitions) {
    const std::string text = print_candidate(made.candidates.domains, entry.partition, entry.candidates.front());
    const auto refused = [&](const std::string& wrong) {
      EXPECT_FALSE(parse_candidate(made.candidates.domains, entry.partition, wrong))
          << entry.partition.name << ": " << wrong;
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
    // A text that is cut anywhere is rejected, or at least crashes nothing.
    for (size_t cut = 0; cut < text.size(); ++cut) {
      const std::optional<Candidate> read =
          parse_candidate(made.candidates.domains, entry.partition, text.substr(0, cut));
      if (read) is_candidate(made.training.graph, made.candidates.domains, entry.partition, *read);
    }
  }
}

TEST(CandidatesOfPrograms, AreCountedWhetherKeptOrNot) {
  const TrainingGraph training = training_of_model("mha", {"tiny"});
  const Enumerated all = enumerated(training, both_libraries());
  const Enumerated some = enumerated(training, both_libraries(50));
  for (size_t k = 0; k < all.candidates.partitions.size(); ++k) {
    const PartitionCandidates& entry = all.candidates.partitions[k];
    EXPECT_FALSE(entry.candidates.empty()) << entry.partition.name;
    EXPECT_EQ(entry.configurations, static_cast<double>(entry.candidates.size())) << entry.partition.name;
    const PartitionCandidates& few = some.candidates.partitions[k];
    EXPECT_EQ(few.configurations, entry.configurations) << entry.partition.name;
    EXPECT_LE(few.candidates.size(), entry.candidates.size());
    EXPECT_FALSE(entry.rejected.empty()) << entry.partition.name << ": what was left out has a reason";
    for (const Rejected& rejected : entry.rejected) EXPECT_GT(rejected.count, 0) << rejected.reason;
  }
}

TEST(CandidatesOfPrograms, AMissingLibraryIsAReason) {
  EnumerateOptions options;
  options.missing = {{GemmLibrary::openblas, "no libopenblas here"}, {GemmLibrary::blis, "no libblis here"}};
  const Enumerated made = enumerated(training_of_model("mha", {"tiny"}), options);
  size_t told = 0;
  for (const PartitionCandidates& entry : made.candidates.partitions) {
    if (entry.partition.kind != PartitionKind::contraction) continue;
    for (const Rejected& rejected : entry.rejected) told += rejected.reason == "no libblis here" ? 1 : 0;
    EXPECT_EQ(entry.candidates.empty(), entry.partition.members.empty())
        << entry.partition.name << ": single ones by generated loops";
  }
  EXPECT_GT(told, 5U);
}

TEST(CandidatesOfPrograms, ConversionsGoFromOneLayoutToTheOther) {
  const Enumerated made = enumerated(training_of_model("mha", {"tiny"}), both_libraries(10));
  const Graph& graph = made.training.graph;
  size_t tensors = 0;
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    const TensorDomain& domain = made.candidates.domains[k];
    if (domain.layouts.size() < 2 || domain.layouts[1].storage != MaskStorage::words) continue;
    ++tensors;
    const PartitionCandidates found = conversions(graph, domain, TensorId(k), 1, 0, 2);
    EXPECT_FALSE(found.candidates.empty());
    for (const Candidate& candidate : found.candidates) {
      EXPECT_EQ(candidate.layouts, (std::vector<int>{1, 0}));
      EXPECT_TRUE(is_candidate(graph, made.candidates.domains, found.partition, candidate));
    }
  }
  EXPECT_GT(tensors, 0U);
}

}  // namespace
}  // namespace millrace
