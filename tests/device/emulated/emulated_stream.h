// The stream of the emulated GPU. Work is queued until a caller waits for it, or it is recorded. As on a real GPU,
// errors are reported by the wait, and nothing works after one.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "device/gpu.h"

namespace millrace::emulated {

// A unit of work with everything that it needs.
struct Work {
  std::function<Result<Done>()> run;
  double seconds = 0;          // the time that it reports
  std::weak_ptr<void> launch;  // must be alive when a graph with it is replayed
  bool of_launch = false;
};

class Stream {
 public:
  // Records the work if a recording is active, else queues it.
  Result<Done> put(Work work);
  Result<Done> wait();

  bool is_recorded() const { return recorded_ != nullptr; }
  // For calls other than put: an error if a recording is active, which then fails too, or if the GPU is lost.
  Result<Done> refuse_if_recorded(const char* what);
  Result<std::vector<Work>> record(const std::function<Result<Done>()>& work);

  void restart_clock() { seconds_ = 0; }
  double seconds() const { return seconds_; }  // of work since restart_clock
  const std::optional<Error>& lost() const { return lost_; }

 private:
  std::deque<Work> waiting_;
  std::vector<Work>* recorded_ = nullptr;
  std::optional<Error> spoilt_;  // why the recording failed
  std::optional<Error> lost_;    // why the GPU is lost
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
