// The stages in order. Each runs through one wrapper that names it, times it and verifies what it made.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "autodiff/training_graph.h"
#include "fusion/fused_graph.h"
#include "fusion/recompute.h"
#include "ir/graph.h"
#include "millrace/millrace.h"
#include "millrace/result.h"

namespace millrace {

class Stages {
 public:
  explicit Stages(std::vector<StageTime>* timings = nullptr) : timings_(timings) {}

  // Program to training graph: what every command begins with.
  Result<TrainingGraph> train(const ProgramSource& program);
  // The same of a text that is here already; the path is for messages.
  Result<TrainingGraph> train(const ProgramSource& program, const std::string& text);

  Result<FusedGraph> fuse(const TrainingGraph& training);
  // The same with what is better computed again or saved as bits, and on a GPU with the statistics of attentions: what
  // plans are made of.
  Result<Recomputed> save_less(const TrainingGraph& training, bool on_gpu);

  // Runs `make`; an artefact that `check` refuses is our bug and never reaches the next stage.
  template <class Make, class Check>
  auto run(const char* name, Make make, Check check) -> decltype(make()) {
    const auto begin = std::chrono::steady_clock::now();
    auto artefact = make();
    if (artefact) {
      if (Result<Done> checked = check(*artefact); !checked) return std::move(checked.error());
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (timings_ != nullptr) timings_->push_back({name, seconds.count()});
    return artefact;
  }

 private:
  Result<Graph> parse(const ProgramSource& program, const std::string& text);

  std::vector<StageTime>* timings_;
};

}  // namespace millrace
