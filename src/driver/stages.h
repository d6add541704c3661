// The wrapper that every stage runs through: it names, times and verifies the stage. Test:
// tests/driver/pipeline_test.cpp
#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "millrace/millrace.h"
#include "millrace/result.h"

namespace millrace {

class Stages {
 public:
  explicit Stages(std::vector<StageTime>* timings = nullptr) : timings_(timings) {}

  // Runs `make`, then `check` on its output. An artefact that `check` rejects is our bug; it never reaches the next
  // stage.
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
  std::vector<StageTime>* timings_;
};

}  // namespace millrace
