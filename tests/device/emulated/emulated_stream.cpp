#include "device/emulated/emulated_stream.h"

#include <utility>

#include "base/text.h"
#include "device/emulated/emulated_launch.h"
#include "device/emulated/emulated_memory.h"

namespace millrace::emulated {

Result<Done> Stream::put(Work work) {
  if (lost_) return *lost_;
  if (recorded_ != nullptr)
    recorded_->push_back(std::move(work));
  else
    waiting_.push_back(std::move(work));
  return Done{};
}

Result<Done> Stream::wait() {
  while (!waiting_.empty() && !lost_) {
    const Work work = std::move(waiting_.front());
    waiting_.pop_front();
    seconds_ += work.seconds;
    if (Result<Done> ran = work.run(); !ran) lost_ = ran.error();
  }
  waiting_.clear();
  if (lost_) return *lost_;
  return Done{};
}

Result<Done> Stream::refuse_if_recorded(const char* what) {
  if (lost_) return *lost_;
  if (recorded_ == nullptr) return Done{};
  spoilt_ = Error::make(ErrorKind::failed,
                        concat("cannot ", what, " while a graph is recorded: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"));
  return *spoilt_;
}

Result<std::vector<Work>> Stream::record(const std::function<Result<Done>()>& work) {
  if (Result<Done> may = refuse_if_recorded("record a graph"); !may) return may.error();
  std::vector<Work> recorded;
  spoilt_.reset();
  recorded_ = &recorded;
  const Result<Done> worked = work();
  recorded_ = nullptr;
  if (!worked) return worked.error();
  if (spoilt_) return *spoilt_;
  return recorded;
}

Result<Done> Graph::replay() {
  for (const Work& work : work_) {
    if (work.of_launch && work.launch.expired()) give_up("a graph is replayed, and a launch in it is gone");
    if (Result<Done> put = stream_->put(work); !put) return put;
  }
  return Done{};
}

}  // namespace millrace::emulated
