#include "report/html/flow.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"

namespace millrace {
namespace {

void add_once(std::vector<size_t>& list, size_t value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

// Adds the boxes of tensors that come from outside the pass or leave it, and the lines.
class FlowMaker {
 public:
  explicit FlowMaker(Flow flow) : flow_(std::move(flow)), pieces_(flow_.nodes.size()) {
    for (size_t k = 0; k < pieces_; ++k) {
      for (const size_t tensor : flow_.nodes[k].writes) writer_[tensor] = k;
    }
  }

  Flow make() && {
    for (size_t k = 0; k < pieces_; ++k) {
      for (const size_t tensor : std::vector<size_t>(flow_.nodes[k].reads))
        flow_.edges.push_back({origin(tensor), k, tensor});
    }
    for (const auto& [tensor, k] : writer_) {
      if (flow_.tensors[tensor].kept || !read_.contains(tensor)) flow_.edges.push_back({k, leaf(tensor), tensor});
    }
    return std::move(flow_);
  }

 private:
  size_t leaf(size_t tensor) {
    flow_.nodes.push_back({nullptr, tensor, {}, {}});
    return flow_.nodes.size() - 1;
  }

  size_t origin(size_t tensor) {
    read_.insert(tensor);
    if (const auto made = writer_.find(tensor); made != writer_.end()) return made->second;
    const auto known = source_.find(tensor);
    return known != source_.end() ? known->second : source_[tensor] = leaf(tensor);
  }

  Flow flow_;
  size_t pieces_;
  std::map<size_t, size_t> writer_;
  std::map<size_t, size_t> source_;
  std::set<size_t> read_;
};

std::vector<FlowTensor> tensors_before(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  std::vector<FlowTensor> tensors;
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    const auto words = static_cast<double>(words_of(graph, TensorId(k)));
    tensors.push_back(
        {graph.tensors[k].name, "", words, words * static_cast<double>(bytes_of(graph.tensors[k].dtype)), false});
  }
  for (const Output& result : graph.results) tensors[result.tensor.at()].kept = true;
  for (const Kept& kept : training.kept) {
    if (kept.keeping == Keeping::saved) tensors[kept.tensor.at()].kept = true;
  }
  return tensors;
}

Flow operators_flow(const ReportArtefacts& artefacts, const StepMetrics& metrics, Pass pass) {
  const Graph& graph = artefacts.training.graph;
  Flow flow{tensors_before(artefacts.training), {}, {}};
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    const bool left_out = metrics.operators[k].added && metrics.launch_of[k] < 0;
    if (graph.operators[k].pass != pass || left_out) continue;
    FlowNode node{&metrics.operators[k], k, {}, {}};
    const auto touch = [&](const std::vector<Access>& accesses, std::vector<size_t>& into) {
      for (const Access& access : accesses) {
        if (flow.tensors[access.tensor.at()].words > 0) add_once(into, access.tensor.at());
      }
    };
    touch(graph.operators[k].inputs, node.reads);
    touch(graph.operators[k].outputs, node.writes);
    flow.nodes.push_back(std::move(node));
  }
  return flow;
}

std::vector<FlowTensor> tensors_after(const ReportArtefacts& artefacts) {
  const StepPlan& plan = artefacts.plan;
  std::map<std::string, double> word_bytes;
  for (const Tensor& tensor : artefacts.training.graph.tensors)
    word_bytes[tensor.name] = static_cast<double>(bytes_of(tensor.dtype));
  std::vector<FlowTensor> tensors;
  for (const PlanBuffer& buffer : plan.buffers) {
    const bool saved = buffer.first >= 0 && plan.launches[as_index(buffer.first)].pass == Pass::forward &&
                       plan.launches[as_index(buffer.last)].pass == Pass::backward;
    const auto word = word_bytes.find(buffer.tensor);
    const auto bytes = static_cast<double>(buffer.bytes);
    // As stored: a mask stored as bits has few words.
    tensors.push_back({buffer.tensor, buffer.layout, word != word_bytes.end() ? bytes / word->second : 0, bytes,
                       saved || buffer.location == BufferLocation::result});
  }
  return tensors;
}

Flow launches_flow(const ReportArtefacts& artefacts, const StepMetrics& metrics, Pass pass) {
  std::map<std::string, size_t> reads;
  for (const PartitionCandidates& candidates : artefacts.candidates.partitions)
    reads[candidates.partition.name] = candidates.partition.reads.size();
  Flow flow{tensors_after(artefacts), {}, {}};
  for (size_t k = 0; k < artefacts.plan.launches.size(); ++k) {
    const PlanLaunch& launch = artefacts.plan.launches[k];
    if (launch.pass != pass) continue;
    const auto partition = reads.find(launch.partition);
    const size_t count = partition != reads.end() ? partition->second : 1;
    FlowNode node{&metrics.after[k], k, {}, {}};
    for (size_t slot = 0; slot < launch.buffers.size(); ++slot) {
      if (launch.buffers[slot] != kNoBuffer)
        add_once(slot < count ? node.reads : node.writes, static_cast<size_t>(launch.buffers[slot]));
    }
    flow.nodes.push_back(std::move(node));
  }
  return flow;
}

}  // namespace

Flow flow_of(const ReportArtefacts& artefacts, const StepMetrics& metrics, FlowOf source, Pass pass) {
  return FlowMaker(source == FlowOf::operators ? operators_flow(artefacts, metrics, pass)
                                               : launches_flow(artefacts, metrics, pass))
      .make();
}

std::string described(const FlowTensor& tensor) {
  return concat(tensor.name, tensor.layout.empty() ? "" : concat(" as ", tensor.layout), ": ",
                short_count(tensor.words), " words, ", short_bytes(tensor.bytes));
}

}  // namespace millrace
