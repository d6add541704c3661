// The stream of a GPU that is emulated: work waits in it until somebody waits for it, or is recorded. What went wrong
// is said when it is waited for, and nothing works after that, as on a real GPU.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "device/gpu.h"

namespace millrace::emulated {

// A piece of work, with all that it needs.
struct Work {
  std::function<Result<Done>()> run;
  double seconds = 0;          // that it pretends to take
  std::weak_ptr<void> launch;  // what must be there when a graph with it is replayed
  bool of_launch = false;
};

class Stream {
 public:
  // Recorded, while that is so; else it waits.
  Result<Done> put(Work work);
  Result<Done> wait();

  bool is_recorded() const { return recorded_ != nullptr; }
  // An error where nothing but work may be put: the stream is recorded, or the GPU is lost. A recording is spoilt by
  // it.
  Result<Done> refuse_if_recorded(const char* what);
  Result<std::vector<Work>> record(const std::function<Result<Done>()>& work);

  void restart_clock() { seconds_ = 0; }
  double seconds() const { return seconds_; }  // of what has run since then
  const std::optional<Error>& lost() const { return lost_; }

 private:
  std::deque<Work> waiting_;
  std::vector<Work>* recorded_ = nullptr;
  std::optional<Error> spoilt_;  // the recording
  std::optional<Error> lost_;    // the GPU
  double seconds_ = 0;
};

class Graph final : public GpuGraph {
 public:
  Graph(std::shared_ptr<Stream> stream, std::vector<Work> work) : stream_(std::move(stream)), work_(std::move(work)) {}
  Result<Done> replay() override;

 private:
  std::shared_ptr<Stream> stream_;
  std::vector<Work> work_;
};

}  // namespace millrace::emulated
